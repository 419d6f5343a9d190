#include "tensor_parallel/axis_sum.h"

#include "kernels/kernels.h"
#include "tensor_parallel/token_gather.h"

namespace trivet::tensor_parallel {

const comm::RankAxis* split_axis(const Context& context) {
  const comm::RankAxis* axis = context.axes[Axis::Tensor];
  return axis && axis->size() > 1 ? axis : nullptr;
}

AxisCuts::AxisCuts(const Context& context, const Split& split) {
  const comm::RankAxis* axis = context.axes[Axis::Tensor];
  if (axis && axis->fixed_sums) cuts_ = cuts_of(split, axis->rank(), axis->size());
}

AxisSum::AxisSum(Context& context, const comm::RankAxis* axis, TensorView y, ConstTensorView bias, Terms terms)
    : context_(&context), axis_(axis), y_(y), bias_(bias), terms_(terms) {
  const DType sum_type = rounds_after() ? statistics_dtype(y.dtype) : y.dtype;
  if (scatters() || y.dtype != sum_type) scratch_ = ScopedTensor(context.arena, sum_type, all_tokens(context, y.shape));
}

ConstTensorView AxisSum::partial_bias() const {
  if (!axis_) return bias_;
  return axis_->rank() == 0 && !rounds_after() ? bias_ : ConstTensorView{};
}

void AxisSum::start() {
  if (!axis_) return;
  if (scatters()) {
    const int64_t own = y_.elements() / y_.shape[0], all = own * axis_->size();
    if (rounds_after()) own_sum_ = ScopedTensor(context_->arena, statistics_dtype(y_.dtype), y_.shape);
    const TensorView to = rounds_after() ? own_sum_.view() : y_;
    for (int64_t sequence = 0; sequence < y_.shape[0]; ++sequence)
      axis_->group.reduce_scatter(partial().slice(sequence * all, all), to.slice(sequence * own, own),
                                  rounds_after() ? comm::ReduceOp::TreeSum : comm::ReduceOp::Sum, axis_->stream);
  } else {
    axis_->group.all_reduce(partial(), rounds_after() ? comm::ReduceOp::TreeSum : comm::ReduceOp::Sum, axis_->stream);
  }
  started_ = axis_->stream.record();
}

void AxisSum::finish() {
  started_.synchronize();
  if (rounds_after() && (!scratch_.empty() || !bias_.absent()))
    context_->kernels.add_bias({.x = as_rows(scatters() ? own_sum_.view() : partial()), .bias = bias_, .out = as_rows(y_)});
}

void reduce_over(const comm::RankAxis& axis, TensorView data, comm::ReduceOp op) {
  axis.group.all_reduce(data, op, axis.stream);
  axis.stream.record().synchronize();
}

void sum_over(const comm::RankAxis& axis, TensorView data) {
  reduce_over(axis, data, axis.fixed_sums ? comm::ReduceOp::TreeSum : comm::ReduceOp::Sum);
}

}  // namespace trivet::tensor_parallel
