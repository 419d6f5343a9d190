// The matrix products that a rank's layers compute in a step, found by running the layers on kernels that only count: exactly
// the products of a run can be tuned.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "model/model.h"

namespace trivet {

struct AskedProduct {
  std::string layer;        // the first that computes it: "blocks.0"
  kernels::Matmul product;  // its views have no memory
};

// Returns the products of forward and backward of a microbatch, on each rank of the tensor axis, without duplicates; products
// that differ only in `accumulate` count as one. Throws ConfigError without train_micro_batch_size_per_gpu, and for
// reproducible "layout", whose products are computed in pieces that are not tuned.
std::vector<AskedProduct> products_of(const Config& config, const model::Model& model);

}  // namespace trivet
