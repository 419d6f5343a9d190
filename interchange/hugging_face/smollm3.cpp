// SmolLM3: Llama in which some layers do not rotate queries and keys.
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/layer_patterns.h"
#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_smollm3(ConfigFile& file) {
  file.ignore({"pretraining_tp", "max_window_layers"});
  file.require(!file.flag("mlp_bias", false), "mlp_bias", "use false");
  OrderedJson model = read_llama_like(file, {.vocabulary = 128256,
                                             .hidden = 2048,
                                             .feed_forward = 11008,
                                             .layers = 36,
                                             .heads = 16,
                                             .key_value_heads = 4,
                                             .positions = 32768,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 2e6,
                                             .tied_embedding = true});
  read_attention_bias(file, model);
  const bool window = file.flag("use_sliding_window", false) && file.has("sliding_window");
  file.require(!window, "use_sliding_window", "use false: its windows are in the layers that do not rotate, which is not read");
  read_only_window(file, false, {}, model);
  if (const int64_t every = read_no_rotary_every(file, model["layers"].get<int64_t>(), 4); every > 0)
    model["no_rotary_every"] = every;
  return model;
}

std::string smollm3_obstacle(const model::Description& d) {
  model::Description rest = without_attention_bias(d);
  rest.no_rotary_every = 0;
  return llama_like_obstacle(rest, {});
}

void write_smollm3(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  json["attention_bias"] = d.qkv_bias;
  json["mlp_bias"] = false;
  json["no_rope_layers"] = rotating_layers(d.layers, d.no_rotary_every);
  json["pad_token_id"] = nullptr;
}

}  // namespace

Architecture smollm3() {
  return {.model_type = "smollm3",
          .class_name = "SmolLM3ForCausalLM",
          .prefix = "model.",
          .read = read_smollm3,
          .obstacle = smollm3_obstacle,
          .write = write_smollm3,
          .weights = llama_like_weights};
}

}  // namespace trivet::hugging_face
