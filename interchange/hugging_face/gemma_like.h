// The part that Gemma 2 and 3 have in common beyond Llama: norms before and after attention and MLP, GEGLU, scaled embeddings,
// and windows in most layers. The gains of their norms are stored less 1.
#pragma once

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {

// Keys of limits.
inline constexpr const char* kScoresCap = "attn_logit_softcapping";
inline constexpr const char* kLogitsCap = "final_logit_softcapping";

// Adds what read_llama_like does not read. `pattern`: every how many layers one has no window, if layer_types does not say;
// with `reads_pattern`, sliding_window_pattern may.
void read_gemma_like(ConfigFile& file, int64_t pattern, bool reads_pattern, OrderedJson& model);
// The limit of attention's scores or of the logits; 0: none, which is null in the file. `fallback`: if the key is absent.
double read_soft_cap(ConfigFile& file, const char* key, double fallback);
// Returns why such a model cannot be stored as a Gemma. `rest`: its part in common with Llama, to be checked as such.
std::string gemma_obstacle(const model::Description& d, model::Description& rest);
void write_gemma_like(const model::Description& d, OrderedJson& json);
checkpoint::MappedSource::Table gemma_like_weights(const model::Description& d);

}  // namespace trivet::hugging_face
