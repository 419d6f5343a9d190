// Checks whether weights of one model are right for another: whether both compute the same.
#pragma once

#include <string>

#include "engine/checkpoint/tensor_source.h"
#include "model/description.h"

namespace trivet::hugging_face {

// Returns the keys that differ, "model.layers is 12, not 24", with `ours` first; empty: the weights fit. Keys that only matter
// to training may differ, and sequences may be shorter unless positions are learned. An unknown vocabulary (0) fits. So do
// weights without low-rank adapters if ours has some; adapters that the weights have must be the same.
std::string model_difference(const model::Description& ours, const model::Description& weights);

// Throws CheckpointError that names a tensor of the model that the source does not have in its shape and as float32.
void check_shapes(const checkpoint::TensorSource& weights, const model::Description& description);

}  // namespace trivet::hugging_face
