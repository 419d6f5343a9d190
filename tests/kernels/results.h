// These functions run kernels, and return what the kernels leave in result tensors as plain values.
#pragma once

#include <algorithm>

#include "kernels/kernels.h"

namespace trivet::kernels {

struct Loss {
  double loss_sum = 0, tokens = 0;
};

// run(args) calls a kernel that adds to args.loss.
template <typename Args, typename Run>
Loss loss_of(Args args, const Run& run) {
  double loss[2] = {};
  args.loss = {loss, DType::Float64, {2}};
  run(args);
  return {loss[0], loss[1]};
}

inline ExactSum sum_of_squares(Kernels& kernels, ConstTensorView x, double scale, int64_t block) {
  ExactSum sum;
  kernels.sum_of_squares(x, scale, block, {sum.words().data(), DType::Int64, {ExactSum::kWords}});
  return sum;
}

// run(refused) calls a fixed-point kernel. Returns how many values the kernel refused.
template <typename Run>
int64_t refused_by(const Run& run) {
  int64_t refused = 0;
  run(TensorView{&refused, DType::Int64, {1}});
  return refused;
}

}  // namespace trivet::kernels
