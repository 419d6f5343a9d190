#include "interchange/hugging_face/llama_with_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace trivet::hugging_face {
namespace {

constexpr int64_t kMostLayers = 1 << 16;  // that model.layers may have

// transformers 5 writes num_local_experts; files of Qwen and those of version 4 have num_experts.
int64_t read_count(ConfigFile& file, int64_t usual) {
  file.require_same("num_local_experts", file, "num_experts");
  file.ignore({"num_local_experts", "num_experts"});
  return file.size(file.has("num_local_experts") ? "num_local_experts" : "num_experts", usual);
}

// transformers pools the rows of all layers in this loss, so its coefficient means something else here.
void note_balance_loss(ConfigFile& file) {
  const bool is_used = file.flag("output_router_logits", false);
  const double coefficient = file.number("router_aux_loss_coef", 0.001);
  if (coefficient == 0 || (!is_used && !file.has("router_aux_loss_coef"))) return;
  file.note(fmt::format("router_aux_loss_coef {} was ignored: transformers {}; for such a loss, set model.experts.balance_loss",
                        coefficient,
                        is_used ? "trains with that loss, as output_router_logits is true, but Trivet's is another one"
                                : "trains with it only if output_router_logits is true"));
}

}  // namespace

void read_experts(ConfigFile& file, int64_t experts, int64_t chosen, OrderedJson& model) {
  model["experts"] = {{"count", read_count(file, experts)}, {"per_token", file.size("num_experts_per_tok", chosen)}};
  note_balance_loss(file);
}

std::vector<int64_t> read_layers_of_qwen(ConfigFile& file, int64_t layers, const std::string& dense_type) {
  const std::vector<int64_t> listed = file.counts("mlp_only_layers");
  const std::set<int64_t> named(listed.begin(), listed.end());
  const int64_t step = file.size("decoder_sparse_step", 1);
  std::vector<int64_t> dense;
  for (int64_t i = 0; i < std::min(layers, kMostLayers); ++i)
    if ((i + 1) % step != 0 || named.contains(i)) dense.push_back(i);
  file.require(static_cast<int64_t>(dense.size()) < layers, step > layers ? "decoder_sparse_step" : "mlp_only_layers",
               fmt::format("at least one layer must have experts; a model without any is of the type \"{}\"", dense_type));
  return dense;
}

std::string experts_obstacle(const model::Description& d, const RouterFeatures& features) {
  const model::Experts& experts = d.experts;
  if (!experts.enabled()) return "model.experts.count is 0";
  if ((experts.shared_feed_forward_size > 0) != features.shared)
    return fmt::format("model.experts.shared_feed_forward_size is {}", experts.shared_feed_forward_size);
  if ((features.shared && experts.shared_gate) != features.shared_gate)
    return fmt::format("model.experts.shared_gate is {}", experts.shared_gate);
  if (experts.bias) return "model.experts.bias is true";
  if (const kernels::SwiGluRule& rule = experts.swiglu; !rule.usual())
    return fmt::format("model.experts.swiglu_limit, swiglu_alpha and swiglu_offset are {}, {} and {}", rule.limit, rule.alpha,
                       rule.offset);
  if (experts.correction_bias != features.correction_bias)
    return fmt::format("model.experts.correction_bias is {}", experts.correction_bias);
  if (experts.rule.score != features.score) return fmt::format("model.experts.score is \"{}\"", name_of(experts.rule.score));
  if (features.rule) return "";
  if (experts.rule.scale != 1) return fmt::format("model.experts.scale is {}", experts.rule.scale);
  if (experts.rule.groups != 1) return fmt::format("model.experts.groups is {}", experts.rule.groups);
  return "";
}

namespace {

// The router of layer `i`, and the MLP that computes every token. `theirs`: "model.layers.0.mlp.".
void add_router_and_shared(const model::Description& d, const std::string& ours, const std::string& theirs, const char* shared,
                           checkpoint::MappedSource::Table& table) {
  table[ours + "router.weight"] = {{theirs + "gate.weight"}};
  if (d.experts.correction_bias) table[ours + "router.correction_bias"] = {{theirs + "gate.e_score_correction_bias"}};
  const int64_t width = d.experts.shared_feed_forward_size;
  if (width == 0) return;
  const std::string mlp = fmt::format("{}{}.", theirs, shared);
  table[ours + "shared.gate_up.weight"] = {{mlp + "gate_proj.weight", 0, width}, {mlp + "up_proj.weight", 0, width}};
  table[ours + "shared.down.weight"] = {{mlp + "down_proj.weight"}};
  if (d.experts.shared_gate) table[ours + "shared_gate.weight"] = {{fmt::format("{}{}_gate.weight", theirs, shared)}};
}

}  // namespace

checkpoint::MappedSource::Table weights_with_experts(const model::Description& d, const ExpertNames& names) {
  checkpoint::MappedSource::Table table = llama_like_weights(d);
  for (int64_t i = 0; i < d.layers; ++i) {
    if (!model::has_experts(d, i)) continue;
    const std::string ours = fmt::format("blocks.{}.mlp.", i), theirs = fmt::format("model.layers.{}.{}.", i, names.block);
    add_router_and_shared(d, ours, theirs, names.shared, table);
    auto &gate_up = table[ours + "experts.gate_up.weight"], &down = table[ours + "experts.down.weight"];
    for (int64_t e = 0; e < d.experts.count; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", theirs, e);
      gate_up.push_back({expert + names.gate + ".weight", 0, d.experts.feed_forward_size});
      gate_up.push_back({expert + names.up + ".weight", 0, d.experts.feed_forward_size});
      down.push_back({expert + names.down + ".weight", 0, d.hidden_size});
    }
  }
  return table;
}

checkpoint::MappedSource::Table weights_with_fused_experts(const model::Description& d) {
  return weights_with_fused_experts(d, "");
}

checkpoint::MappedSource::Table weights_with_fused_experts(const model::Description& d, const char* shared) {
  checkpoint::MappedSource::Table table = llama_like_weights(d);
  for (int64_t i = 0; i < d.layers; ++i) {
    if (!model::has_experts(d, i)) continue;
    const std::string ours = fmt::format("blocks.{}.mlp.", i), theirs = fmt::format("model.layers.{}.mlp.", i);
    add_router_and_shared(d, ours, theirs, shared, table);
    table[ours + "experts.gate_up.weight"] = {{theirs + "experts.gate_up_proj"}};
    table[ours + "experts.down.weight"] = {{theirs + "experts.down_proj"}};
  }
  return table;
}

}  // namespace trivet::hugging_face
