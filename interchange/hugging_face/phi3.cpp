// Phi-3: Llama whose projections are stored fused, as ours are. It may rotate only a part of each head and may have a window.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_phi3(ConfigFile& file) {
  OrderedJson model = read_llama_like(file, {.vocabulary = 32064,
                                             .hidden = 3072,
                                             .feed_forward = 8192,
                                             .layers = 32,
                                             .heads = 32,
                                             .positions = 4096,
                                             .norm_epsilon = 1e-5,
                                             .rotary_base = 1e4,
                                             .original_positions = 4096,
                                             .only_longrope = true,
                                             .rotary_share = true});
  for (const char* key : {"resid_pdrop", "embd_pdrop"}) file.require(file.number(key, 0.0) == 0, key, "use 0");
  read_window(file, 0, model);
  return model;
}

std::string phi3_obstacle(const model::Description& d) {
  return llama_like_obstacle(d, {.window = true, .rotary_share = true, .only_longrope = true});
}

// Writes as the published files do, which older transformers demand: three keys, unless others say something else.
void write_longrope(const model::Description& d, OrderedJson& json) {
  OrderedJson& scaling = json["rope_scaling"];
  json["original_max_position_embeddings"] = d.rotary_scaling.original_length;
  scaling.erase("original_max_position_embeddings");
  scaling.erase("rope_type");
  scaling["type"] = "longrope";
  const double longer = static_cast<double>(d.sequence_length) / static_cast<double>(d.rotary_scaling.original_length);
  if (d.rotary_scaling.factor == std::max(1.0, longer)) scaling.erase("factor");
}

void write_phi3(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  json["partial_rotary_factor"] = d.rotary_share;
  json["pad_token_id"] = nullptr;
  if (json.contains("rope_scaling")) write_longrope(d, json);
  if (d.attention_window > 0) json["sliding_window"] = d.attention_window;
}

checkpoint::MappedSource::Table phi3_weights(const model::Description& d) {
  checkpoint::MappedSource::Table table = llama_like_weights(d);
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    table[ours + "attention.qkv.weight"] = {{theirs + "self_attn.qkv_proj.weight"}};
    table[ours + "mlp.gate_up.weight"] = {{theirs + "mlp.gate_up_proj.weight"}};
  }
  return table;
}

}  // namespace

Architecture phi3() {
  return {.model_type = "phi3",
          .class_name = "Phi3ForCausalLM",
          .prefix = "model.",
          .read = read_phi3,
          .obstacle = phi3_obstacle,
          .write = write_phi3,
          .weights = phi3_weights};
}

}  // namespace trivet::hugging_face
