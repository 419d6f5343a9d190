#include "engine/partitioned_input.h"

#include <fmt/format.h>

#include <numeric>

#include "core/error.h"
#include "engine/config/refuse.h"
#include "engine/plan.h"

namespace trivet {

ConstTensorView slice_of(ConstTensorView whole, const comm::RankAxis& axis) {
  const int64_t count = whole.elements() / axis.size();
  return whole.slice(axis.rank() * count, count);
}

ScopedTensor keep_slice(ConstTensorView whole, const comm::RankAxis& axis, kernels::Kernels& kernels, Arena& arena) {
  const ConstTensorView own = slice_of(whole, axis);
  ScopedTensor slice(arena, own.dtype, own.shape);
  kernels.copy(own, slice);
  return slice;
}

ScopedTensor gather_slices(ConstTensorView slice, const Shape& shape, const comm::RankAxis& axis, Arena& arena) {
  ScopedTensor whole(arena, slice.dtype, shape);
  axis.group.all_gather(slice, whole, axis.stream);
  axis.stream.record().synchronize();
  return whole;
}

// Models from model::build always pass: heads divide hidden_size, and tensor ranks divide the heads.
void check_partitioned_inputs(const Plan& plan, const model::Model& model) {
  if (!plan.config.partitions_inputs()) return;
  const int64_t ranks = plan.mesh.size(Axis::Tensor), samples = plan.batch.micro_batch_size;
  Shape input = model.sample.inputs_of(samples);
  for (size_t block = 0; block + 1 < model.layers.size(); ++block) {
    const bool recomputed = plan.ranks.front().programs.recompute[block] == Recompute::Full;
    if (block > 0 && recomputed && input.elements() % ranks != 0)
      config::refuse(
          plan.config, "activation_checkpointing.partition_activations",
          fmt::format("true needs block inputs that split evenly over {} tensor ranks, but the input of {} is {}; use false, "
                      "or a train_micro_batch_size_per_gpu that is a multiple of {}",
                      ranks, model.names[block], to_string(input), ranks / std::gcd(ranks, input.elements() / samples)));
    input = model.layers[block]->output_shape(input);
  }
}

}  // namespace trivet
