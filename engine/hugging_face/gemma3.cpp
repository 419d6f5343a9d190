// Gemma 3, of text: norms before and after attention and MLP, norms of queries and keys, GEGLU, scaled embeddings, and windows
// in most layers, which have a rotary base of their own. The gains of its norms are stored less 1.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/hugging_face/llama_like.h"

namespace trivet::hugging_face {
namespace {

constexpr int64_t kUsualPattern = 6;

std::vector<std::string> layer_types(int64_t layers, int64_t full_every) {
  std::vector<std::string> types;
  for (int64_t i = 1; i <= layers; ++i)
    types.emplace_back(full_every > 0 && i % full_every == 0 ? "full_attention" : "sliding_attention");
  return types;
}

// Every how many layers one has no window; 0: all have one.
int64_t read_pattern(ConfigFile& file, int64_t layers) {
  const std::vector<std::string> types = file.texts("layer_types");
  if (types.empty()) {
    const int64_t every = file.count("sliding_window_pattern", kUsualPattern);
    return every > layers ? 0 : every;
  }
  file.ignore({"sliding_window_pattern", "_sliding_window_pattern"});
  const auto first = std::find(types.begin(), types.end(), "full_attention");
  const int64_t every = first == types.end() ? 0 : first - types.begin() + 1;
  file.require(types.size() == static_cast<size_t>(layers) && types == layer_types(layers, every), "layer_types",
               fmt::format("use {} values, \"sliding_attention\" except for \"full_attention\" in every n-th layer", layers));
  return every;
}

OrderedJson read_gemma3(ConfigFile& file) {
  file.require(!file.flag("attention_bias", false), "attention_bias", "use false");
  file.require(!file.flag("use_bidirectional_attention", false), "use_bidirectional_attention", "use false");
  for (const char* key : {"final_logit_softcapping", "attn_logit_softcapping"})
    file.require(!file.has(key), key, "use null: logits without a soft limit");
  file.ignore({"final_logit_softcapping", "attn_logit_softcapping"});
  OrderedJson model = read_llama_like(file, {.vocabulary = 262208,
                                             .hidden = 2304,
                                             .feed_forward = 9216,
                                             .layers = 26,
                                             .heads = 8,
                                             .key_value_heads = 4,
                                             .head_size = 256,
                                             .positions = 131072,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e6,
                                             .window_rotary_base = 1e4,
                                             .tied_embedding = true,
                                             .activation_key = "hidden_activation",
                                             .activation = "gelu_pytorch_tanh"});
  const int64_t hidden = model["hidden_size"].get<int64_t>();
  const int64_t head_size =
      model.contains("head_size") ? model["head_size"].get<int64_t>() : hidden / model["heads"].get<int64_t>();
  file.require(file.count("query_pre_attn_scalar", 256) == head_size, "query_pre_attn_scalar",
               fmt::format("use {} as in head_dim", head_size));
  read_window(file, 4096, model);
  file.require(model.contains("attention_window"), "sliding_window", "use a number of at least 1");
  model["full_attention_every"] = read_pattern(file, model["layers"].get<int64_t>());
  model["qk_norm"] = true;
  model["post_norm"] = true;
  model["gate_activation"] = "gelu";
  model["embedding_scale"] = std::sqrt(static_cast<double>(hidden));
  return model;
}

std::string gemma3_obstacle(const model::Description& d) {
  if (d.type != model::Type::Llama) return fmt::format("model.type is \"{}\"", name_of(d.type));
  if (!d.post_norm) return "model.post_norm is false";
  if (d.gate_activation != model::GateActivation::Gelu) return "model.gate_activation is \"silu\"";
  if (d.embedding_scale != std::sqrt(static_cast<double>(d.hidden_size)))
    return fmt::format("model.embedding_scale is {}, not the square root of model.hidden_size", d.embedding_scale);
  if (d.attention_window == 0) return "model.attention_window is 0";
  if (d.window_rotary_base == 0) return "model.window_rotary_base is 0";
  model::Description rest = d;
  rest.post_norm = false;
  rest.gate_activation = model::GateActivation::Silu;
  rest.embedding_scale = 1;
  rest.full_attention_every = 0;
  rest.window_rotary_base = 0;
  return llama_like_obstacle(rest, {.qk_norm = true, .window = true});
}

void write_gemma3(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  json.erase("hidden_act");
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json["query_pre_attn_scalar"] = d.head_size;
  json["rope_local_base_freq"] = d.window_rotary_base;
  json["sliding_window"] = d.attention_window;
  json["layer_types"] = layer_types(d.layers, d.full_attention_every);
  json["pad_token_id"] = nullptr;
}

checkpoint::MappedSource::Table gemma3_weights(const model::Description& d) {
  checkpoint::MappedSource::Table table = llama_like_weights(d);
  const auto gain = [&](const std::string& ours, const std::string& theirs) {
    table[ours + ".gain"] = {{.tensor = theirs + ".weight", .plus = 1}};
  };
  gain("head.norm", "model.norm");
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    gain(ours + "norm1", theirs + "input_layernorm");
    gain(ours + "attention.query_norm", theirs + "self_attn.q_norm");
    gain(ours + "attention.key_norm", theirs + "self_attn.k_norm");
    gain(ours + "post_norm1", theirs + "post_attention_layernorm");
    gain(ours + "norm2", theirs + "pre_feedforward_layernorm");
    gain(ours + "post_norm2", theirs + "post_feedforward_layernorm");
  }
  return table;
}

}  // namespace

Architecture gemma3() {
  return {.model_type = "gemma3_text",
          .class_name = "Gemma3ForCausalLM",
          .prefix = "model.",
          .read = read_gemma3,
          .obstacle = gemma3_obstacle,
          .write = write_gemma3,
          .weights = gemma3_weights};
}

}  // namespace trivet::hugging_face
