// EXAONE 4: Llama with norms after attention and MLP instead of before, and norms of queries and keys. Most layers may have a
// window; the others then do not rotate queries and keys.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "interchange/hugging_face/layer_patterns.h"
#include "interchange/hugging_face/norms_after.h"

namespace trivet::hugging_face {
namespace {

void read_windows_without_rotation(ConfigFile& file, OrderedJson& model) {
  const int64_t layers = model["layers"].get<int64_t>();
  if (file.is_null("sliding_window")) {
    file.ignore({"sliding_window_pattern"});
    file.require(file.has("layer_types"), "layer_types", "list \"full_attention\" for each layer, as sliding_window is null");
    layers_slide(file, layers, false);
    return;
  }
  read_window(file, 4096, model);
  const int64_t every = read_full_attention_every(file, layers, 4, true);
  model["full_attention_every"] = every;
  model["no_rotary_every"] = every;
}

OrderedJson read_exaone4(ConfigFile& file) {
  OrderedJson model = read_llama_like(file, {.vocabulary = 102400,
                                             .hidden = 4096,
                                             .feed_forward = 16384,
                                             .layers = 32,
                                             .heads = 32,
                                             .key_value_heads = 32,
                                             .positions = 2048,
                                             .norm_epsilon = 1e-5,
                                             .rotary_base = 1e4});
  add_norms_after(model);
  model["qk_norm"] = true;
  read_windows_without_rotation(file, model);
  return model;
}

std::string exaone4_obstacle(const model::Description& d) {
  model::Description rest;
  if (std::string obstacle = norms_after_obstacle(d, rest); !obstacle.empty()) return obstacle;
  const int64_t full_every = d.attention_window > 0 ? d.full_attention_every : 0;
  if (d.no_rotary_every != full_every)
    return fmt::format("model.no_rotary_every is {}, not {} as the layers without a window", d.no_rotary_every, full_every);
  rest.no_rotary_every = 0;
  rest.full_attention_every = 0;
  return llama_like_obstacle(rest, {.qk_norm = true, .window = true});
}

void write_exaone4(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  const bool window = d.attention_window > 0;
  if (window)
    json["sliding_window"] = d.attention_window;
  else
    json["sliding_window"] = nullptr;
  json["layer_types"] = layer_types(d.layers, window ? d.full_attention_every : 1);
}

}  // namespace

Architecture exaone4() {
  return {.model_type = "exaone4",
          .class_name = "Exaone4ForCausalLM",
          .prefix = "model.",
          .read = read_exaone4,
          .obstacle = exaone4_obstacle,
          .write = write_exaone4,
          .weights = weights_with_norms_after};
}

}  // namespace trivet::hugging_face
