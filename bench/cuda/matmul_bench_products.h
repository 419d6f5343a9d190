// The products that a rank's layers ask for in a step, found by running them on kernels that only count: what can be tuned is
// what a run will ask for.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "model/model.h"

namespace trivet {

struct AskedProduct {
  std::string layer;        // the first that asks for it: "blocks.0"
  kernels::Matmul product;  // its views have no memory
};

// Of forward and backward of a microbatch, on each rank of the tensor axis; each once, whether it adds or not. ConfigError
// without train_micro_batch_size_per_gpu, and for reproducible "layout", whose products are made in pieces that are not tuned.
std::vector<AskedProduct> products_of(const Config& config, const model::Model& model);

}  // namespace trivet
