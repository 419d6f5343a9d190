#include "model/axis_sum.h"

#include <stdexcept>

namespace trivet::model {

const tensor_parallel::TensorAxis* sharing_axis(const Context& context) {
  const tensor_parallel::TensorAxis* axis = context.tensor;
  if (!axis) return nullptr;
  if (axis->fixed_sums) throw std::logic_error("model: layers do not sum over fixed chunks");
  if (axis->size() == 1) return nullptr;
  if (axis->sequence_parallel) throw std::logic_error("model: layers are not sequence parallel");
  return axis;
}

void AxisSum::start() {
  if (!axis_) return;
  axis_->group.all_reduce(out_, comm::ReduceOp::Sum, axis_->stream);
  started_ = axis_->stream.record();
}

void reduce_over(const tensor_parallel::TensorAxis& axis, TensorView data, comm::ReduceOp op) {
  axis.group.all_reduce(data, op, axis.stream);
  axis.stream.record().synchronize();
}

}  // namespace trivet::model
