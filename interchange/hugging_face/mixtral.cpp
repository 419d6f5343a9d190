// Mixtral: Mistral with a mixture of experts in every layer.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "interchange/hugging_face/llama_with_experts.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_mixtral(ConfigFile& file) {
  OrderedJson model = read_llama_like(file, {.vocabulary = 32000,
                                             .hidden = 4096,
                                             .feed_forward = 14336,
                                             .layers = 32,
                                             .heads = 32,
                                             .key_value_heads = 8,
                                             .positions = 131072,
                                             .norm_epsilon = 1e-5,
                                             .rotary_base = 1e6});
  read_only_window(file, file.has("sliding_window"), 0, model);
  read_experts(file, 8, 2, model);
  if (const double noise = file.number("router_jitter_noise", 0.0); noise != 0)
    file.note(
        fmt::format("router_jitter_noise {} was ignored: transformers multiplies the inputs of experts and routers by "
                    "random factors in training, Trivet does not",
                    noise));
  return model;
}

std::string mixtral_obstacle(const model::Description& d) {
  if (std::string obstacle = llama_like_obstacle(d, {.window = true, .experts = true}); !obstacle.empty()) return obstacle;
  if (std::string obstacle = experts_obstacle(d); !obstacle.empty()) return obstacle;
  if (!d.experts.dense_blocks.empty())
    return fmt::format("model.experts.dense_blocks lists {}", d.experts.dense_blocks.front());
  return d.experts.rule.normalize ? "" : "model.experts.normalize is false";
}

void write_mixtral(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  json["intermediate_size"] = d.experts.feed_forward_size;
  json["num_local_experts"] = d.experts.count;
  json["num_experts_per_tok"] = d.experts.per_token;
  if (d.attention_window > 0)
    json["sliding_window"] = d.attention_window;
  else
    json["sliding_window"] = nullptr;
}

checkpoint::MappedSource::Table mixtral_weights(const model::Description& d) {
  return weights_with_experts(d, {.block = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"});
}

}  // namespace

Architecture mixtral() {
  return {.model_type = "mixtral",
          .class_name = "MixtralForCausalLM",
          .prefix = "model.",
          .read = read_mixtral,
          .obstacle = mixtral_obstacle,
          .write = write_mixtral,
          .weights = mixtral_weights,
          .fused_weights = weights_with_fused_experts};
}

}  // namespace trivet::hugging_face
