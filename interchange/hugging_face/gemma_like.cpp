#include "interchange/hugging_face/gemma_like.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/layer_patterns.h"

namespace trivet::hugging_face {
namespace {

// Published files have an integer here.
OrderedJson whole_if_possible(double number) {
  const auto whole = static_cast<int64_t>(number);
  return static_cast<double>(whole) == number ? OrderedJson(whole) : OrderedJson(number);
}

}  // namespace

double read_soft_cap(ConfigFile& file, const char* key, double fallback) {
  if (file.is_null(key)) return 0;
  const double cap = file.number(key, fallback);
  file.require(!file.has(key) || cap > 0, key, "use a number greater than 0, or null for no limit");
  return cap;
}

void read_gemma_like(ConfigFile& file, int64_t pattern, bool reads_pattern, OrderedJson& model) {
  file.require(!file.flag("attention_bias", false), "attention_bias", "use false");
  file.require(!file.flag("use_bidirectional_attention", false), "use_bidirectional_attention", "use false");
  const int64_t hidden = model["hidden_size"].get<int64_t>();
  const int64_t head_size =
      model.contains("head_size") ? model["head_size"].get<int64_t>() : hidden / model["heads"].get<int64_t>();
  const double scale_size = file.number("query_pre_attn_scalar", 256.0);
  file.require(scale_size > 0, "query_pre_attn_scalar", "use a number greater than 0");
  if (scale_size != static_cast<double>(head_size)) model["query_scale_size"] = scale_size;
  if (!file.is("sliding_window", 0)) read_window(file, 4096, model);
  file.require(model.contains("attention_window"), "sliding_window", "use a number of at least 1");
  model["full_attention_every"] = read_full_attention_every(file, model["layers"].get<int64_t>(), pattern, reads_pattern);
  model["post_norm"] = true;
  model["gate_activation"] = "gelu";
  model["embedding_scale"] = std::sqrt(static_cast<double>(hidden));
}

std::string gemma_obstacle(const model::Description& d, model::Description& rest) {
  if (d.type != model::Type::Llama) return fmt::format("model.type is \"{}\"", name_of(d.type));
  if (!d.post_norm) return "model.post_norm is false";
  if (d.gate_activation != model::GateActivation::Gelu) return "model.gate_activation is \"silu\"";
  if (d.embedding_scale != std::sqrt(static_cast<double>(d.hidden_size)))
    return fmt::format("model.embedding_scale is {}, not the square root of model.hidden_size", d.embedding_scale);
  if (d.attention_window == 0) return "model.attention_window is 0";
  rest = d;
  rest.post_norm = false;
  rest.gate_activation = model::GateActivation::Silu;
  rest.embedding_scale = 1;
  rest.full_attention_every = 0;
  rest.query_scale_size = 0;
  return "";
}

void write_gemma_like(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  json.erase("hidden_act");
  json["hidden_activation"] = "gelu_pytorch_tanh";
  if (d.query_scale_size > 0)
    json["query_pre_attn_scalar"] = whole_if_possible(d.query_scale_size);
  else
    json["query_pre_attn_scalar"] = d.head_size;
  json["sliding_window"] = d.attention_window;
  json["layer_types"] = layer_types(d.layers, d.full_attention_every);
  json["pad_token_id"] = nullptr;
}

checkpoint::MappedSource::Table gemma_like_weights(const model::Description& d) {
  checkpoint::MappedSource::Table table = llama_like_weights(d);
  const auto gain = [&](const std::string& ours, const std::string& theirs) {
    table[ours + ".gain"] = {{.tensor = theirs + ".weight", .plus = 1}};
  };
  gain("head.norm", "model.norm");
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    gain(ours + "norm1", theirs + "input_layernorm");
    if (d.qk_norm) {
      gain(ours + "attention.query_norm", theirs + "self_attn.q_norm");
      gain(ours + "attention.key_norm", theirs + "self_attn.k_norm");
    }
    gain(ours + "post_norm1", theirs + "post_attention_layernorm");
    gain(ours + "norm2", theirs + "pre_feedforward_layernorm");
    gain(ours + "post_norm2", theirs + "post_feedforward_layernorm");
  }
  return table;
}

}  // namespace trivet::hugging_face
