// GLM 4.5 and 4.6: the experts of DeepSeek-V3, and attention that rotates a part of each head, and may have biases and norms of
// queries and keys. The published files have one more layer, which predicts a further token and is left out here.
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/deepseek_experts.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_glm4_moe(ConfigFile& file) {
  OrderedJson model = read_llama_like(file, {.vocabulary = 151552,
                                             .hidden = 4096,
                                             .feed_forward = 10944,
                                             .layers = 46,
                                             .heads = 96,
                                             .key_value_heads = 8,
                                             .positions = 131072,
                                             .norm_epsilon = 1e-5,
                                             .rotary_base = 1e4,
                                             .rotary_share = true,
                                             .usual_share = 0.5});
  model["qkv_bias"] = file.flag("attention_bias", false);
  model["qk_norm"] = file.flag("use_qk_norm", false);
  read_deepseek_experts(file, {.experts = 128, .chosen = 8, .shared = 1, .dense = 1, .normalize = true}, model);
  file.ignore({"num_nextn_predict_layers", "num_mtp_layers"});
  return model;
}

std::string glm4_moe_obstacle(const model::Description& d) {
  std::string obstacle =
      llama_like_obstacle(d, {.qkv_bias = d.qkv_bias, .qk_norm = d.qk_norm, .rotary_share = true, .experts = true});
  return obstacle.empty() ? deepseek_experts_obstacle(d) : obstacle;
}

void write_glm4_moe(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  write_deepseek_experts(d, json);
  json["partial_rotary_factor"] = d.rotary_share;
  json["attention_bias"] = d.qkv_bias;
  json["use_qk_norm"] = d.qk_norm;
  json["num_nextn_predict_layers"] = 0;
}

}  // namespace

Architecture glm4_moe() {
  return {.model_type = "glm4_moe",
          .class_name = "Glm4MoeForCausalLM",
          .prefix = "model.",
          .read = read_glm4_moe,
          .obstacle = glm4_moe_obstacle,
          .write = write_glm4_moe,
          .weights = deepseek_weights,
          .fused_weights = fused_deepseek_weights,
          .why_left_out = why_further_layer_is_left_out};
}

}  // namespace trivet::hugging_face
