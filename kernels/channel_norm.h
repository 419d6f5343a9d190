// Normalization of images: group norm and batch norm.
//
//   B images, C channels, S pixels of a channel; x, y and their gradients are [B, C, S...]
//
// Both normalize sets of elements to mean 0 and variance 1, and then scale and shift each channel:
//
//   group norm (Wu & He 2018)           B x groups sets: C / groups neighbouring channels of one image
//   batch norm (Ioffe & Szegedy 2015)   C sets: one channel of all images of the call
#pragma once

#include "core/number.h"
#include "kernels/kernel_call.h"

namespace trivet::kernels {

// The sets of elements that are normalized together.
struct NormSets {
  static constexpr int64_t kBatch = 0;
  int64_t groups = kBatch;  // groups of channels; kBatch: batch norm

  int64_t count(const Shape& x) const { return groups == kBatch ? x[1] : x[0] * groups; }
  int64_t elements(const Shape& x) const { return count(x) == 0 ? 0 : x.elements() / count(x); }  // in one set
};

// y = (x - mean) * rstd * gain + bias, rstd = 1 / sqrt(variance + epsilon); mean, rstd: float32 [sets], kept for backward.
struct ChannelNorm {
  ConstTensorView x, gain, bias;  // gain, bias: [C]
  TensorView y, mean, rstd;
  NormSets sets;
  float epsilon = 1e-5f;

  void check() const;
  KernelCall describe() const;
};

struct ChannelNormBackwardInput {
  ConstTensorView dy, x, gain, mean, rstd;
  TensorView dx;
  NormSets sets;

  void check() const;
  KernelCall describe() const;
};

// dgain, dbias (+)= sums over images and pixels; each is optional
struct ChannelNormBackwardWeight {
  ConstTensorView dy, x, mean, rstd;
  TensorView dgain, dbias;
  NormSets sets;
  bool accumulate_gain = true, accumulate_bias = true;

  void check() const;
  KernelCall describe() const;
};

// Batch norm with given statistics, for evaluation: y = (x - mean) / sqrt(variance + epsilon) * gain + bias; all are [C].
struct NormalizeWith {
  ConstTensorView x, gain, bias, mean, variance;
  TensorView y;
  float epsilon = 1e-5f;

  void check() const;
  KernelCall describe() const;
};

// The share of a microbatch in the sums behind running statistics (core/parameter_spec.h, ParameterUpdate):
//   mean_sum (+)= scale * mean,   variance_sum (+)= scale * variance * n / (n - 1)     n = elements of a set, at least 2
// The variance is that of a sample (unbiased), as PyTorch keeps it. For n = 1 it is taken as it is.
struct AddStatistics {
  ConstTensorView mean, rstd;         // from ChannelNorm
  TensorView mean_sum, variance_sum;  // [sets], of a gradient's type; each is optional
  int64_t elements = 1;               // n
  float epsilon = 1e-5f;              // as in ChannelNorm
  Number scale = 1.0;
  bool accumulate_mean = true, accumulate_variance = true;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
