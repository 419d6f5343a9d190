// Updates of parameters by optimizers: element-wise over a flat range of a shard. `master` and states are float32; `gradient`
// is float32, bfloat16 or float16, and is first multiplied by gradient_scale; `copy_out` is optional and receives master
// rounded to bfloat16 or float16. weight_decay is 0 for parameters that do not decay, so one call covers elements of one
// kind. `verdict` (see JudgeGradients) is optional: the gradient is also multiplied by its factor, and nothing is written if
// it says not to apply. Without it, the factor is 1 and the update is applied.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "core/number.h"
#include "kernels/kernel_call.h"

namespace trivet::kernels {

// 1 - beta^step: the divisor that corrects the bias of a moving average that started at 0. `step` counts from 1.
inline double bias_correction(double beta, int64_t step) { return 1 - std::pow(beta, static_cast<double>(step)); }

// Adam (Kingma & Ba 2015), bias-corrected. Decoupled decay is AdamW (Loshchilov & Hutter 2019); otherwise the decay is an L2
// term in the gradient.
struct Adam {
  TensorView master, moment1, moment2, copy_out;
  ConstTensorView gradient, verdict;
  Number lr = 1e-3, beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8, weight_decay = 0;
  Number gradient_scale = 1.0;
  Number correction1 = 1.0, correction2 = 1.0;  // bias_correction of beta1 and beta2; 1: no correction
  bool decoupled_decay = true;

  void check() const;
};

// Adam for several ranges in few launches. The updates must not write to overlapping memory.
struct AdamUpdates {
  std::span<const Adam> updates;

  void check() const;
  KernelCall describe() const;
};

// buffer = momentum * buffer + (1 - dampening) * g (on the first step: buffer = g);
// p -= lr * (nesterov ? g + momentum * buffer : buffer)
struct Sgd {
  TensorView master, momentum_buffer, copy_out;  // momentum_buffer absent when momentum is 0
  ConstTensorView gradient, verdict;
  Number lr = 1e-3;
  double momentum = 0, dampening = 0, weight_decay = 0;
  Number gradient_scale = 1.0, step = 1;
  bool nesterov = false;

  void check() const;
  KernelCall describe() const;
};

// p -= lr * (sign(beta1 m + (1 - beta1) g) + decay * p); m = beta2 m + (1 - beta2) g (Chen et al. 2023)
struct Lion {
  TensorView master, moment, copy_out;
  ConstTensorView gradient, verdict;
  Number lr = 1e-4, beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
  Number gradient_scale = 1.0;

  void check() const;
  KernelCall describe() const;
};

// sum += g^2; p -= lr * g / (sqrt(sum) + epsilon) (Duchi et al. 2011)
struct Adagrad {
  TensorView master, sum_of_squares, copy_out;
  ConstTensorView gradient, verdict;
  Number lr = 1e-2;
  double epsilon = 1e-10, weight_decay = 0;
  Number gradient_scale = 1.0;

  void check() const;
  KernelCall describe() const;
};

// The first half of LAMB (You et al. 2020): moments as in Adam, and `update` (float32) is m_hat / (sqrt(v_hat) + epsilon) +
// decay * p. ApplyUpdate scales it by the trust ratio, whose norms are over the whole parameter.
struct LambUpdate {
  ConstTensorView master;
  TensorView moment1, moment2, update;
  ConstTensorView gradient, verdict;
  Number beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8, weight_decay = 0;
  Number gradient_scale = 1.0, correction1 = 1.0, correction2 = 1.0;

  void check() const;
  KernelCall describe() const;
};

// master = master * (1 - lr * weight_decay) - lr * scale * ratio * update; copy_out as above; update is float32, bfloat16 or
// float16. Without `square_sums` the ratio is 1. With them it is ||master|| / ||update||, clamped to [min_ratio, max_ratio], or
// 1 if either norm is 0.
struct ApplyUpdate {
  TensorView master, copy_out;
  ConstTensorView update, verdict;
  Number lr = 1.0;
  double scale = 1.0, weight_decay = 0;
  ConstTensorView square_sums;  // optional int64 [2, ExactSum::kWords]: of the weights and of the update
  double min_ratio = 0, max_ratio = 0;

  void check() const;
  KernelCall describe() const;
};

// buffer = momentum * buffer + gradient * gradient_scale; out = nesterov ? gradient + momentum * buffer : buffer (float32)
struct MomentumUpdate {
  TensorView momentum_buffer, out;
  ConstTensorView gradient, verdict;
  double momentum = 0.95;
  Number gradient_scale = 1.0;
  bool nesterov = true;

  void check() const;
  KernelCall describe() const;
};

// The update of a parameter that is a running average (core/parameter_spec.h, ParameterUpdate):
// master = (1 - momentum) * master + momentum * gradient * gradient_scale * share. The gradient is the sum of what a step's
// microbatches contributed. The verdict only says whether to apply the update.
struct RunningAverage {
  TensorView master, copy_out;
  ConstTensorView gradient, verdict;
  double momentum = 0.1;
  double share = 1;  // share of a contribution in the average
  Number gradient_scale = 1.0;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
