// Gemma 3, of text: what gemma_like.h says, norms of queries and keys, and a rotary base of their own in layers with a window.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "interchange/hugging_face/gemma_like.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_gemma3(ConfigFile& file) {
  if (!file.has(kScoresCap)) file.ignore({kScoresCap});  // transformers does not apply this limit to Gemma 3
  OrderedJson model = read_llama_like(file, {.vocabulary = 262208,
                                             .hidden = 2304,
                                             .feed_forward = 9216,
                                             .layers = 26,
                                             .heads = 8,
                                             .key_value_heads = 4,
                                             .head_size = 256,
                                             .positions = 131072,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e6,
                                             .window_rotary_base = 1e4,
                                             .tied_embedding = true,
                                             .activation_key = "hidden_activation",
                                             .activation = "gelu_pytorch_tanh"});
  read_gemma_like(file, 6, true, model);
  if (const double cap = read_soft_cap(file, kLogitsCap, 0); cap > 0) model["logits_soft_cap"] = cap;
  model["qk_norm"] = true;
  return model;
}

std::string gemma3_obstacle(const model::Description& d) {
  model::Description rest;
  if (const std::string obstacle = gemma_obstacle(d, rest); !obstacle.empty()) return obstacle;
  if (d.window_rotary_base == 0) return "model.window_rotary_base is 0";
  rest.window_rotary_base = 0;
  rest.logits_soft_cap = 0;
  return llama_like_obstacle(rest, {.qk_norm = true, .window = true});
}

void write_gemma3(const model::Description& d, OrderedJson& json) {
  write_gemma_like(d, json);
  json["rope_local_base_freq"] = d.window_rotary_base;
  if (d.logits_soft_cap > 0) json[kLogitsCap] = d.logits_soft_cap;
}

}  // namespace

Architecture gemma3() {
  return {.model_type = "gemma3_text",
          .class_name = "Gemma3ForCausalLM",
          .prefix = "model.",
          .read = read_gemma3,
          .obstacle = gemma3_obstacle,
          .write = write_gemma3,
          .weights = gemma_like_weights};
}

}  // namespace trivet::hugging_face
