#include "interchange/hugging_face/fused_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::hugging_face {
namespace {

constexpr std::string_view kGateUp = ".mlp.experts.gate_up_proj", kDown = ".mlp.experts.down_proj", kExperts = ".experts.";

bool is_fused(const std::string& name) { return name.ends_with(kGateUp) || name.ends_with(kDown); }

// Checks whether a number follows: "model.layers.0.mlp.experts.3.up_proj.weight".
bool is_one_expert(const std::string& name) {
  const size_t at = name.find(kExperts);
  if (at == std::string::npos || at + kExperts.size() == name.size()) return false;
  const char next = name[at + kExperts.size()];
  return next >= '0' && next <= '9';
}

void check_shape(const foreign::TensorFiles& files, const std::string& name, const model::Experts& experts, int64_t hidden) {
  const bool is_down = name.ends_with(kDown);
  const Shape wanted{experts.count, is_down ? hidden : 2 * experts.feed_forward_size,
                     is_down ? experts.feed_forward_size : hidden};
  const Shape stored = files.find(name)->shape;
  if (stored == wanted) return;
  throw CheckpointError(ExitCode::Usage,
                        fmt::format("{} has the shape {}, but {} experts of this config.json have {}", files.origin(name, 0),
                                    to_string(stored), experts.count, to_string(wanted)));
}

}  // namespace

bool holds_fused_experts(const foreign::TensorFiles& files) { return std::ranges::any_of(files.names(), is_fused); }

void settle_fused_experts(foreign::TensorFiles& files, const model::Description& description) {
  const std::vector<std::string> names = files.names();
  const auto fused = std::ranges::find_if(names, is_fused), single = std::ranges::find_if(names, is_one_expert);
  if (single != names.end())
    throw CheckpointError(ExitCode::Usage,
                          fmt::format("{} is an expert by itself, but \"{}\" holds all experts of a layer; use files in which "
                                      "all layers have one of both forms",
                                      files.origin(*single, 0), printable(*fused)));
  for (const std::string& name : names) {
    if (!is_fused(name)) continue;
    check_shape(files, name, description.experts, description.hidden_size);
    files.make_matrix(name);
  }
}

}  // namespace trivet::hugging_face
