#include "interchange/hugging_face/deepseek_experts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>

namespace trivet::hugging_face {
namespace {

constexpr const char* kSharedExperts = "shared_experts";

std::optional<int64_t> unless_zero(int64_t usual) { return usual > 0 ? std::optional(usual) : std::nullopt; }

// transformers takes both names for one key.
int64_t read_routed_count(ConfigFile& file, int64_t usual, const char* other_name) {
  file.require_same("n_routed_experts", file, other_name);
  file.ignore({"n_routed_experts", other_name});
  return file.size(file.has(other_name) ? other_name : "n_routed_experts", unless_zero(usual));
}

std::vector<int64_t> first_blocks(int64_t count) {
  std::vector<int64_t> blocks(static_cast<size_t>(count));
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

}  // namespace

// transformers never changes the biases, so neither does a training that begins with them, unless it asks for it.
void read_deepseek_experts(ConfigFile& file, const DeepSeekDefaults& defaults, OrderedJson& model) {
  const int64_t width = file.size("moe_intermediate_size", defaults.feed_forward);
  const int64_t shared = file.size("n_shared_experts", unless_zero(defaults.shared));
  file.require(shared <= (int64_t{1} << 24) / width, "n_shared_experts", "use fewer");
  model["experts"] = {{"count", read_routed_count(file, defaults.experts, defaults.other_name)},
                      {"per_token", file.size("num_experts_per_tok", unless_zero(defaults.chosen))},
                      {"feed_forward_size", width},
                      {"shared_feed_forward_size", shared * width},
                      {"score", defaults.biased ? "sigmoid" : "softmax"},
                      {"normalize", file.flag("norm_topk_prob", defaults.normalize)},
                      {"scale", file.number("routed_scaling_factor", defaults.scale)},
                      {"groups", file.size("n_group", defaults.groups)},
                      {"groups_per_token", file.size("topk_group", defaults.groups_per_token)}};
  if (defaults.biased) {
    model["experts"]["correction_bias"] = true;
    model["experts"]["bias_update_rate"] = 0.0;
  }
  const int64_t dense = file.count("first_k_dense_replace", defaults.dense), layers = model["layers"].get<int64_t>();
  constexpr int64_t kMostLayers = 1 << 16;  // that model.layers may have
  file.require(dense < layers && dense <= kMostLayers, "first_k_dense_replace",
               fmt::format("use less than num_hidden_layers {}: at least one layer must have experts", layers));
  if (dense > 0) model["experts"]["dense_blocks"] = first_blocks(dense);
  file.ignore({"output_router_logits"});  // the class has no loss of routers
}

std::string deepseek_experts_obstacle(const model::Description& d, bool biased) {
  const RouterFeatures features{.shared = true,
                                .correction_bias = biased,
                                .score = biased ? kernels::ExpertScore::Sigmoid : kernels::ExpertScore::Softmax,
                                .rule = true};
  if (std::string obstacle = experts_obstacle(d, features); !obstacle.empty()) return obstacle;
  const model::Experts& experts = d.experts;
  if (experts.shared_feed_forward_size % experts.feed_forward_size != 0)
    return fmt::format("model.experts.shared_feed_forward_size {} is no multiple of model.experts.feed_forward_size {}",
                       experts.shared_feed_forward_size, experts.feed_forward_size);
  if (experts.dense_blocks != first_blocks(static_cast<int64_t>(experts.dense_blocks.size())))
    return "model.experts.dense_blocks are not the first blocks in their order";
  return biased && experts.count / experts.rule.groups < 2 ? "each group has one expert, and transformers looks at two" : "";
}

void write_deepseek_experts(const model::Description& d, OrderedJson& json) {
  const model::Experts& experts = d.experts;
  json["n_routed_experts"] = experts.count;
  json["num_experts_per_tok"] = experts.per_token;
  json["moe_intermediate_size"] = experts.feed_forward_size;
  json["n_shared_experts"] = experts.shared_feed_forward_size / experts.feed_forward_size;
  json["first_k_dense_replace"] = experts.dense_blocks.size();
  json["norm_topk_prob"] = experts.rule.normalize;
  json["routed_scaling_factor"] = experts.rule.scale;
  json["n_group"] = experts.rule.groups;
  json["topk_group"] = experts.rule.groups_per_token;
}

checkpoint::MappedSource::Table deepseek_weights(const model::Description& d) {
  ExpertNames names = kNamesOfQwen;
  names.shared = kSharedExperts;
  return weights_with_experts(d, names);
}

checkpoint::MappedSource::Table fused_deepseek_weights(const model::Description& d) {
  return weights_with_fused_experts(d, kSharedExperts);
}

// Only a layer that predicts a further token joins its input with the embedding of the token before: by eh_proj.
std::string why_further_layer_is_left_out(const foreign::TensorFiles& files, const model::Description& d,
                                          const std::string& name) {
  const std::string layer = fmt::format("model.layers.{}.", d.layers);
  return name.starts_with(layer) && files.find(layer + "eh_proj.weight")
             ? fmt::format(
                   "they predict a further token (layer {}, num_nextn_predict_layers), which Trivet does not train; "
                   "an exported model lacks them",
                   d.layers)
             : "";
}

}  // namespace trivet::hugging_face
