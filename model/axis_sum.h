// A tensor that is the sum of what each tensor rank made of it (Shoeybi et al. 2019).
//
//   AxisSum sum(axis, y);      write sum.partial();      sum.start();  (other work)  sum.finish();      y is whole
//
// The partial is y itself and is summed in place. Without an axis there is nothing to add: start and finish do nothing. start
// enqueues on the axis's stream, finish waits for it; nobody may touch y in between.
#pragma once

#include "core/layer.h"
#include "tensor_parallel/tensor_axis.h"

namespace trivet::model {

// The ranks that share this layer's split parameters; null when this rank holds them whole. Throws std::logic_error for what
// layers do not do yet: sequence parallelism and sums over fixed chunks.
const tensor_parallel::TensorAxis* sharing_axis(const Context& context);

class AxisSum {
 public:
  AxisSum(const tensor_parallel::TensorAxis* axis, TensorView out) : axis_(axis), out_(out) {}

  TensorView partial() const { return out_; }
  void start();
  void finish() { started_.synchronize(); }

 private:
  const tensor_parallel::TensorAxis* axis_;
  TensorView out_;
  Event started_;
};

// The same at once, with another operation if need be.
void reduce_over(const tensor_parallel::TensorAxis& axis, TensorView data, comm::ReduceOp op = comm::ReduceOp::Sum);

}  // namespace trivet::model
