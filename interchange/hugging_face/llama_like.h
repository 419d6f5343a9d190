// The part that the descendants of Llama have in common: most of their keys, and the names of their tensors.
#pragma once

#include <cstdint>
#include <optional>

#include "interchange/hugging_face/architecture.h"

namespace trivet::hugging_face {

// The values that an architecture's keys have if config.json does not state them.
struct LlamaDefaults {
  int64_t vocabulary, hidden, feed_forward, layers, heads;
  int64_t key_value_heads = 0;  // 0: as many as heads
  int64_t head_size = 0;        // 0: hidden / heads
  int64_t positions;
  double norm_epsilon, rotary_base;
  double window_rotary_base = 0;   // 0: layers with a window have no base of their own
  int64_t original_positions = 0;  // in the first training; 0: the file or its rotary keys state them, or none exist
  bool tied_embedding = false;
  bool only_longrope = false;      // the rotary scaling that it may have
  bool rotary_share = false;       // it may rotate a part of each head
  double usual_share = 1;          // that part
  bool query_temperature = false;  // its rotary keys say how queries are scaled by position
  bool notes_dropout = false;      // its published files state dropout, which a note tells (note_dropout)
  const char *activation_key = "hidden_act", *activation = "silu";
};

// The features of a descendant that Llama itself lacks.
struct LlamaFeatures {
  bool qkv_bias = false, qk_norm = false;  // every model has them
  // A model may have them:
  bool window = false, rotary_share = false;
  bool only_longrope = false;  // and no other rotary scaling
  bool experts = false;        // llama_with_experts.h; its own function says which
  bool latent_attention = false;
};

// Reads the common keys and returns the section "model".
OrderedJson read_llama_like(ConfigFile& file, const LlamaDefaults& defaults);
// Reads rates of dropout, of which a note tells that training has none of it. `fallback`: if a key is absent.
void note_dropout(ConfigFile& file, std::initializer_list<const char*> keys, double fallback);
// Reads attention_bias: all projections of attention have biases, or none has.
void read_attention_bias(ConfigFile& file, OrderedJson& model);
// The model without these biases, if it has all of them.
model::Description without_attention_bias(model::Description d);
// Reads sliding_window into the section "model": of all layers; null: none.
void read_window(ConfigFile& file, std::optional<int64_t> fallback, OrderedJson& model);
// The same for a class that knows no other keys of windows. `window`: the model may have one.
void read_only_window(ConfigFile& file, bool window, std::optional<int64_t> fallback, OrderedJson& model);
// Checks whether all layers have a window, by layer_types or max_window_layers; layers that differ are refused.
// `window`: the model has one.
bool layers_slide(ConfigFile& file, int64_t layers, bool window);
// Reads the keys of the Qwen models that say which layers have a window: all or none.
void read_windows_of_layers(ConfigFile& file, OrderedJson& model);
void write_windows_of_layers(const model::Description& d, OrderedJson& json);
std::string llama_like_obstacle(const model::Description& d, const LlamaFeatures& features);
void write_llama_like(const model::Description& d, OrderedJson& json);
// Leaves out the experts.
checkpoint::MappedSource::Table llama_like_weights(const model::Description& d);

}  // namespace trivet::hugging_face
