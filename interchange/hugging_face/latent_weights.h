// The keys and the weights of multi-head latent attention (model/latent_qkv.h), as DeepSeek's models and their descendants have
// them.
//
// Their heads begin with the plain elements, and their rotary elements are pairs of neighbours; ours begin with the rotary
// ones, whose pairs are (i, i + half). Scores do not depend on the order of a head's elements, so each row has its place here:
//
//   theirs  | plain | r0 r1 r2 r3 |        ours  | r0 r2 r1 r3 | plain |
#pragma once

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {

// The values that the keys have if config.json does not state them.
struct LatentDefaults {
  int64_t query_rank, key_value_rank, plain_size, rotary_size, value_size;
};

// Reads them into model["latent_attention"] and model["head_size"].
void read_latent_attention(ConfigFile& file, const LatentDefaults& defaults, OrderedJson& model);
// Says why attention, and all else but experts, cannot be stored so.
std::string latent_attention_obstacle(const model::Description& d);
void write_latent_attention(const model::Description& d, OrderedJson& json);
// Returns the table with the projections of all layers.
checkpoint::MappedSource::Table with_latent_weights(const model::Description& d, checkpoint::MappedSource::Table table);

}  // namespace trivet::hugging_face
