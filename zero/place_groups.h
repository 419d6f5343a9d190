// Which groups of a rank are offloaded. Arithmetic only.
#pragma once

#include "zero/shard_layout.h"

namespace trivet::zero {

struct PlacementOptions {
  // Master weights and optimizer states: of the first groups, as long as they are no more than this share of all elements.
  Placement states = Placement::Device;
  double states_ratio = 1.0;  // zero_optimization.offload_optimizer.ratio
  // Weights that are sharded at stage 3: of all groups but the first, as long as these hold no more than so many elements.
  Placement weights = Placement::Device;
  int64_t weights_in_memory = 0;               // zero_optimization.offload_param.max_in_cpu
  Placement kept_weights = Placement::Device;  // of the first: the memory that is meant
};

void place_groups(ShardLayout& layout, const PlacementOptions& options);

}  // namespace trivet::zero
