// A model is a list of layers. Pipelines cut it into stages, and ZeRO gathers one layer at a time.
//
//   "embedding", "blocks.0", "blocks.1", ..., "head"
//
// `build` makes GPT-2 and Llama style transformers from a description; you can also supply a list of your own layers. A
// parameter's full name is its layer's name, a dot, and its own name: "blocks.0.attention.qkv.weight". Initial values depend
// only on the seed and the full name. A model owns its layers; the layers own no tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/layer.h"

namespace trivet::model {

// Gpt has learned positions, LayerNorm, GELU and biases (Radford et al. 2019). Llama has rotary positions, RMSNorm, SwiGLU,
// grouped queries and no biases (Touvron et al. 2023).
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
  std::optional<Description> description;  // with all defaults filled in; none for a list of your own layers
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<std::string> names;  // one for each layer
  SampleSpec sample;
  double attention_flops_per_token = 0;  // forward and backward, without the products with parameters
};

// Throws ConfigError for sizes that do not fit together.
Model build(const Description& description);

// Throws ConfigError if `size` tensor ranks cannot share the model, naming what cannot be divided and which sizes would work.
// Query heads and feed-forward must divide evenly. Key/value heads must divide evenly, or several ranks must hold the same one.
// The vocabulary can be divided in any way.
void check_tensor_size(const Model& model, int size);
// Does the same if sums must not depend on `size`, a divisor of tensor_parallel::kSumChunks: then neighbours may not share
// units.
void check_fixed_sums(const Model& model, int size);

// Returns the full name of parameter `index` of layer `layer`.
std::string parameter_name(const Model& model, size_t layer, size_t index);

// Counts the elements of all parameters; tied ones count once.
int64_t parameter_count(const Model& model);

// Returns the floating-point operations of a training step per token, by the usual convention: 6 for each element of a matrix
// that multiplies activations (a table that is only looked up does not), and 6 layers x hidden x sequence for causal attention.
double flops_per_token(const Model& model);

}  // namespace trivet::model
