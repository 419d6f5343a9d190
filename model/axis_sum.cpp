#include "model/axis_sum.h"

#include <stdexcept>

#include "kernels/kernels.h"
#include "model/parts.h"

namespace trivet::model {
namespace {

comm::ReduceOp sum_of(const tensor_parallel::TensorAxis& axis) {
  return axis.fixed_sums ? comm::ReduceOp::TreeSum : comm::ReduceOp::Sum;
}

}  // namespace

const tensor_parallel::TensorAxis* sharing_axis(const Context& context) {
  const tensor_parallel::TensorAxis* axis = context.tensor;
  if (!axis || axis->size() == 1) return nullptr;
  if (axis->sequence_parallel) throw std::logic_error("model: layers are not sequence parallel");
  return axis;
}

AxisCuts::AxisCuts(const Context& context, const Split& split) {
  const tensor_parallel::TensorAxis* axis = context.tensor;
  if (axis && axis->fixed_sums) cuts_ = tensor_parallel::cuts_of(split, axis->rank(), axis->size());
}

AxisSum::AxisSum(Context& context, const tensor_parallel::TensorAxis* axis, TensorView y, ConstTensorView bias)
    : context_(&context), axis_(axis), y_(y), bias_(bias) {
  const DType sum_type = statistics_dtype(y.dtype);
  if (rounds_after() && y.dtype != sum_type) scratch_ = ScopedTensor(context.arena, sum_type, y.shape);
}

ConstTensorView AxisSum::partial_bias() const {
  if (!axis_) return bias_;
  return axis_->rank() == 0 && !rounds_after() ? bias_ : ConstTensorView{};
}

void AxisSum::start() {
  if (!axis_) return;
  axis_->group.all_reduce(partial(), sum_of(*axis_), axis_->stream);
  started_ = axis_->stream.record();
}

void AxisSum::finish() {
  started_.synchronize();
  if (rounds_after() && (!scratch_.empty() || !bias_.absent()))
    context_->kernels.add_bias({.x = as_rows(partial()), .bias = bias_, .out = as_rows(y_)});
}

void reduce_over(const tensor_parallel::TensorAxis& axis, TensorView data, comm::ReduceOp op) {
  axis.group.all_reduce(data, op, axis.stream);
  axis.stream.record().synchronize();
}

void sum_over(const tensor_parallel::TensorAxis& axis, TensorView data) { reduce_over(axis, data, sum_of(axis)); }

}  // namespace trivet::model
