#include "zero/parameters.h"

#include <algorithm>
#include <set>

namespace trivet::zero {

Parameters::Parameters(const ShardLayout& layout, const ParameterOptions& options, const Resources& resources,
                       std::vector<TieChannel> channels)
    : layout_(layout), resources_(resources), channels_(std::move(channels)) {
  channels_.resize(layout.ties.size());
  make_staging(options);
  for (const BlockLayout& block : layout.blocks) {
    auto& groups = groups_.emplace_back();
    for (const FlatGroup& flat : block.groups) {
      // A tied parameter gets two contributions per microbatch, hence the 2 in the number of terms.
      const GroupOptions group{.lifetimes = lifetimes(flat, options.zero_stage),
                               .dtype = flat.keeps_float32 ? DType::Float32 : options.dtype,
                               .gradient_dtype = options.gradient_dtype,
                               .fixed_point = options.fixed_point,
                               .fixed_point_terms = int64_t{2} * options.microbatches * flat.parts *
                                                    resources.axes[static_cast<size_t>(flat.sharing)].contributors(),
                               .contributions = options.microbatches * flat.users * flat.parts,
                               .gathers = options.gathers.empty() ? 0 : options.gathers[groups_.size() - 1],
                               .reductions = options.reductions.empty() ? 0 : options.reductions[groups_.size() - 1],
                               .optimizer_states = options.optimizer_states};
      groups.push_back(std::make_unique<ParameterGroup>(flat, group, resources_));
    }
  }
}

// With one rank a shard is the whole group, but weights that are not on the device, or are quantized, must still be gathered.
Lifetimes Parameters::lifetimes(const FlatGroup& group, int zero_stage) const {
  if (group.shards > 1) return lifetimes_of(zero_stage, group.persistent);
  return {.shard_parameters = group.weights != Placement::Device || group.quantized};
}

// Makes as many buffers as requested, but no more than there are pieces to read, and none larger than the largest shard.
void Parameters::make_staging(const ParameterOptions& options) {
  const int64_t size = size_of(options.dtype);
  int64_t largest = 0, pieces = 0;
  const auto for_each_shard_in_a_file = [&](auto&& visit) {
    for (const BlockLayout& block : layout_.blocks)
      for (const FlatGroup& group : block.groups)
        if (group.weights == Placement::File) visit(group.shard_elements);
  };
  for_each_shard_in_a_file([&](int64_t elements) { largest = std::max(largest, elements); });
  if (largest == 0) return;
  const int64_t bytes = staging_bytes(std::min(largest, options.staging_buffer_elements) * size);
  for_each_shard_in_a_file([&](int64_t elements) { pieces += (elements * size + bytes - 1) / bytes; });
  HostSide* const host = resources_.offload.host;
  staging_.emplace(host ? host->allocator() : resources_.allocator, host ? host->meter() : resources_.meter,
                   std::min(options.staging_buffers, pieces), bytes);
  resources_.offload.gathers = &*staging_;
}

void Parameters::unshard(int block) {
  for (auto& group : groups_[block]) group->unshard();
}

void Parameters::reshard(int block) {
  for (auto& group : groups_[block]) group->reshard();
}

void Parameters::reduce(int block, GradientReducer& reducer) {
  for (auto& group : groups_[block])
    if (group->reduces()) reducer.reduce(*group);
}

std::vector<ConstTensorView> Parameters::weights(int block) {
  std::vector<ConstTensorView> views;
  for (const ParameterPlace& place : layout_.blocks[block].weights) {
    group(place).wait();
    views.push_back(group(place).weight(place.index));
  }
  return views;
}

std::vector<Gradient> Parameters::gradients(int block) {
  std::vector<Gradient> gradients;
  for (const ParameterPlace& place : layout_.blocks[block].gradients) gradients.push_back(group(place).gradient(place.index));
  return gradients;
}

void Parameters::end_contribution(int block, Number scale, int microbatch) {
  std::set<ParameterGroup*> touched;
  for (const ParameterPlace& place : layout_.blocks[block].gradients)
    if (touched.insert(&group(place)).second) group(place).end_contribution(scale, microbatch);
}

bool Parameters::end_part(int block, size_t parameter, Number scale) {
  const ParameterPlace& place = layout_.blocks[block].gradients[parameter];
  return group(place).end_part(static_cast<size_t>(place.index), scale);
}

void Parameters::tie(int user_block) {
  for (size_t i = 0; i < layout_.ties.size(); ++i) {
    const TiedWeight& tied = layout_.ties[i];
    const TieChannel& channel = channels_[i];
    if (tied.user_block != user_block) continue;
    if (channel.group == nullptr) {
      resources_.kernels.add(group(tied.user).tied_gradients(), group(tied.owner).tied_gradients());
    } else if (layout_.blocks[tied.user_block].here) {
      channel.group->send(group(tied.user).tied_gradients(), channel.peer, *channel.stream);
      channel.stream->synchronize();
    } else {
      const TensorView own = group(tied.owner).tied_gradients();
      const ScopedTensor received(resources_.buffers, own.dtype, own.shape);
      channel.group->receive(received, channel.peer, *channel.stream);
      channel.stream->synchronize();
      resources_.kernels.add(received, own);
    }
  }
}

// Each data rank sends its range to the rank with the same range in the other stage, which then gathers as the owner does.
void Parameters::publish_tied(bool frozen_too) {
  for (size_t i = 0; i < layout_.ties.size(); ++i) {
    const TiedWeight& tied = layout_.ties[i];
    const TieChannel& channel = channels_[i];
    const bool user = layout_.blocks[tied.user_block].here;
    const ParameterPlace& place = user ? tied.user : tied.owner;
    if (channel.group == nullptr || !(frozen_too || group(place).layout().trainable)) continue;
    group(place).with_owned_weights(user, [&](TensorView weights) {
      user ? channel.group->receive(weights, channel.peer, *channel.stream)
           : channel.group->send(weights, channel.peer, *channel.stream);
      channel.stream->synchronize();
    });
  }
}

void Parameters::begin_step() {
  for_each_group([](int, ParameterGroup& group) { group.begin_step(); });
}

void Parameters::begin_audit(int microbatch) {
  for_each_group([&](int block, ParameterGroup& group) { group.begin_audit(block, microbatch); });
}

void Parameters::digest_totals() {
  for_each_group([](int, ParameterGroup& group) { group.digest_total(); });
}

void Parameters::begin_recomputation() {
  for_each_group([](int, ParameterGroup& group) { group.begin_recomputation(); });
}

std::vector<GradientDigest> Parameters::gradient_digests() {
  std::vector<GradientDigest> digests;
  for_each_group([&](int, ParameterGroup& group) {
    if (const GradientDigests* const found = group.digests())
      digests.insert(digests.end(), found->digests().begin(), found->digests().end());
  });
  return digests;
}

void Parameters::publish(bool frozen_too) {
  publish_tied(frozen_too);
  for_each_group([&](int, ParameterGroup& group) {
    if (frozen_too || group.layout().trainable) group.publish();
  });
}

void Parameters::initialize(uint64_t seed) {
  for_each_group([&](int, ParameterGroup& group) { group.initialize(seed); });
  publish(true);
}

}  // namespace trivet::zero
