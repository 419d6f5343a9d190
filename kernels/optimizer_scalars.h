// What the optimizers' loops need on every device, prepared in double on the host and rounded once. `gradient_scale` is that of
// the call times the factor of its verdict.
#pragma once

#include <cmath>

#include "kernels/kernels.h"

namespace trivet::kernels {

struct AdamScalars {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, inverse_root_correction2, epsilon, step_size;
  float keep;      // 1 - lr * decay, decoupled
  float l2_decay;  // Adam: decay added to the gradient. LAMB: decay added to the update
};

template <typename Args>
AdamScalars moments(const Args& args, double gradient_scale) {
  const auto step = static_cast<double>(args.step);
  const double correction1 = args.bias_correction ? 1 - std::pow(args.beta1, step) : 1;
  const double correction2 = args.bias_correction ? 1 - std::pow(args.beta2, step) : 1;
  return {.gradient_scale = static_cast<float>(gradient_scale),
          .beta1 = static_cast<float>(args.beta1),
          .one_minus_beta1 = static_cast<float>(1 - args.beta1),
          .beta2 = static_cast<float>(args.beta2),
          .one_minus_beta2 = static_cast<float>(1 - args.beta2),
          .inverse_root_correction2 = static_cast<float>(1 / std::sqrt(correction2)),
          .epsilon = static_cast<float>(args.epsilon),
          .step_size = static_cast<float>(1 / correction1),
          .keep = 1,
          .l2_decay = 0};
}

inline AdamScalars scalars(const Adam& args, double gradient_scale) {
  AdamScalars s = moments(args, gradient_scale);
  const double correction1 = args.bias_correction ? 1 - std::pow(args.beta1, static_cast<double>(args.step)) : 1;
  s.step_size = static_cast<float>(args.lr / correction1);
  s.keep = args.decoupled_decay ? static_cast<float>(1 - args.lr * args.weight_decay) : 1.0f;
  s.l2_decay = args.decoupled_decay ? 0.0f : static_cast<float>(args.weight_decay);
  return s;
}

inline AdamScalars scalars(const LambUpdate& args, double gradient_scale) {
  AdamScalars s = moments(args, gradient_scale);
  s.l2_decay = static_cast<float>(args.weight_decay);
  return s;
}

struct SgdScalars {
  float gradient_scale, lr, decay, momentum, gradient_weight;
  float direct, buffered;  // shares of the gradient and of the buffer in the step
  bool first_step;         // the buffer holds nothing yet
};

inline SgdScalars scalars(const Sgd& args, double gradient_scale) {
  const bool first = args.step <= 1;
  return {.gradient_scale = static_cast<float>(gradient_scale),
          .lr = static_cast<float>(args.lr),
          .decay = static_cast<float>(args.weight_decay),
          .momentum = static_cast<float>(args.momentum),
          .gradient_weight = first ? 1.0f : static_cast<float>(1 - args.dampening),
          .direct = args.nesterov ? 1.0f : 0.0f,
          .buffered = args.nesterov ? static_cast<float>(args.momentum) : 1.0f,
          .first_step = first};
}

struct LionScalars {
  float gradient_scale, lr, decay, beta1, one_minus_beta1, beta2, one_minus_beta2;
};

inline LionScalars scalars(const Lion& args, double gradient_scale) {
  return {static_cast<float>(gradient_scale), static_cast<float>(args.lr),        static_cast<float>(args.weight_decay),
          static_cast<float>(args.beta1),     static_cast<float>(1 - args.beta1), static_cast<float>(args.beta2),
          static_cast<float>(1 - args.beta2)};
}

struct AdagradScalars {
  float gradient_scale, lr, decay, epsilon;
};

inline AdagradScalars scalars(const Adagrad& args, double gradient_scale) {
  return {static_cast<float>(gradient_scale), static_cast<float>(args.lr), static_cast<float>(args.weight_decay),
          static_cast<float>(args.epsilon)};
}

}  // namespace trivet::kernels
