// Mistral: Llama in which a token may see only a window of the tokens before it.
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_mistral(ConfigFile& file) {
  OrderedJson model = read_llama_like(file, {.vocabulary = 32000,
                                             .hidden = 4096,
                                             .feed_forward = 14336,
                                             .layers = 32,
                                             .heads = 32,
                                             .key_value_heads = 8,
                                             .positions = 131072,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e4});
  read_only_window(file, !file.is_null("sliding_window"), 4096, model);
  return model;
}

std::string mistral_obstacle(const model::Description& d) { return llama_like_obstacle(d, {.window = true}); }

void write_mistral(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  if (d.attention_window > 0)
    json["sliding_window"] = d.attention_window;
  else
    json["sliding_window"] = nullptr;
}

}  // namespace

Architecture mistral() {
  return {.model_type = "mistral",
          .class_name = "MistralForCausalLM",
          .prefix = "model.",
          .read = read_mistral,
          .obstacle = mistral_obstacle,
          .write = write_mistral,
          .weights = llama_like_weights};
}

}  // namespace trivet::hugging_face
