// These functions run kernels, and return what the kernels leave in result tensors as plain values.
#pragma once

#include <algorithm>
#include <memory_resource>
#include <vector>

#include "kernels/kernels.h"

namespace trivet::kernels {

struct Loss {
  double loss_sum = 0, tokens = 0;
};

// run(args) calls a kernel that adds to args.loss.
template <typename Args, typename Run>
Loss loss_of(Args args, const Run& run) {
  std::pmr::vector<double> loss(2);
  args.loss = {loss.data(), DType::Float64, {2}};
  run(args);
  return {loss[0], loss[1]};
}

inline ExactSum sum_of_squares(Kernels& kernels, ConstTensorView x, Number scale, int64_t block) {
  std::pmr::vector<int64_t> words(ExactSum::kWords);
  kernels.sum_of_squares(x, scale, block, {words.data(), DType::Int64, {ExactSum::kWords}});
  ExactSum sum;
  std::ranges::copy(words, sum.words().begin());
  return sum;
}

// run(refused) calls a fixed-point kernel. Returns how many values the kernel refused.
template <typename Run>
int64_t refused_by(const Run& run) {
  std::pmr::vector<int64_t> refused(1);
  run(TensorView{refused.data(), DType::Int64, {1}});
  return refused[0];
}

}  // namespace trivet::kernels
