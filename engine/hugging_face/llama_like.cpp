#include "engine/hugging_face/llama_like.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace trivet::hugging_face {
namespace {

// transformers 4 has rope_theta and rope_scaling, transformers 5 has both in rope_parameters.
void read_rotary(ConfigFile& file, double fallback_base, OrderedJson& model) {
  double base = file.number("rope_theta", fallback_base);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    std::optional<ConfigFile> scaling = file.object(key);
    if (!scaling) continue;
    base = scaling->number("rope_theta", base);
    const char* const type_key = scaling->has("rope_type") ? "rope_type" : "type";
    scaling->ignore({"rope_type", "type"});
    scaling->require(scaling->text(type_key, "default") == "default", type_key, "use \"default\"");
    scaling->finish();
  }
  model["rotary_base"] = base;
}

}  // namespace

OrderedJson read_llama_like(ConfigFile& file, const LlamaDefaults& defaults) {
  const int64_t hidden = file.count("hidden_size", defaults.hidden);
  const int64_t heads = file.count("num_attention_heads", defaults.heads);
  file.require(heads > 0, "num_attention_heads", "use at least 1");
  const int64_t stated = defaults.key_value_heads > 0 ? defaults.key_value_heads : heads;
  const int64_t head_size = file.count("head_dim", defaults.head_size > 0 ? defaults.head_size : hidden / heads);
  file.require(head_size > 0, "head_dim", "use at least 1");
  file.require(file.text("hidden_act", "silu") == "silu", "hidden_act", "use \"silu\"");
  OrderedJson model{{"type", "llama"},
                    {"layers", file.count("num_hidden_layers", defaults.layers)},
                    {"hidden_size", hidden},
                    {"heads", heads},
                    {"key_value_heads", file.count("num_key_value_heads", stated)},
                    {"feed_forward_size", file.count("intermediate_size", defaults.feed_forward)},
                    {"sequence_length", file.count("max_position_embeddings", defaults.positions)},
                    {"vocabulary", file.count("vocab_size", defaults.vocabulary)},
                    {"dropout", file.number("attention_dropout", 0.0)},
                    {"tied_embedding", file.flag("tie_word_embeddings", defaults.tied_embedding)},
                    {"norm_epsilon", file.number("rms_norm_eps", defaults.norm_epsilon)},
                    {"initializer_range", file.number("initializer_range", 0.02)}};
  // Their dropout acts on the probabilities of attention only.
  file.require(model["dropout"] == 0.0, "attention_dropout", "use 0; model.dropout of Trivet's config also drops residuals");
  if (head_size * heads != hidden) model["head_size"] = head_size;
  read_rotary(file, defaults.rotary_base, model);
  return model;
}

std::string llama_like_obstacle(const model::Description& d, const LlamaFeatures& features) {
  if (d.type != model::Type::Llama) return fmt::format("model.type is \"{}\"", name_of(d.type));
  if (d.qkv_bias != features.qkv_bias) return fmt::format("model.qkv_bias is {}", d.qkv_bias);
  return "";
}

void write_llama_like(const model::Description& d, OrderedJson& json) {
  json["vocab_size"] = d.vocabulary_size;
  json["hidden_size"] = d.hidden_size;
  json["intermediate_size"] = d.feed_forward_size;
  json["num_hidden_layers"] = d.layers;
  json["num_attention_heads"] = d.heads;
  json["num_key_value_heads"] = d.key_value_heads;
  json["head_dim"] = d.head_size;
  json["hidden_act"] = "silu";
  json["max_position_embeddings"] = d.sequence_length;
  json["initializer_range"] = d.initializer_range;
  json["rms_norm_eps"] = d.norm_epsilon;
  json["tie_word_embeddings"] = d.tied_embedding;
  json["rope_theta"] = d.rotary_base;
  json["attention_dropout"] = 0.0;
}

checkpoint::MappedSource::Table llama_like_weights(const model::Description& d) {
  checkpoint::MappedSource::Table table{{"embedding.tokens.weight", {{"model.embed_tokens.weight"}}},
                                        {"head.norm.gain", {{"model.norm.weight"}}}};
  if (!d.tied_embedding) table["head.weight"] = {{"lm_head.weight"}};
  const int64_t queries = d.heads * d.head_size, keys = d.key_value_heads * d.head_size;
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    table[ours + "norm1.gain"] = {{theirs + "input_layernorm.weight"}};
    for (const char* kind : {"weight", "bias"})
      if (kind == std::string_view("weight") || d.qkv_bias)
        table[ours + "attention.qkv." + kind] = {{theirs + "self_attn.q_proj." + kind, 0, queries},
                                                 {theirs + "self_attn.k_proj." + kind, 0, keys},
                                                 {theirs + "self_attn.v_proj." + kind, 0, keys}};
    table[ours + "attention.out.weight"] = {{theirs + "self_attn.o_proj.weight"}};
    table[ours + "norm2.gain"] = {{theirs + "post_attention_layernorm.weight"}};
    table[ours + "mlp.gate_up.weight"] = {{theirs + "mlp.gate_proj.weight", 0, d.feed_forward_size},
                                          {theirs + "mlp.up_proj.weight", 0, d.feed_forward_size}};
    table[ours + "mlp.down.weight"] = {{theirs + "mlp.down_proj.weight"}};
  }
  return table;
}

}  // namespace trivet::hugging_face
