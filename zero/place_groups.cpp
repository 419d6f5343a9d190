#include "zero/place_groups.h"

namespace trivet::zero {
namespace {

bool has_states(const FlatGroup& group) { return group.trainable && group.role == GroupRole::Own; }
// Parameters that stay float32 are few, and some change without an optimizer: they stay on the device.
bool has_sharded_weights(const FlatGroup& group) {
  return !group.persistent && !group.keeps_float32 && group.role != GroupRole::TiedGradients;
}

template <typename Visit>
void for_each_group(ShardLayout& layout, Visit&& visit) {
  for (BlockLayout& block : layout.blocks)
    for (FlatGroup& group : block.groups) visit(group);
}

}  // namespace

void place_groups(ShardLayout& layout, const PlacementOptions& options) {
  int64_t all_states = 0, moved_states = 0, kept_weights = 0;
  for_each_group(layout, [&](const FlatGroup& group) { all_states += has_states(group) ? group.shard_elements : 0; });
  const double most = options.states_ratio * static_cast<double>(all_states);
  for_each_group(layout, [&](FlatGroup& group) {
    if (has_states(group) && static_cast<double>(moved_states + group.shard_elements) <= most) {
      group.states = options.states;
      moved_states += group.shard_elements;
    }
    if (!has_sharded_weights(group)) return;
    if (kept_weights + group.shard_elements <= options.weights_in_memory) {
      kept_weights += group.shard_elements;
      group.weights = options.kept_weights;
    } else {
      group.weights = options.weights;
    }
  });
}

}  // namespace trivet::zero
