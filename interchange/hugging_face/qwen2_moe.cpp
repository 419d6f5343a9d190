// Qwen 2 with mixtures of experts in all or some layers, and a shared MLP whose output has a gate.
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/llama_with_experts.h"

namespace trivet::hugging_face {
namespace {

constexpr const char* kSharedExpert = "shared_expert";

OrderedJson read_qwen2_moe(ConfigFile& file) {
  OrderedJson model = read_llama_like(file, {.vocabulary = 151936,
                                             .hidden = 2048,
                                             .feed_forward = 5632,
                                             .layers = 24,
                                             .heads = 16,
                                             .key_value_heads = 16,
                                             .positions = 32768,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e4});
  model["qkv_bias"] = file.flag("qkv_bias", true);
  file.require(!file.flag("use_sliding_window", false), "use_sliding_window",
               "use false: transformers gives every other layer of such a model a window");
  read_only_window(file, false, 0, model);
  file.ignore({"max_window_layers"});
  read_experts(file, 60, 4, model);
  OrderedJson& experts = model["experts"];
  experts["feed_forward_size"] = file.size("moe_intermediate_size", 1408);
  experts["shared_feed_forward_size"] = file.size("shared_expert_intermediate_size", 5632);
  experts["shared_gate"] = true;
  experts["normalize"] = file.flag("norm_topk_prob", false);
  if (const auto dense = read_layers_of_qwen(file, model["layers"].get<int64_t>(), "qwen2"); !dense.empty())
    experts["dense_blocks"] = dense;
  return model;
}

std::string qwen2_moe_obstacle(const model::Description& d) {
  std::string obstacle = llama_like_obstacle(d, {.qkv_bias = d.qkv_bias, .experts = true});
  return obstacle.empty() ? experts_obstacle(d, {.shared = true, .shared_gate = true}) : obstacle;
}

void write_qwen2_moe(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  json["qkv_bias"] = d.qkv_bias;
  json["use_sliding_window"] = false;
  json["num_experts"] = d.experts.count;
  json["num_experts_per_tok"] = d.experts.per_token;
  json["moe_intermediate_size"] = d.experts.feed_forward_size;
  json["shared_expert_intermediate_size"] = d.experts.shared_feed_forward_size;
  json["norm_topk_prob"] = d.experts.rule.normalize;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = d.experts.dense_blocks;
}

checkpoint::MappedSource::Table qwen2_moe_weights(const model::Description& d) {
  ExpertNames names = kNamesOfQwen;
  names.shared = kSharedExpert;
  return weights_with_experts(d, names);
}

checkpoint::MappedSource::Table fused_qwen2_moe_weights(const model::Description& d) {
  return weights_with_fused_experts(d, kSharedExpert);
}

}  // namespace

Architecture qwen2_moe() {
  return {.model_type = "qwen2_moe",
          .class_name = "Qwen2MoeForCausalLM",
          .prefix = "model.",
          .read = read_qwen2_moe,
          .obstacle = qwen2_moe_obstacle,
          .write = write_qwen2_moe,
          .weights = qwen2_moe_weights,
          .fused_weights = fused_qwen2_moe_weights};
}

}  // namespace trivet::hugging_face
