// Counts the FLOPs of a model's layers by running them on kernels that only count (kernels::make_meta_kernels).
#pragma once

#include <vector>

#include "model/model.h"

namespace trivet::model {

// [layer] FLOPs of the matrix products of one microbatch of `samples` samples, forward and backward.
std::vector<double> count_flops(const Model& model, int64_t samples);

// Floating-point operations of a sample: what the model states or, for a list of your own layers, what is counted.
double flops_per_sample(const Model& model);

}  // namespace trivet::model
