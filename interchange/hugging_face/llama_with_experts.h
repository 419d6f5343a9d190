// The part that the descendants of Llama with mixtures of experts have in common.
#pragma once

#include <cstdint>

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {

// The names of a layer's experts, which follow "model.layers.0.": "block_sparse_moe.experts.3.w1.weight".
struct ExpertNames {
  const char *block, *gate, *up, *down;
};

// Reads the keys that all of them have into model["experts"]. `experts`, `chosen`: in each layer and for each token, if the
// file does not say it.
void read_experts(ConfigFile& file, int64_t experts, int64_t chosen, OrderedJson& model);
// Names the rules of routers that none of them has.
std::string experts_obstacle(const model::Description& d);
checkpoint::MappedSource::Table weights_with_experts(const model::Description& d, const ExpertNames& names);
// The names are the same for all architectures.
checkpoint::MappedSource::Table weights_with_fused_experts(const model::Description& d);

}  // namespace trivet::hugging_face
