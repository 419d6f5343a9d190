// Filling, copying and adding tensors.
#pragma once

#include <array>
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

// Copies runs of neighbouring elements from one order to another, as packing for an exchange between ranks needs:
//
//   out[i o0 + j o1 + k o2 + e] = from[i f0 + j f1 + k f2 + e]     (f0, f1, f2) = from_steps, (o0, o1, o2) = out_steps
//   for i < counts[0], j < counts[1], k < counts[2], e < run
//
// Both have one dtype, a float or int32, and different memory; runs of out must not overlap. What lies between them keeps its
// values.
struct CopyRuns {
  ConstTensorView from;
  TensorView out;
  std::array<int64_t, 3> counts{1, 1, 1};
  int64_t run = 0;
  std::array<int64_t, 3> from_steps{}, out_steps{};  // elements from one run to the next, at least 0

  int64_t runs() const { return counts[0] * counts[1] * counts[2]; }
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
