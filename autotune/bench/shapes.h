// Small models of many shapes, which spread the sizes that training steps call kernels with evenly over what fits into a
// fraction of a second.
#pragma once

#include <optional>

#include "engine/config/config.h"

namespace trivet::autotune {

// The n-th config for this number of ranks; the first n are spread evenly for any n. None if the n-th shape is too large or
// impossible.
std::optional<Config> bench_config(int n, int ranks, DeviceChoice device);

}  // namespace trivet::autotune
