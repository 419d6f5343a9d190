// Granite: Llama with factors of embeddings, scores of attention, residuals and logits.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {
namespace {

double positive(ConfigFile& file, const char* key) {
  const double number = file.number(key, 1.0);
  file.require(number > 0, key, "use a number greater than 0");
  return number;
}

// Scores are multiplied by attention_multiplier there, and divided by the square root of query_scale_size here. The square of a
// decimal fraction is not exact, so a size next to a whole number is that number.
double query_scale_size(double multiplier) {
  const double size = 1 / (multiplier * multiplier), whole = std::round(size);
  return std::abs(size - whole) < 1e-12 * size ? whole : size;
}
double attention_multiplier(const model::Description& d) {
  const double size = d.query_scale_size > 0 ? d.query_scale_size : static_cast<double>(d.head_size);
  return std::stod(fmt::format("{:.15g}", 1 / std::sqrt(size)));  // 0.1, not 0.10000000000000002
}

OrderedJson read_granite(ConfigFile& file) {
  file.require(!file.flag("mlp_bias", false), "mlp_bias", "use false");
  note_dropout(file, {"attention_dropout"}, 0);
  OrderedJson model = read_llama_like(file, {.vocabulary = 32000,
                                             .hidden = 4096,
                                             .feed_forward = 11008,
                                             .layers = 32,
                                             .heads = 32,
                                             .positions = 2048,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e4,
                                             .notes_dropout = true});
  read_attention_bias(file, model);
  model["embedding_scale"] = positive(file, "embedding_multiplier");
  model["residual_scale"] = positive(file, "residual_multiplier");
  model["logits_scaling"] = positive(file, "logits_scaling");
  const int64_t heads = model["heads"].get<int64_t>(), hidden = model["hidden_size"].get<int64_t>();
  const int64_t head_size = model.contains("head_size") ? model["head_size"].get<int64_t>() : hidden / heads;
  const double size = query_scale_size(positive(file, "attention_multiplier"));
  if (size != static_cast<double>(head_size)) model["query_scale_size"] = size;
  return model;
}

std::string granite_obstacle(const model::Description& d) {
  model::Description rest = without_attention_bias(d);
  rest.embedding_scale = rest.residual_scale = rest.logits_scaling = 1;
  rest.query_scale_size = 0;
  return llama_like_obstacle(rest, {});
}

void write_granite(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  json["attention_bias"] = d.qkv_bias;
  json["mlp_bias"] = false;
  json["embedding_multiplier"] = d.embedding_scale;
  json["attention_multiplier"] = attention_multiplier(d);
  json["residual_multiplier"] = d.residual_scale;
  json["logits_scaling"] = d.logits_scaling;
}

}  // namespace

Architecture granite() {
  return {.model_type = "granite",
          .class_name = "GraniteForCausalLM",
          .prefix = "model.",
          .read = read_granite,
          .obstacle = granite_obstacle,
          .write = write_granite,
          .weights = llama_like_weights};
}

}  // namespace trivet::hugging_face
