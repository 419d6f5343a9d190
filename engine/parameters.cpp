#include "engine/parameters.h"

#include <algorithm>
#include <set>

namespace trivet {

namespace {

// How many blocks put gradients into a group: its own, and those that are tied to it.
int users_of(const zero::ShardLayout& layout, int block, int group) {
  const auto uses = [&](const zero::BlockLayout& user) {
    return std::any_of(user.places.begin(), user.places.end(),
                       [&](const zero::ParameterPlace& place) { return place.block == block && place.group == group; });
  };
  return static_cast<int>(std::count_if(layout.blocks.begin(), layout.blocks.end(), uses));
}

}  // namespace

Parameters::Parameters(const zero::ShardLayout& layout, const ParameterOptions& options, const zero::Resources& resources)
    : layout_(layout) {
  // With one rank a shard is the whole.
  const int stage = layout.ranks > 1 ? options.zero_stage : 0;
  for (const zero::BlockLayout& block : layout.blocks) {
    const int block_index = static_cast<int>(groups_.size());
    auto& groups = groups_.emplace_back();
    for (const zero::FlatGroup& flat : block.groups) {
      const int users = users_of(layout, block_index, static_cast<int>(groups.size()));
      const zero::GroupOptions group{.lifetimes = zero::lifetimes_of(stage, flat.persistent),
                                     .dtype = options.dtype,
                                     .gradient_dtype = options.gradient_dtype,
                                     .fixed_point = options.fixed_point,
                                     .fixed_point_terms = options.fixed_point_terms,
                                     .contributions = options.microbatches * users,
                                     .optimizer_states = options.optimizer_states};
      groups.push_back(std::make_unique<zero::ParameterGroup>(flat, group, resources));
    }
  }
}

void Parameters::unshard(int block) {
  for (auto& group : groups_[static_cast<size_t>(block)]) group->unshard();
}

void Parameters::reshard(int block) {
  for (auto& group : groups_[static_cast<size_t>(block)]) group->reshard();
}

void Parameters::reduce(int block, zero::GradientReducer& reducer) {
  for (auto& group : groups_[static_cast<size_t>(block)])
    if (group->layout().trainable) reducer.reduce(*group);
}

std::vector<ConstTensorView> Parameters::weights(int block) {
  std::vector<ConstTensorView> views;
  for (const zero::ParameterPlace& place : layout_.blocks[static_cast<size_t>(block)].places) {
    group(place).wait();
    views.push_back(group(place).weight(place.index));
  }
  return views;
}

std::vector<Gradient> Parameters::gradients(int block) {
  std::vector<Gradient> gradients;
  for (const zero::ParameterPlace& place : layout_.blocks[static_cast<size_t>(block)].places)
    gradients.push_back(group(place).gradient(place.index));
  return gradients;
}

void Parameters::end_contribution(int block, double scale) {
  std::set<zero::ParameterGroup*> touched;
  for (const zero::ParameterPlace& place : layout_.blocks[static_cast<size_t>(block)].places)
    if (touched.insert(&group(place)).second) group(place).end_contribution(scale);
}

void Parameters::begin_step() {
  for_each_group([](int, zero::ParameterGroup& group) { group.begin_step(); });
}

int64_t Parameters::out_of_range() const {
  int64_t count = 0;
  for (const auto& block : groups_)
    for (const auto& group : block) count += group->out_of_range();
  return count;
}

void Parameters::publish() {
  for_each_group([](int, zero::ParameterGroup& group) { group.publish(); });
}

void Parameters::initialize(uint64_t seed) {
  for_each_group([&](int, zero::ParameterGroup& group) { group.initialize(seed); });
}

}  // namespace trivet
