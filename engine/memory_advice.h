// Advice for when a rank's plan does not fit into its device: where the memory goes, and the nearest configs that would fit.
#pragma once

#include <string>

#include "engine/plan.h"
#include "model/model.h"

namespace trivet {

// "parameters 1.2 + gradients 1.2 + ... = 9.8 GiB"
std::string to_words(const MemoryBytes& memory);

// Lists changes to the config that make every rank's plan fit into `bytes`, each with the memory that a rank then needs:
// smaller microbatches, recomputation, MLPs in slices, inputs of blocks in host memory, a higher ZeRO stage, or all of these
// that save something. If none is enough, the text says so.
std::string what_would_fit(const Plan& plan, const model::Model& model, int64_t bytes);

// Throws OutOfMemoryError when the plan of `rank` needs more than `free_bytes` of `device`.
void check_fits(const Plan& plan, const model::Model& model, int rank, int64_t free_bytes, const std::string& device);

}  // namespace trivet
