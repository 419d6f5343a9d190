// Kernels that compute each element by itself: dropout and activations.
#pragma once

#include <cstdint>

#include "core/number.h"
#include "kernels/kernel_call.h"

namespace trivet::kernels {

// Defines which elements dropout zeroes. Element e of sample s (of the step) is dropped when
//   unit_float(philox(key, counter_low = e / 4, counter_high = (step << 32) + s)[e % 4]) < rate,
// and the other elements are divided by (1 - rate). e counts within the sample: each of the B samples has elements / B of the
// tensor's elements. If the tensor holds only a part of every sample, that part begins with first_element. If that is
// two parts, the second one starts at `second` of the tensor's elements and leaves out `skipped` of the sample before it.
struct DropoutSite {
  float rate = 0;    // 0: nothing is dropped
  uint64_t key = 0;  // random_key(seed, name of the site)
  Number step = 0;
  int64_t first_sample = 0;
  int64_t first_element = 0;
  int64_t second = 0, skipped = 0;
};

class Rules;
// Checks dropout in the check() of a kernel that drops elements of x.
void check_dropout(const Rules& rules, const DropoutSite& site, ConstTensorView x);

// out = residual + dropout(x); out may be residual. residual is optional (without it, out = dropout(x)); x is [B, ...].
struct DropoutAdd {
  ConstTensorView x, residual;
  TensorView out;
  DropoutSite dropout;

  void check() const;
  KernelCall describe() const;
};

// dx = mask * dy / (1 - rate); dx may be dy.
struct DropoutBackward {
  ConstTensorView dy;
  TensorView dx;
  DropoutSite dropout;

  void check() const;
  KernelCall describe() const;
};

// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks & Gimpel 2016, the tanh form that GPT-2 uses)
struct Gelu {
  ConstTensorView x;
  TensorView y;

  void check() const;
  KernelCall describe() const;
};

struct GeluBackward {
  ConstTensorView dy, x;
  TensorView dx;

  void check() const;
  KernelCall describe() const;
};

// y = max(x, 0); NaN stays NaN. y may be x.
struct Relu {
  ConstTensorView x;
  TensorView y;

  void check() const;
  KernelCall describe() const;
};

// dx = dy where x > 0, and 0 elsewhere; x is Relu's input. dx may be dy.
struct ReluBackward {
  ConstTensorView dy, x;
  TensorView dx;

  void check() const;
  KernelCall describe() const;
};

// y = cap tanh(x / cap), which is near x while x is much smaller than cap. y may be x.
struct SoftCap {
  ConstTensorView x;
  TensorView y;
  double cap = 1;

  void check() const;
  KernelCall describe() const;
};

// y[T, F] = silu(gate) * up with gate_up[T, 2F] = [gate | up], or gelu(gate) * up, called GEGLU (Shazeer 2020)
struct SwiGlu {
  ConstTensorView gate_up;
  TensorView y;
  bool gelu = false;

  void check() const;
  KernelCall describe() const;
};

struct SwiGluBackward {
  ConstTensorView dy, gate_up;
  TensorView dgate_up;
  bool gelu = false;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
