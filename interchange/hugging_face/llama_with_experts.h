// The part that the descendants of Llama with mixtures of experts have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {

// The names of a layer's experts, which follow "model.layers.0.": "block_sparse_moe.experts.3.w1.weight".
struct ExpertNames {
  const char *block, *gate, *up, *down;
  const char* shared = "";  // name of the MLP that computes every token: "shared_experts"
};
inline constexpr ExpertNames kNamesOfQwen{.block = "mlp", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"};

// The features of routers that Mixtral's lack. Every model has them, but for `rule`, which says more.
struct RouterFeatures {
  bool shared = false, shared_gate = false, correction_bias = false;
  kernels::ExpertScore score = kernels::ExpertScore::Softmax;
  bool rule = false;  // a model may have groups of experts, and a scale
};

// Reads the keys that all of them have into model["experts"]. `experts`, `chosen`: in each layer and for each token, if the
// file does not say it.
void read_experts(ConfigFile& file, int64_t experts, int64_t chosen, OrderedJson& model);
// Returns the layers without experts, by the keys of Qwen. `dense_type`: the type of a model without any.
std::vector<int64_t> read_layers_of_qwen(ConfigFile& file, int64_t layers, const std::string& dense_type);
// Says what a router does that it does not do in this architecture, or the other way round.
std::string experts_obstacle(const model::Description& d, const RouterFeatures& features = {});
checkpoint::MappedSource::Table weights_with_experts(const model::Description& d, const ExpertNames& names);
// The names are the same for all architectures, but for that of the MLP that computes every token.
checkpoint::MappedSource::Table weights_with_fused_experts(const model::Description& d);
checkpoint::MappedSource::Table weights_with_fused_experts(const model::Description& d, const char* shared);

}  // namespace trivet::hugging_face
