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

// RmsNorm of every query head and every key head of qkv[B, S, (N + 2G) D] (Dehghani et al. 2023): each is a row of D elements,
// the gain is one for all query heads and another for all key heads. Values are copied. rstd: float32 [B S, N + G], kept for
// backward.
struct HeadNorm {
  ConstTensorView qkv, query_gain, key_gain;  // gains: [D]
  TensorView out, rstd;                       // out: like qkv
  int64_t heads = 0, key_value_heads = 0;     // N, G
  float epsilon = 1e-5f;

  int64_t head_size() const { return qkv.shape[2] / (heads + 2 * key_value_heads); }
  void check() const;
  KernelCall describe() const;
};

struct HeadNormBackwardInput {
  ConstTensorView dout, qkv, query_gain, key_gain, rstd;
  TensorView dqkv;
  int64_t heads = 0, key_value_heads = 0;

  int64_t head_size() const { return qkv.shape[2] / (heads + 2 * key_value_heads); }
  void check() const;
  KernelCall describe() const;
};

// dgains[N + G, D] = each head's part of the gradient of its gain: the sum over tokens. float32 (float64).
struct HeadNormBackwardWeight {
  ConstTensorView dout, qkv, rstd;
  TensorView dgains;
  int64_t heads = 0, key_value_heads = 0;

  int64_t head_size() const { return qkv.shape[2] / (heads + 2 * key_value_heads); }
  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
