// The scalars that the optimizers' loops need. All devices share these functions, which compute in double and round once.
// `read` returns the value of a Number; `factor` is that of the call's verdict.
#pragma once

#include <cmath>

#include "core/host_device.h"
#include "kernels/kernels.h"

namespace trivet::kernels {

// Numbers for Adam and LAMB. LAMB's step has the learning rate 1 and no decoupled decay.
struct AdamNumbers {
  Number gradient_scale, lr, beta1, beta2, correction1, correction2;
  double epsilon, weight_decay;
  bool decoupled_decay;
};
struct AdamScalars {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, inverse_root_correction2, epsilon, step_size;
  float keep;      // 1 - lr * decay, decoupled
  float l2_decay;  // Adam: decay added to the gradient. LAMB: decay added to the update
};

inline AdamNumbers numbers(const Adam& args) {
  return {args.gradient_scale, args.lr,      args.beta1,        args.beta2,          args.correction1,
          args.correction2,    args.epsilon, args.weight_decay, args.decoupled_decay};
}
inline AdamNumbers numbers(const LambUpdate& args) {
  return {args.gradient_scale, 1.0,          args.beta1,        args.beta2, args.correction1,
          args.correction2,    args.epsilon, args.weight_decay, false};
}
template <typename Read>
TRIVET_HOST_DEVICE AdamScalars scalars(const AdamNumbers& n, double factor, const Read& read) {
  const double lr = read(n.lr), beta1 = read(n.beta1), beta2 = read(n.beta2);
  return {.gradient_scale = static_cast<float>(read(n.gradient_scale) * factor),
          .beta1 = static_cast<float>(beta1),
          .one_minus_beta1 = static_cast<float>(1 - beta1),
          .beta2 = static_cast<float>(beta2),
          .one_minus_beta2 = static_cast<float>(1 - beta2),
          .inverse_root_correction2 = static_cast<float>(1 / sqrt(read(n.correction2))),
          .epsilon = static_cast<float>(n.epsilon),
          .step_size = static_cast<float>(lr / read(n.correction1)),
          .keep = n.decoupled_decay ? static_cast<float>(1 - lr * n.weight_decay) : 1.0f,
          .l2_decay = n.decoupled_decay ? 0.0f : static_cast<float>(n.weight_decay)};
}

struct SgdNumbers {
  Number gradient_scale, lr, step;
  double weight_decay, momentum, dampening;
  bool nesterov;
};
struct SgdScalars {
  float gradient_scale, lr, decay, momentum, gradient_weight;
  float direct, buffered;  // shares of the gradient and of the buffer in the step
  bool first_step;         // the buffer holds nothing yet
};

inline SgdNumbers numbers(const Sgd& args) {
  return {args.gradient_scale, args.lr, args.step, args.weight_decay, args.momentum, args.dampening, args.nesterov};
}
template <typename Read>
TRIVET_HOST_DEVICE SgdScalars scalars(const SgdNumbers& n, double factor, const Read& read) {
  const bool first = read(n.step) <= 1;
  return {.gradient_scale = static_cast<float>(read(n.gradient_scale) * factor),
          .lr = static_cast<float>(read(n.lr)),
          .decay = static_cast<float>(n.weight_decay),
          .momentum = static_cast<float>(n.momentum),
          .gradient_weight = first ? 1.0f : static_cast<float>(1 - n.dampening),
          .direct = n.nesterov ? 1.0f : 0.0f,
          .buffered = n.nesterov ? static_cast<float>(n.momentum) : 1.0f,
          .first_step = first};
}

struct LionNumbers {
  Number gradient_scale, lr, beta1, beta2;
  double weight_decay;
};
struct LionScalars {
  float gradient_scale, lr, decay, beta1, one_minus_beta1, beta2, one_minus_beta2;
};

inline LionNumbers numbers(const Lion& args) {
  return {args.gradient_scale, args.lr, args.beta1, args.beta2, args.weight_decay};
}
template <typename Read>
TRIVET_HOST_DEVICE LionScalars scalars(const LionNumbers& n, double factor, const Read& read) {
  const double beta1 = read(n.beta1), beta2 = read(n.beta2);
  return {.gradient_scale = static_cast<float>(read(n.gradient_scale) * factor),
          .lr = static_cast<float>(read(n.lr)),
          .decay = static_cast<float>(n.weight_decay),
          .beta1 = static_cast<float>(beta1),
          .one_minus_beta1 = static_cast<float>(1 - beta1),
          .beta2 = static_cast<float>(beta2),
          .one_minus_beta2 = static_cast<float>(1 - beta2)};
}

struct AdagradNumbers {
  Number gradient_scale, lr;
  double weight_decay, epsilon;
};
struct AdagradScalars {
  float gradient_scale, lr, decay, epsilon;
};

inline AdagradNumbers numbers(const Adagrad& args) { return {args.gradient_scale, args.lr, args.weight_decay, args.epsilon}; }
template <typename Read>
TRIVET_HOST_DEVICE AdagradScalars scalars(const AdagradNumbers& n, double factor, const Read& read) {
  return {.gradient_scale = static_cast<float>(read(n.gradient_scale) * factor),
          .lr = static_cast<float>(read(n.lr)),
          .decay = static_cast<float>(n.weight_decay),
          .epsilon = static_cast<float>(n.epsilon)};
}

struct MomentumNumbers {
  Number gradient_scale;
  double momentum;
  bool nesterov;
};
struct MomentumScalars {
  float gradient_scale, momentum;
  float direct, buffered;  // shares of the gradient and of the buffer in the update
};

inline MomentumNumbers numbers(const MomentumUpdate& args) { return {args.gradient_scale, args.momentum, args.nesterov}; }
template <typename Read>
TRIVET_HOST_DEVICE MomentumScalars scalars(const MomentumNumbers& n, double factor, const Read& read) {
  const auto momentum = static_cast<float>(n.momentum);
  return {.gradient_scale = static_cast<float>(read(n.gradient_scale) * factor),
          .momentum = momentum,
          .direct = n.nesterov ? 1.0f : 0.0f,
          .buffered = n.nesterov ? momentum : 1.0f};
}

struct ApplyNumbers {
  Number lr;
  double scale, weight_decay, min_ratio, max_ratio;
};
struct ApplyScalars {
  float keep, factor;  // factors of the weights and of the update
};

inline ApplyNumbers numbers(const ApplyUpdate& args) {
  return {args.lr, args.scale, args.weight_decay, args.min_ratio, args.max_ratio};
}
// ratio: the trust ratio, or 1
template <typename Read>
TRIVET_HOST_DEVICE ApplyScalars scalars(const ApplyNumbers& n, double ratio, const Read& read) {
  const double lr = read(n.lr);
  return {.keep = static_cast<float>(1 - lr * n.weight_decay), .factor = static_cast<float>(lr * n.scale * ratio)};
}

// A running average is an update with the learning rate -momentum: the weights move towards the gradient's average.
struct RunningAverageNumbers {
  Number gradient_scale;
  double momentum, share;
};

inline RunningAverageNumbers numbers(const RunningAverage& args) { return {args.gradient_scale, args.momentum, args.share}; }
// The verdict's factor is for gradients.
template <typename Read>
TRIVET_HOST_DEVICE ApplyScalars scalars(const RunningAverageNumbers& n, double, const Read& read) {
  return {.keep = static_cast<float>(1 - n.momentum),
          .factor = static_cast<float>(-n.momentum * read(n.gradient_scale) * n.share)};
}

}  // namespace trivet::kernels
