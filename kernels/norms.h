// Normalization of rows.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/kernel_call.h"

namespace trivet::kernels {

// y = (x - mean) * rstd * gain + bias over the last dim (Ba et al. 2016); mean, rstd: float32 [T], kept for backward.
struct LayerNorm {
  ConstTensorView x, gain, bias;
  TensorView y, mean, rstd;
  float epsilon = 1e-5f;
  // Optional; it needs a residual, and its out must be x. The sum that is normalized is computed in the same pass, with the
  // same bits as dropout_add(sum) before the norm. y may be sum.x.
  DropoutAdd sum;

  void check() const;
  KernelCall describe() const;
};

// dx = (residual +) gradient of x, rounded once; residual is optional and may be dx
struct LayerNormBackwardInput {
  ConstTensorView dy, x, gain, mean, rstd;
  TensorView dx;
  ConstTensorView residual;

  void check() const;
  KernelCall describe() const;
};

// dgain, dbias (+)= sums over rows
struct LayerNormBackwardWeight {
  ConstTensorView dy, x, mean, rstd;
  TensorView dgain, dbias;
  bool accumulate_gain = true, accumulate_bias = true;

  void check() const;
  KernelCall describe() const;
};

// y = x * rstd * gain, rstd = 1 / sqrt(mean(x^2) + epsilon) (Zhang & Sennrich 2019); rstd: float32 [T].
struct RmsNorm {
  ConstTensorView x, gain;
  TensorView y, rstd;
  float epsilon = 1e-5f;
  DropoutAdd sum;  // optional, as in LayerNorm

  void check() const;
  KernelCall describe() const;
};

struct RmsNormBackwardInput {
  ConstTensorView dy, x, gain, rstd;
  TensorView dx;
  ConstTensorView residual;  // optional, may be dx

  void check() const;
  KernelCall describe() const;
};

struct RmsNormBackwardWeight {
  ConstTensorView dy, x, rstd;
  TensorView dgain;
  bool accumulate = true;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
