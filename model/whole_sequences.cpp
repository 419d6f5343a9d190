#include "model/whole_sequences.h"

#include "kernels/kernels.h"

namespace trivet::model {

ScopedTensor gather_sequences(Context& context, const comm::RankAxis& axis, ConstTensorView own) {
  const int64_t ranks = axis.size(), batch = own.shape[0], tokens = own.shape[1];
  const ScopedTensor by_rank(context.arena, own.dtype, {ranks, batch, tokens});
  ScopedTensor whole(context.arena, own.dtype, {batch, ranks * tokens});
  axis.group.all_gather(own, by_rank, axis.stream);
  axis.stream.record().synchronize();
  context.kernels.copy_runs({.from = by_rank,
                             .out = whole,
                             .counts = {1, ranks, batch},
                             .run = tokens,
                             .from_steps = {0, batch * tokens, tokens},
                             .out_steps = {0, tokens, ranks * tokens}});
  return whole;
}

void take_own_part(Context& context, const comm::RankAxis& axis, ConstTensorView whole, TensorView own) {
  const int64_t batch = own.shape[0], tokens = own.shape[1], first = axis.rank() * tokens;
  context.kernels.copy_runs({.from = whole.slice(first, whole.elements() - first),
                             .out = own,
                             .counts = {1, 1, batch},
                             .run = tokens,
                             .from_steps = {0, 0, whole.shape[1]},
                             .out_steps = {0, 0, tokens}});
}

}  // namespace trivet::model
