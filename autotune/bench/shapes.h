// Small models of many shapes: what training steps call kernels with, spread evenly over what fits into a fraction of a second.
#pragma once

#include <optional>

#include "engine/config/config.h"

namespace trivet::autotune {

// The n-th, on so many ranks; any number of them is spread evenly. None where the shape that falls to n is too large or cannot
// be.
std::optional<Config> bench_config(int n, int ranks, DeviceChoice device);

}  // namespace trivet::autotune
