// OLMoE: Llama with norms of whole projections to queries and keys, and mixtures of experts in all layers.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "interchange/hugging_face/llama_with_experts.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_olmoe(ConfigFile& file) {
  file.require(!file.has("clip_qkv"), "clip_qkv", "use null: queries, keys and values are not limited in this version");
  file.require(!file.has("sliding_window"), "sliding_window",
               "use null: the class of this model has windows in some of its forms of attention only");
  OrderedJson model = read_llama_like(file, {.vocabulary = 50304,
                                             .hidden = 2048,
                                             .feed_forward = 2048,
                                             .layers = 16,
                                             .heads = 16,
                                             .positions = 4096,
                                             .norm_epsilon = 1e-5,
                                             .rotary_base = 1e4});
  file.require(!model.contains("head_size"), "head_dim",
               "use hidden_size / num_attention_heads, for which the class of this model makes its norms");
  read_attention_bias(file, model);
  model["qk_norm"] = true;
  model["qk_norm_over"] = "projection";
  read_experts(file, 64, 8, model);
  model["experts"]["normalize"] = file.flag("norm_topk_prob", false);
  return model;
}

std::string olmoe_obstacle(const model::Description& d) {
  if (d.qk_norm && d.qk_norm_over != model::QkNormSpan::Projection)
    return fmt::format("model.qk_norm_over is \"{}\"", name_of(d.qk_norm_over));
  model::Description rest = without_attention_bias(d);
  rest.qk_norm_over = model::QkNormSpan::Head;
  if (std::string obstacle = llama_like_obstacle(rest, {.qk_norm = true, .experts = true}); !obstacle.empty()) return obstacle;
  if (d.head_size * d.heads != d.hidden_size) return fmt::format("model.head_size is {}", d.head_size);
  if (!d.experts.dense_blocks.empty())
    return fmt::format("model.experts.dense_blocks lists {}", d.experts.dense_blocks.front());
  return experts_obstacle(d);
}

void write_olmoe(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  json.erase("head_dim");
  json["attention_bias"] = d.qkv_bias;
  json["intermediate_size"] = d.experts.feed_forward_size;
  json["num_experts"] = d.experts.count;
  json["num_experts_per_tok"] = d.experts.per_token;
  json["norm_topk_prob"] = d.experts.rule.normalize;
  json["pad_token_id"] = nullptr;
}

checkpoint::MappedSource::Table olmoe_weights(const model::Description& d) {
  return weights_with_experts(d, {.block = "mlp", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"});
}

}  // namespace

Architecture olmoe() {
  return {.model_type = "olmoe",
          .class_name = "OlmoeForCausalLM",
          .prefix = "model.",
          .read = read_olmoe,
          .obstacle = olmoe_obstacle,
          .write = write_olmoe,
          .weights = olmoe_weights,
          .fused_weights = weights_with_fused_experts};
}

}  // namespace trivet::hugging_face
