// OLMo 2: Llama with norms after attention and MLP instead of before, and norms of whole projections to queries and keys.
// OLMo 3 also has windows in most layers, whose rotary frequencies are not scaled.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "interchange/hugging_face/layer_patterns.h"
#include "interchange/hugging_face/norms_after.h"

namespace trivet::hugging_face {
namespace {

constexpr double kRotaryBase3 = 5e5;  // base of OLMo 3

OrderedJson read_olmo(ConfigFile& file, double rotary_base, double window_rotary_base) {
  OrderedJson model = read_llama_like(file, {.vocabulary = 50304,
                                             .hidden = 4096,
                                             .feed_forward = 11008,
                                             .layers = 32,
                                             .heads = 32,
                                             .positions = 2048,
                                             .norm_epsilon = 1e-5,
                                             .rotary_base = rotary_base,
                                             .window_rotary_base = window_rotary_base});
  read_attention_bias(file, model);
  add_norms_after(model);
  model["qk_norm"] = true;
  model["qk_norm_over"] = "projection";
  return model;
}

OrderedJson read_olmo2(ConfigFile& file) { return read_olmo(file, 1e4, 0); }

// Versions of transformers differ in what a rope_theta at the top of the file means for layers with a window.
OrderedJson read_olmo3(ConfigFile& file) {
  file.require(!file.has("rope_local_base_freq"), "rope_local_base_freq", "use rope_parameters");
  file.require(!file.has("rope_theta") || file.has("rope_parameters") || file.is("rope_theta", kRotaryBase3), "rope_theta",
               fmt::format("use {}, or rope_parameters with a rope_theta for full_attention and one for sliding_attention",
                           kRotaryBase3));
  OrderedJson model = read_olmo(file, kRotaryBase3, kRotaryBase3);
  const int64_t every = read_full_attention_every(file, model["layers"].get<int64_t>(), 4, false);
  if (every == 1) {
    file.ignore({"sliding_window"});
    model.erase("window_rotary_base");
    return model;
  }
  read_window(file, 4096, model);
  file.require(model.contains("attention_window"), "sliding_window", "use a number of at least 1");
  model["full_attention_every"] = every;
  return model;
}

// Returns why such a model cannot be stored as an OLMo, apart from its windows.
std::string olmo_obstacle(const model::Description& d, bool window) {
  model::Description rest;
  if (std::string obstacle = norms_after_obstacle(d, rest); !obstacle.empty()) return obstacle;
  if (d.qk_norm && d.qk_norm_over != model::QkNormSpan::Projection)
    return fmt::format("model.qk_norm_over is \"{}\"", name_of(d.qk_norm_over));
  rest = without_attention_bias(rest);
  rest.qk_norm_over = model::QkNormSpan::Head;
  if (window) rest.full_attention_every = 0, rest.window_rotary_base = 0;
  return llama_like_obstacle(rest, {.qk_norm = true, .window = window});
}

std::string olmo2_obstacle(const model::Description& d) { return olmo_obstacle(d, false); }

std::string olmo3_obstacle(const model::Description& d) {
  if (std::string obstacle = olmo_obstacle(d, true); !obstacle.empty()) return obstacle;
  if (d.attention_window == 0) return "model.attention_window is 0";
  return d.window_rotary_base == 0 ? "model.window_rotary_base is 0" : "";
}

void write_olmo2(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  json["attention_bias"] = d.qkv_bias;
  json["pad_token_id"] = nullptr;
}

// With the usual bases, as versions 4 and 5 of transformers read them; otherwise as version 5 does.
void write_olmo3(const model::Description& d, OrderedJson& json) {
  write_olmo2(d, json);
  json["sliding_window"] = d.attention_window;
  json["layer_types"] = layer_types(d.layers, d.full_attention_every);
  if (d.rotary_base == kRotaryBase3 && d.window_rotary_base == kRotaryBase3) return;
  OrderedJson full = json.contains("rope_scaling") ? json["rope_scaling"] : OrderedJson{{"rope_type", "default"}};
  full["rope_theta"] = d.rotary_base;
  json.erase("rope_scaling");
  json.erase("rope_theta");
  json["rope_parameters"] = {{"full_attention", full},
                             {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", d.window_rotary_base}}}};
}

}  // namespace

Architecture olmo2() {
  return {.model_type = "olmo2",
          .class_name = "Olmo2ForCausalLM",
          .prefix = "model.",
          .read = read_olmo2,
          .obstacle = olmo2_obstacle,
          .write = write_olmo2,
          .weights = weights_with_norms_after};
}

Architecture olmo3() {
  return {.model_type = "olmo3",
          .class_name = "Olmo3ForCausalLM",
          .prefix = "model.",
          .read = read_olmo3,
          .obstacle = olmo3_obstacle,
          .write = write_olmo3,
          .weights = weights_with_norms_after};
}

}  // namespace trivet::hugging_face
