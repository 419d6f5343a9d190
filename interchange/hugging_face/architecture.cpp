#include "interchange/hugging_face/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::hugging_face {
namespace {

// Types whose models are like some that are read, and what keeps them from it.
struct Lack {
  std::string_view model_type, what;
};
constexpr std::array<Lack, 1> kLacking{
    {{"qwen2_moe", "the output of its shared expert has a gate (shared_expert_gate), which is not computed in this version"}}};

}  // namespace

std::span<const Architecture> architectures() {
  static const Architecture all[] = {gpt2(),    llama(),  mistral(), qwen2(),     qwen3(),   phi3(),
                                     gemma2(),  gemma3(), mixtral(), qwen3_moe(), smollm3(), seed_oss(),
                                     granite(), olmo2(),  olmo3(),   olmoe(),     exaone4(), ministral3()};
  return all;
}

const Architecture& architecture_of(const std::string& model_type, const std::string& path) {
  const auto found = std::ranges::find(architectures(), std::string_view(model_type), &Architecture::model_type);
  if (found != architectures().end()) return *found;
  const auto lack = std::ranges::find(kLacking, std::string_view(model_type), &Lack::model_type);
  std::string known;
  for (const Architecture& architecture : architectures())
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", architecture.model_type);
  throw ConfigError(fmt::format("{}: model_type: \"{}\" is not accepted{}; use one of {}", printable(path),
                                printable(model_type), lack == kLacking.end() ? "" : fmt::format(": {}", lack->what), known));
}

}  // namespace trivet::hugging_face
