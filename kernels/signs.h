// Signs with error feedback, as 1-bit Adam sends its momentum (Tang et al. 2021, arXiv:2102.02888).
//
// A block of kQuantizedBlock elements is sent as their signs and one scale in float32, the mean magnitude of its elements:
// value = sign x scale. What is lost is the error, which the caller adds to what it sends next. Elements whose variance is 0
// have never had a gradient, so the divisor of an update has nothing for them: they do not count, and their value is 0.
//
//   packed  [ 256 signs | scale ][ 256 signs | scale ] ...      36 bytes a block; bit i % 8 of byte i / 8: element i is
//   negative
//
// The mean is summed in one order on every device: 32 sums of every 32nd magnitude, then their halves are added.
#pragma once

#include "kernels/quantization.h"

namespace trivet::kernels {

inline constexpr int64_t kSignBlockBytes = kQuantizedBlock / 8 + 4;
constexpr int64_t sign_bytes(int64_t elements) { return elements / kQuantizedBlock * kSignBlockBytes; }

// packed = the signs and scales of `values`, of which the error remains: values -= what `packed` says.
struct PackSigns {
  TensorView values;         // float32, whole blocks
  ConstTensorView variance;  // float32, as many
  TensorView packed;         // uint8 [sign_bytes(elements of values)]

  void check() const;
  KernelCall describe() const;
};

// out = weight x the values of `packed`; out += with accumulate.
struct UnpackSigns {
  ConstTensorView packed, variance;
  TensorView out;  // float32
  double weight = 1;
  bool accumulate = false;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
