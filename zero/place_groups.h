// Decides which groups of a rank are offloaded. This is pure arithmetic.
#pragma once

#include "zero/shard_layout.h"

namespace trivet::zero {

struct PlacementOptions {
  // The place of master weights and optimizer states. It applies to the first groups, as long as these have at most
  // `states_ratio` of all elements.
  Placement states = Placement::Device;
  double states_ratio = 1.0;  // zero_optimization.offload_optimizer.ratio
  // The place of weights that are sharded at stage 3. The first groups, as long as these have at most `weights_in_memory`
  // elements, keep their weights in `kept_weights` instead.
  Placement weights = Placement::Device;
  int64_t weights_in_memory = 0;  // zero_optimization.offload_param.max_in_cpu
  Placement kept_weights = Placement::Device;
};

void place_groups(ShardLayout& layout, const PlacementOptions& options);

}  // namespace trivet::zero
