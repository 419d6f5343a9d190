// Qwen 3: Llama with norms of queries and keys.
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_qwen3(ConfigFile& file) {
  file.require(!file.flag("attention_bias", false), "attention_bias", "use false");
  OrderedJson model = read_llama_like(file, {.vocabulary = 151936,
                                             .hidden = 4096,
                                             .feed_forward = 22016,
                                             .layers = 32,
                                             .heads = 32,
                                             .key_value_heads = 32,
                                             .head_size = 128,
                                             .positions = 32768,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e4});
  model["qk_norm"] = true;
  read_windows_of_layers(file, model);
  return model;
}

std::string qwen3_obstacle(const model::Description& d) { return llama_like_obstacle(d, {.qk_norm = true, .window = true}); }

void write_qwen3(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  write_windows_of_layers(d, json);
}

}  // namespace

Architecture qwen3() {
  return {.model_type = "qwen3",
          .class_name = "Qwen3ForCausalLM",
          .prefix = "model.",
          .read = read_qwen3,
          .obstacle = qwen3_obstacle,
          .write = write_qwen3,
          .weights = llama_like_weights};
}

}  // namespace trivet::hugging_face
