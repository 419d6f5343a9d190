// A model is a list of layers. Pipelines cut it into stages, and ZeRO gathers one layer at a time.
//
//   "embedding", "blocks.0", "blocks.1", ..., "head"
//
// `build` makes a model of a family (model/family.h) from its description; you can also supply a list of your own layers. A
// parameter's full name is its layer's name, a dot, and its own name: "blocks.0.attention.qkv.weight". Initial values depend
// only on the seed and the full name. A model owns its layers; the layers own no tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/layer.h"
#include "model/description.h"

namespace trivet::model {

struct Model {
  std::optional<Description> description;  // with all defaults filled in; none for a list of your own layers
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<std::string> names;  // one for each layer
  SampleSpec sample;
  double attention_flops_per_token = 0;  // forward and backward, without the products with parameters
};

// Throws ConfigError for sizes that do not fit together.
Model build(const Description& description);

// Throws ConfigError if `size` tensor ranks cannot share the model, naming what cannot be divided and which sizes would work
// (tensor_problem). For a list of your own layers it asks the splits of their parameters.
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
