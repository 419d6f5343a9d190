// Ministral 3: Mistral whose queries are scaled by their position (kernels/attention.h, Rotary).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_ministral3(ConfigFile& file) {
  file.require(file.has("rope_parameters") || file.has("rope_scaling"), "rope_parameters",
               "use an object with llama_4_scaling_beta and original_max_position_embeddings");
  OrderedJson model = read_llama_like(file, {.vocabulary = 131072,
                                             .hidden = 4096,
                                             .feed_forward = 14336,
                                             .layers = 34,
                                             .heads = 32,
                                             .key_value_heads = 8,
                                             .head_size = file.is_null("head_dim") ? 0 : 128,
                                             .positions = 262144,
                                             .norm_epsilon = 1e-5,
                                             .rotary_base = 1e4,
                                             .query_temperature = true});
  read_only_window(file, file.has("sliding_window"), 0, model);
  return model;
}

bool scaling_has_length(const model::Description& d) {
  return d.rotary_scaling.type != model::RotaryScalingType::None && d.rotary_scaling.type != model::RotaryScalingType::Linear;
}

// One key of the file has both lengths.
std::string ministral3_obstacle(const model::Description& d) {
  model::Description rest = d;
  rest.query_temperature = 0;
  if (std::string obstacle = llama_like_obstacle(rest, {.window = true}); !obstacle.empty()) return obstacle;
  if (d.query_temperature > 0 && scaling_has_length(d) && d.query_temperature_length != d.rotary_scaling.original_length)
    return fmt::format("model.query_temperature_length is {}, not model.rotary_scaling.original_length {}",
                       d.query_temperature_length, d.rotary_scaling.original_length);
  return "";
}

void write_ministral3(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  if (!json.contains("rope_scaling")) json["rope_scaling"] = {{"rope_type", "default"}};
  json["rope_scaling"]["llama_4_scaling_beta"] = d.query_temperature;
  if (!scaling_has_length(d)) json["rope_scaling"]["original_max_position_embeddings"] = d.query_temperature_length;
  if (d.attention_window > 0) json["sliding_window"] = d.attention_window;
  json["pad_token_id"] = nullptr;
}

}  // namespace

Architecture ministral3() {
  return {.model_type = "ministral3",
          .class_name = "Ministral3ForCausalLM",
          .prefix = "model.",
          .read = read_ministral3,
          .obstacle = ministral3_obstacle,
          .write = write_ministral3,
          .weights = llama_like_weights};
}

}  // namespace trivet::hugging_face
