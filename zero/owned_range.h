// The part of a parameter group that a rank updates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "zero/placed_tensor.h"

namespace trivet::zero {

// Views of `count` elements, from element `first` of the group, as the kernels of one side see them.
struct OwnedRange {
  int64_t first = 0, count = 0;
  PlacedView master;    // float32
  PlacedView copy_out;  // the weights in the model's dtype; absent if `master` is that already
  // Gradient dtype; in layout mode int64 on the fixed-point grid, or float32; absent when frozen. In the memory of the device;
  // a host that uses it stages it.
  ConstPlacedView gradient;
  std::vector<PlacedView> states;
  HostSide* host = nullptr;  // the range is for the kernels of this host; null: for the device's

  // Checks whether tensors that are written have to be staged.
  bool staged() const {
    return master.staged || copy_out.staged ||
           std::ranges::any_of(states, [](const PlacedView& state) { return state.staged; });
  }
  // The kernels that the range is for. `device`: those of the device.
  kernels::Kernels& kernels(kernels::Kernels& device) const { return host ? host->kernels() : device; }
};

}  // namespace trivet::zero
