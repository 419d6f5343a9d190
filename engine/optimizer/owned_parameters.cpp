#include "engine/optimizer/owned_parameters.h"

#include "kernels/sums.h"

namespace trivet {

OwnedParameters::OwnedParameters(zero::Parameters& parameters) {
  parameters.for_each_group([&](int block, zero::ParameterGroup& group) {
    if (!group.layout().trainable || group.layout().role != zero::GroupRole::Own) return;
    places_[&group] = groups_.size();
    groups_.push_back({&group, parameters.layout().blocks[block].role, all_.size()});
    for (size_t i = 0; i < group.layout().parameters.size(); ++i) all_.push_back({&group, static_cast<int>(i)});
  });
}

// At stage 0 the owned range is the whole group, but each rank still counts only its shard.
std::vector<OwnedPart> counted_parts(const OwnedParameter& parameter, const zero::OwnedRange& range) {
  const zero::FlatGroup& layout = parameter.group->layout();
  const int64_t shard_first = parameter.group->axis().rank() * layout.shard_elements;
  std::vector<OwnedPart> parts;
  if (!parameter.group->axis().is_counted()) return parts;
  for (const tensor_parallel::LocalBox& box : parameter.flat().part.boxes) {
    if (!box.counted) continue;
    const zero::Intersection part =
        zero::intersection(parameter.flat().offset + box.first, box.shape.elements(), shard_first, layout.shard_elements);
    if (part.count > 0) parts.push_back({shard_first - range.first + part.first_in_range, part.count});
  }
  return parts;
}

// Small blocks are slower, so only layout mode uses them: it alone promises the same bits for every tensor size.
int64_t sum_block(const OwnedParameter& parameter) {
  return parameter.group->options().fixed_point ? parameter.flat().sum_block : kernels::kSumBlock;
}

}  // namespace trivet
