// Block quantisation (ZeRO++, Wang et al. 2023) of x[E], in blocks of `block` elements from its start (64 to 2048, a
// multiple of 64). It is symmetric, with one scale per block:
//
//   scale = max |x| / L    value = x / scale, to nearest even, in [-L, L]    L = 127 (8 bits) or 7 (4 bits)
//
// The arithmetic is in float32. A block of zeros has scale 0. A block with a NaN or an infinity has scale NaN, so that all of
// it comes back as NaN. values are uint8 in two's complement: [E] for 8 bits; [(E + 1) / 2] for 4 bits, with element 2 i in the
// low half of byte i. scales are float32 [ceil(E / block)].
#pragma once

#include <cstdint>

#include "kernels/kernel_call.h"

namespace trivet::kernels {

struct Quantize {
  ConstTensorView x;
  TensorView values, scales;
  int bits = 8;
  int64_t block = 256;

  void check() const;
  KernelCall describe() const;
};

// out[E] (+)= value * scale
struct Dequantize {
  ConstTensorView values, scales;
  TensorView out;
  int bits = 8;
  int64_t block = 256;
  bool accumulate = false;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
