// Dots 1: the attention of Qwen 3 and the experts of DeepSeek-V3.
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/deepseek_experts.h"

namespace trivet::hugging_face {
namespace {

constexpr int64_t kFullLayers = 62;  // max_window_layers, if the file does not state it

// Layers from max_window_layers on have a window; layer_types may say it.
void read_windows(ConfigFile& file, OrderedJson& model) {
  const bool window = !file.is_null("sliding_window");
  const int64_t layers = model["layers"].get<int64_t>();
  const bool stated = file.has("layer_types") || file.has("max_window_layers");
  file.require(stated || !window || layers <= kFullLayers, "num_hidden_layers",
               "state layer_types or max_window_layers: all layers must have the same window");
  if (stated && layers_slide(file, layers, window))
    read_window(file, 4096, model);
  else
    file.ignore({"sliding_window", "max_window_layers"});
}

OrderedJson read_dots1(ConfigFile& file) {
  file.require(!file.flag("attention_bias", false), "attention_bias", "use false");
  OrderedJson model = read_llama_like(file, {.vocabulary = 152064,
                                             .hidden = 4608,
                                             .feed_forward = 10944,
                                             .layers = 62,
                                             .heads = 32,
                                             .key_value_heads = 32,
                                             .positions = 2048,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e4});
  model["qk_norm"] = true;
  read_windows(file, model);
  read_deepseek_experts(file, {}, model);
  return model;
}

std::string dots1_obstacle(const model::Description& d) {
  std::string obstacle = llama_like_obstacle(d, {.qk_norm = true, .window = true, .experts = true});
  return obstacle.empty() ? deepseek_experts_obstacle(d) : obstacle;
}

void write_dots1(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  write_deepseek_experts(d, json);
  json["attention_bias"] = false;
  json["max_window_layers"] = d.attention_window > 0 ? 0 : d.layers;
  if (d.attention_window > 0)
    json["sliding_window"] = d.attention_window;
  else
    json["sliding_window"] = nullptr;
}

}  // namespace

Architecture dots1() {
  return {.model_type = "dots1",
          .class_name = "Dots1ForCausalLM",
          .prefix = "model.",
          .read = read_dots1,
          .obstacle = dots1_obstacle,
          .write = write_dots1,
          .weights = deepseek_weights,
          .fused_weights = fused_deepseek_weights};
}

}  // namespace trivet::hugging_face
