#include "tensor_parallel/token_gather.h"

#include "tensor_parallel/axis_sum.h"

namespace trivet::tensor_parallel {

const comm::RankAxis* sequence_axis(const Context& context) {
  const comm::RankAxis* axis = split_axis(context);
  return axis && axis->splits_tokens ? axis : nullptr;
}

OwnTokens own_tokens(const Context& context, int64_t own) {
  const comm::RankAxis* const of_part = sequence_axis(context);
  const comm::RankAxis* const of_sequence = context.axes[Axis::Context];
  const int64_t part = of_part ? own * of_part->size() : own, first = of_part ? of_part->rank() * own : 0;
  if (!of_sequence) return {{{{first, first + own}, {}}}};
  return of_sequence->part().tokens(part * of_sequence->size()).within(first, own);
}

Shape all_tokens(const Context& context, Shape own) {
  if (const comm::RankAxis* axis = sequence_axis(context)) own[1] *= axis->size();
  return own;
}

TokenGather::TokenGather(Context& context, ConstTensorView x, bool wanted) : x_(x) {
  const comm::RankAxis* axis = wanted ? sequence_axis(context) : nullptr;
  if (!axis || x.absent()) return;
  all_ = ScopedTensor(context.arena, x.dtype, all_tokens(context, x.shape));
  const int64_t own = x.elements() / x.shape[0], all = own * axis->size();
  for (int64_t sequence = 0; sequence < x.shape[0]; ++sequence)
    axis->group.all_gather(x.slice(sequence * own, own), all_.view().slice(sequence * all, all), axis->stream);
  arrived_ = axis->stream.record();
}

ConstTensorView TokenGather::view() {
  if (all_.empty()) return x_;
  arrived_.synchronize();
  return all_;
}

}  // namespace trivet::tensor_parallel
