// Qwen 2 and 2.5: Llama with biases in the projections to queries, keys and values.
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_qwen2(ConfigFile& file) {
  OrderedJson model = read_llama_like(file, {.vocabulary = 151936,
                                             .hidden = 4096,
                                             .feed_forward = 22016,
                                             .layers = 32,
                                             .heads = 32,
                                             .key_value_heads = 32,
                                             .positions = 32768,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e4});
  model["qkv_bias"] = true;
  read_windows_of_layers(file, model);
  return model;
}

std::string qwen2_obstacle(const model::Description& d) { return llama_like_obstacle(d, {.qkv_bias = true, .window = true}); }

void write_qwen2(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  write_windows_of_layers(d, json);
}

}  // namespace

Architecture qwen2() {
  return {.model_type = "qwen2",
          .class_name = "Qwen2ForCausalLM",
          .prefix = "model.",
          .read = read_qwen2,
          .obstacle = qwen2_obstacle,
          .write = write_qwen2,
          .weights = llama_like_weights};
}

}  // namespace trivet::hugging_face
