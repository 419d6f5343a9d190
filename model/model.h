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
  std::optional<Description>
      description;  // with all defaults filled in; none for a list of your own layers: reset it if you change `layers`
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<std::string> names;  // one for each layer
  SampleSpec sample;
  // Floating-point operations of a sample, forward and backward, by the usual convention: 6 for each element of a matrix and
  // each token that it multiplies, and 6 layers x hidden x sequence^2 for causal attention (PaLM, Chowdhery et al. 2022,
  // appendix B, with half of the scores). 0: not stated; then flops_per_sample (count_flops.h) counts what the
  // kernels compute.
  double stated_flops_per_sample = 0;
};

// Throws ConfigError for sizes that do not fit together.
Model build(const Description& description);

// Throws ConfigError if `size` tensor ranks cannot share the model, naming what cannot be divided and which sizes would work
// (tensor_problem). For a list of your own layers it asks the splits of their parameters.
void check_tensor_size(const Model& model, int size);
// Does the same if sums must not depend on `size`: then it must divide tensor_parallel::kSumChunks, and neighbours may not
// share units.
void check_fixed_sums(const Model& model, int size);

// Returns why tensor ranks cannot share the tokens of a sample between blocks (sequence parallelism): "is not accepted by layer
// x ...", or "" if they can.
std::string token_split_problem(const Model& model, int size);

// Returns why the model cannot be trained on microbatches of `samples` samples: "layer x needs ..." (Layer::training_problem),
// or
// "" if it can.
std::string training_problem(const Model& model, int64_t samples);

// Returns the full name of parameter `index` of layer `layer`.
std::string parameter_name(const Model& model, size_t layer, size_t index);

// Counts the elements of all parameters; tied ones count once.
int64_t parameter_count(const Model& model);
// The number of those that compute a token: of experts only as many as it is given to.
int64_t active_parameter_count(const Model& model);
// Likewise of one parameter.
int64_t elements_of_token(const ParameterSpec& parameter);

}  // namespace trivet::model
