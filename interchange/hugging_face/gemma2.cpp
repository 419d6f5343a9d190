// Gemma 2: what gemma_like.h says, and soft limits of attention's scores and of the logits. Every second layer has a window.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "interchange/hugging_face/gemma_like.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_gemma2(ConfigFile& file) {
  file.ignore({"hidden_act", "cache_implementation"});  // hidden_activation holds; the other is an option of generation
  OrderedJson model = read_llama_like(file, {.vocabulary = 256000,
                                             .hidden = 2304,
                                             .feed_forward = 9216,
                                             .layers = 26,
                                             .heads = 8,
                                             .key_value_heads = 4,
                                             .head_size = 256,
                                             .positions = 8192,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e4,
                                             .tied_embedding = true,
                                             .activation_key = "hidden_activation",
                                             .activation = "gelu_pytorch_tanh"});
  read_gemma_like(file, 2, false, model);
  model["attention_soft_cap"] = read_soft_cap(file, kScoresCap, 50);
  model["logits_soft_cap"] = read_soft_cap(file, kLogitsCap, 30);
  return model;
}

std::string gemma2_obstacle(const model::Description& d) {
  model::Description rest;
  if (const std::string obstacle = gemma_obstacle(d, rest); !obstacle.empty()) return obstacle;
  if (d.window_rotary_base > 0) return fmt::format("model.window_rotary_base is {}", d.window_rotary_base);
  rest.attention_soft_cap = rest.logits_soft_cap = 0;
  return llama_like_obstacle(rest, {.window = true});
}

void write_cap(const char* key, double cap, OrderedJson& json) {
  if (cap > 0)
    json[key] = cap;
  else
    json[key] = nullptr;
}

void write_gemma2(const model::Description& d, OrderedJson& json) {
  write_gemma_like(d, json);
  write_cap(kScoresCap, d.attention_soft_cap, json);
  write_cap(kLogitsCap, d.logits_soft_cap, json);
}

}  // namespace

Architecture gemma2() {
  return {.model_type = "gemma2",
          .class_name = "Gemma2ForCausalLM",
          .prefix = "model.",
          .read = read_gemma2,
          .obstacle = gemma2_obstacle,
          .write = write_gemma2,
          .weights = gemma_like_weights};
}

}  // namespace trivet::hugging_face
