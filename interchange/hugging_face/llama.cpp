// Llama 1 to 3: rotary positions, RMSNorm, SwiGLU, grouped queries.
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_llama(ConfigFile& file) {
  file.ignore({"pretraining_tp"});
  file.require(!file.flag("mlp_bias", false), "mlp_bias", "use false");
  OrderedJson model = read_llama_like(file, {.vocabulary = 32000,
                                             .hidden = 4096,
                                             .feed_forward = 11008,
                                             .layers = 32,
                                             .heads = 32,
                                             .positions = 2048,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e4});
  read_attention_bias(file, model);
  return model;
}

std::string llama_obstacle(const model::Description& d) { return llama_like_obstacle(without_attention_bias(d), {}); }

void write_llama(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  json["attention_bias"] = d.qkv_bias;
  json["mlp_bias"] = false;
}

}  // namespace

Architecture llama() {
  return {.model_type = "llama",
          .class_name = "LlamaForCausalLM",
          .prefix = "model.",
          .read = read_llama,
          .obstacle = llama_obstacle,
          .write = write_llama,
          .weights = llama_like_weights};
}

}  // namespace trivet::hugging_face
