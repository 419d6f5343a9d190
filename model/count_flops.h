// Counts the FLOPs of a model's layers, and the memory inside them, by running them on kernels that only count
// (kernels::make_meta_kernels).
#pragma once

#include <vector>

#include "model/model.h"

namespace trivet::model {

struct LayerFlops {
  double all = 0;       // all kernels
  double products = 0;  // matrix products and attention alone
};

// [layer] FLOPs of one microbatch of `samples` samples, forward and backward.
std::vector<LayerFlops> count_flops(const Model& model, int64_t samples);

// [layer] The most bytes that tensors inside of the layer take at a time, for one sample and without recomputation: what it
// keeps for backward, and temporaries. Its input, its output and their gradients do not count.
std::vector<int64_t> count_inner_bytes(const Model& model);

// Floating-point operations of a sample: what the model states or, for a list of your own layers, those of its products.
double flops_per_sample(const Model& model);

}  // namespace trivet::model
