// Qwen 3 with mixtures of experts in all or some layers.
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/llama_with_experts.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_qwen3_moe(ConfigFile& file) {
  file.require(!file.flag("attention_bias", false), "attention_bias", "use false");
  OrderedJson model = read_llama_like(file, {.vocabulary = 151936,
                                             .hidden = 2048,
                                             .feed_forward = 6144,
                                             .layers = 24,
                                             .heads = 32,
                                             .key_value_heads = 4,
                                             .positions = 32768,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e4});
  model["qk_norm"] = true;
  file.ignore({"max_window_layers"});
  read_only_window(file, file.flag("use_sliding_window", false) && !file.is_null("sliding_window"), 4096, model);
  read_experts(file, 128, 8, model);
  OrderedJson& experts = model["experts"];
  experts["feed_forward_size"] = file.size("moe_intermediate_size", 768);
  experts["normalize"] = file.flag("norm_topk_prob", false);
  if (const auto dense = read_layers_of_qwen(file, model["layers"].get<int64_t>(), "qwen3"); !dense.empty())
    experts["dense_blocks"] = dense;
  return model;
}

std::string qwen3_moe_obstacle(const model::Description& d) {
  std::string obstacle = llama_like_obstacle(d, {.qk_norm = true, .window = true, .experts = true});
  return obstacle.empty() ? experts_obstacle(d) : obstacle;
}

void write_qwen3_moe(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  write_windows_of_layers(d, json);
  json["num_experts"] = d.experts.count;
  json["num_experts_per_tok"] = d.experts.per_token;
  json["moe_intermediate_size"] = d.experts.feed_forward_size;
  json["norm_topk_prob"] = d.experts.rule.normalize;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = d.experts.dense_blocks;
}

checkpoint::MappedSource::Table qwen3_moe_weights(const model::Description& d) { return weights_with_experts(d, kNamesOfQwen); }

}  // namespace

Architecture qwen3_moe() {
  return {.model_type = "qwen3_moe",
          .class_name = "Qwen3MoeForCausalLM",
          .prefix = "model.",
          .read = read_qwen3_moe,
          .obstacle = qwen3_moe_obstacle,
          .write = write_qwen3_moe,
          .weights = qwen3_moe_weights,
          .fused_weights = weights_with_fused_experts};
}

}  // namespace trivet::hugging_face
