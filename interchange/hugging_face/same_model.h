// Checks whether weights of one model are right for another: whether both compute the same.
#pragma once

#include <string>

#include "model/description.h"

namespace trivet::hugging_face {

// Returns the keys that differ, "model.layers is 12, not 24", with `ours` first; empty: the weights fit. Keys that only matter
// to training may differ, and sequences may be shorter unless positions are learned. An unknown vocabulary (0) fits. So do
// weights without low-rank adapters if ours has some; adapters that the weights have must be the same.
std::string model_difference(const model::Description& ours, const model::Description& weights);

}  // namespace trivet::hugging_face
