// A model is a list of layers: what pipelines cut into stages and ZeRO gathers one by one.
//
//   "embedding", "blocks.0", "blocks.1", ..., "head"
//
// `build` makes GPT-2 and Llama style transformers from a description; a list of one's own layers serves as well. A parameter's
// full name is its layer's name, a dot, and its own: "blocks.0.attention.qkv.weight". Initial values depend on seed and full
// name alone. A model owns its layers, the layers own no tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/layer.h"

namespace trivet::model {

// Gpt: learned positions, LayerNorm, GELU, biases (Radford et al. 2019). Llama: rotary positions, RMSNorm, SwiGLU, grouped
// queries, no biases (Touvron et al. 2023).
enum class Type { Gpt, Llama };

struct Description {
  Type type = Type::Gpt;
  int64_t layers = 12, hidden = 768, heads = 12;
  int64_t key_value_heads = 0;  // 0: as many as heads
  int64_t feed_forward = 0;     // 0: 4 hidden for gpt; 8/3 hidden, rounded up to a multiple of 32, for llama
  int64_t sequence_length = 1024, vocabulary_size = 0;
  double dropout = 0;  // on embeddings, attention probabilities and residuals
  bool tied_embedding = true;
  bool bias = true;  // gpt: of projections and norms
  double norm_epsilon = 1e-5;
  double rotary_base = 10000.0;     // llama
  double initializer_range = 0.02;  // standard deviation; projections into the residual stream: divided by sqrt(2 layers)
};

struct Model {
  std::optional<Description> description;  // without defaults left open; none for a list of one's own layers
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<std::string> names;  // one for each layer
  int64_t vocabulary_size = 0, sequence_length = 0;
  double attention_flops_per_token = 0;  // of forward and backward, besides the parameters' products
};

// Throws ConfigError for sizes that do not fit together.
Model build(const Description& description);

// Throws ConfigError, naming what does not divide and what would, when `size` tensor ranks cannot share the model: query heads
// and feed-forward divide evenly, key/value heads evenly or into ranks that hold the same one, the vocabulary in any way.
void check_tensor_size(const Model& model, int size);
// Likewise where sums must not depend on `size`, a divisor of tensor_parallel::kSumChunks: neighbours may not share units.
void check_fixed_sums(const Model& model, int size);

// Full name of parameter `index` of layer `layer`.
std::string parameter_name(const Model& model, size_t layer, size_t index);

// Elements of all parameters; tied ones count once.
int64_t parameter_count(const Model& model);

// Floating-point operations of a training step per token, by the field's convention: 6 for each element of a matrix that
// multiplies activations (a table that is only looked up does not), and 6 layers x hidden x sequence for causal attention.
double flops_per_token(const Model& model);

}  // namespace trivet::model
