// Filling, copying and adding tensors.
#pragma once

#include <cstdint>

#include "core/parameter_spec.h"
#include "kernels/kernel_call.h"

namespace trivet::kernels {

// out = 0 (any dtype)
struct Zero {
  TensorView out;

  void check() const;
  KernelCall describe() const;
};

// out = from, converted between float dtypes (round to nearest even); same dtype: a copy of any dtype
struct Copy {
  ConstTensorView from;
  TensorView out;

  void check() const;
  KernelCall describe() const;
};

// out += from; both of one float dtype, or both int64 (wraps: the range was checked when quantized)
struct Add {
  ConstTensorView from;
  TensorView out;

  void check() const;
  KernelCall describe() const;
};

// out *= factor
struct Scale {
  TensorView out;
  double factor = 1;

  void check() const;
  KernelCall describe() const;
};

// out[b, c, r] = from[b, r, c]: every matrix of a batch is transposed. Both have one float dtype and different memory.
struct Transpose {
  ConstTensorView from;  // [B, R, C]
  TensorView out;        // [B, C, R]

  void check() const;
  KernelCall describe() const;
};

// out[e] = initial value of element first_element + e under `key` (core/random.h): zeros, ones, normal or uniform
struct Initialize {
  TensorView out;
  Init init;
  uint64_t key = 0;
  int64_t first_element = 0;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
