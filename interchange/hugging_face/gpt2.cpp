// GPT-2: learned positions, LayerNorm, GELU. Its projections are stored [inputs, outputs], the transpose of ours.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "interchange/hugging_face/architecture.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_gpt2(ConfigFile& file) {
  const int64_t hidden = file.size("n_embd", 768), positions = file.size("n_positions", 1024);
  const double dropout = file.number("resid_pdrop", 0.1);
  // Other names of the same keys.
  for (const auto& [name, usual] : {std::pair("hidden_size", "n_embd"), std::pair("max_position_embeddings", "n_positions"),
                                    std::pair("num_attention_heads", "n_head"), std::pair("num_hidden_layers", "n_layer")})
    if (file.has(name))
      file.require(file.has(usual) && file.count(name) == file.count(usual), name, fmt::format("use {}", usual));
  if (file.is("n_ctx", static_cast<double>(positions))) file.ignore({"n_ctx"});  // an old name; transformers does not read it
  for (const char* key : {"embd_pdrop", "attn_pdrop"})
    file.require(file.number(key, 0.1) == dropout, key, fmt::format("use {} as in resid_pdrop", dropout));
  const std::string activation = file.text("activation_function", "gelu_new");
  file.require(activation == "gelu_new" || activation == "gelu_pytorch_tanh", "activation_function",
               "use \"gelu_new\", the tanh form of GELU");
  file.require(file.flag("scale_attn_weights", true), "scale_attn_weights", "use true");
  file.require(!file.flag("scale_attn_by_inverse_layer_idx", false), "scale_attn_by_inverse_layer_idx", "use false");
  file.require(!file.flag("add_cross_attention", false), "add_cross_attention", "use false");
  file.ignore({"reorder_and_upcast_attn", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
               "summary_type", "summary_use_proj"});
  return {{"type", "gpt"},
          {"layers", file.size("n_layer", 12)},
          {"hidden_size", hidden},
          {"heads", file.size("n_head", 12)},
          {"feed_forward_size", file.size("n_inner", 4 * hidden)},
          {"sequence_length", positions},
          {"vocabulary", file.size("vocab_size", 50257)},
          {"dropout", dropout},
          {"tied_embedding", file.flag("tie_word_embeddings", true)},
          {"norm_epsilon", file.number("layer_norm_epsilon", 1e-5)},
          {"initializer_range", file.number("initializer_range", 0.02)}};
}

std::string gpt2_obstacle(const model::Description& d) {
  if (d.type != model::Type::Gpt) return fmt::format("model.type is \"{}\"", name_of(d.type));
  if (!d.bias) return "model.bias is false";
  if (d.attention_window > 0) return fmt::format("model.attention_window is {}", d.attention_window);
  if (d.head_size * d.heads != d.hidden_size) return fmt::format("model.head_size is {}", d.head_size);
  if (d.key_value_heads != d.heads) return fmt::format("model.key_value_heads is {}", d.key_value_heads);
  return "";
}

void write_gpt2(const model::Description& d, OrderedJson& json) {
  json["vocab_size"] = d.vocabulary_size;
  json["n_positions"] = d.sequence_length;
  json["n_embd"] = d.hidden_size;
  json["n_layer"] = d.layers;
  json["n_head"] = d.heads;
  json["n_inner"] = d.feed_forward_size;
  json["activation_function"] = "gelu_new";
  json["layer_norm_epsilon"] = d.norm_epsilon;
  json["initializer_range"] = d.initializer_range;
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json[key] = d.dropout;
  json["tie_word_embeddings"] = d.tied_embedding;
}

checkpoint::MappedSource::Table gpt2_weights(const model::Description& d) {
  checkpoint::MappedSource::Table table{{"embedding.tokens.weight", {{"transformer.wte.weight"}}},
                                        {"embedding.positions.weight", {{"transformer.wpe.weight"}}},
                                        {"head.norm.gain", {{"transformer.ln_f.weight"}}},
                                        {"head.norm.bias", {{"transformer.ln_f.bias"}}}};
  if (!d.tied_embedding) table["head.weight"] = {{"lm_head.weight"}};
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("transformer.h.{}.", i);
    const auto norm = [&](const char* our_name, const char* their_name) {
      table[ours + our_name + ".gain"] = {{theirs + their_name + ".weight"}};
      table[ours + our_name + ".bias"] = {{theirs + their_name + ".bias"}};
    };
    const auto projection = [&](const char* our_name, const char* their_name) {
      table[ours + our_name + ".weight"] = {{.tensor = theirs + their_name + ".weight", .transposed = true}};
      table[ours + our_name + ".bias"] = {{theirs + their_name + ".bias"}};
    };
    norm("norm1", "ln_1");
    projection("attention.qkv", "attn.c_attn");
    projection("attention.out", "attn.c_proj");
    norm("norm2", "ln_2");
    projection("mlp.up", "mlp.c_fc");
    projection("mlp.down", "mlp.c_proj");
  }
  return table;
}

}  // namespace

Architecture gpt2() {
  return {.model_type = "gpt2",
          .class_name = "GPT2LMHeadModel",
          .prefix = "transformer.",
          .read = read_gpt2,
          .obstacle = gpt2_obstacle,
          .write = write_gpt2,
          .weights = gpt2_weights};
}

}  // namespace trivet::hugging_face
