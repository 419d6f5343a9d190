// DeepSeek-V2: latent attention, and experts chosen by a softmax. Those of the large one are chosen in groups by another rule
// than those of DeepSeek-V3, which is not computed; those of V2-Lite have no groups.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "interchange/hugging_face/deepseek_experts.h"
#include "interchange/hugging_face/latent_weights.h"

namespace trivet::hugging_face {
namespace {

// The class takes n_group and topk_group for nothing then.
void read_method(ConfigFile& file, OrderedJson& model) {
  const bool groups = file.text("topk_method", "greedy") != "greedy";
  file.require(!groups || (file.text("topk_method") == "group_limited_greedy" && model["experts"]["groups"] == 1),
               "topk_method",
               "only \"greedy\" is computed in this version: a model that was trained with another choice is not accepted");
  model["experts"]["groups"] = model["experts"]["groups_per_token"] = 1;
}

OrderedJson read_deepseek_v2(ConfigFile& file) {
  OrderedJson model = read_llama_like(file, {.vocabulary = 102400,
                                             .hidden = 4096,
                                             .feed_forward = 11008,
                                             .layers = 32,
                                             .heads = 32,
                                             .positions = 2048,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e4});
  read_latent_attention(
      file, {.query_rank = 1536, .key_value_rank = 512, .plain_size = 128, .rotary_size = 64, .value_size = 128}, model);
  read_deepseek_experts(file, {.experts = 64, .shared = 2, .feed_forward = 1407, .biased = false, .other_name = "num_experts"},
                        model);
  read_method(file, model);
  file.require(!file.flag("norm_topk_prob", false), "norm_topk_prob", "use false: transformers' class does not read this key");
  file.require(file.text("scoring_func", "softmax") == "softmax", "scoring_func", "use \"softmax\"");
  file.require(!file.flag("mlp_bias", false), "mlp_bias", "use false");
  file.require(file.size("moe_layer_freq", 1) == 1, "moe_layer_freq", "use 1");
  file.ignore({"aux_loss_alpha", "seq_aux", "ep_size", "pretraining_tp"});
  return model;
}

std::string deepseek_v2_obstacle(const model::Description& d) {
  std::string obstacle = latent_attention_obstacle(d);
  if (obstacle.empty()) obstacle = deepseek_experts_obstacle(d, false);
  if (obstacle.empty() && d.experts.rule.normalize) obstacle = "model.experts.normalize is true";
  if (obstacle.empty() && d.hidden_size % d.heads != 0)
    obstacle = fmt::format("model.heads {} do not divide model.hidden_size {}", d.heads, d.hidden_size);
  if (obstacle.empty() && d.experts.rule.groups > 1)
    obstacle = "model.experts.groups is more than 1, and DeepSeek-V2 has another rule for groups";
  return obstacle;
}

void write_deepseek_v2(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  write_latent_attention(d, json);
  write_deepseek_experts(d, json);
  json["topk_method"] = "greedy";
  json["scoring_func"] = "softmax";  // for other programs than transformers
}

}  // namespace

Architecture deepseek_v2() {
  return {.model_type = "deepseek_v2",
          .class_name = "DeepseekV2ForCausalLM",
          .prefix = "model.",
          .read = read_deepseek_v2,
          .obstacle = deepseek_v2_obstacle,
          .write = write_deepseek_v2,
          .weights = [](const model::Description& d) { return with_latent_weights(d, deepseek_weights(d)); },
          .fused_weights = [](const model::Description& d) { return with_latent_weights(d, fused_deepseek_weights(d)); }};
}

}  // namespace trivet::hugging_face
