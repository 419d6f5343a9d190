#include "kernels/cpu/fused/numbers.inl"

// Each loop makes one pass over a range. Gradients are float32 here; the scalars were computed in double.

template <typename From, typename To>
void convert(const From* from, To* to, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) to[e] = write<To>(read(from[e]));
}

inline void adam(const AdamScalars& s, const float* gradient, float* master, float* moment1, float* moment2, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const float g = gradient[e] * s.gradient_scale + s.l2_decay * master[e];
    const float m = s.beta1 * moment1[e] + s.one_minus_beta1 * g, v = s.beta2 * moment2[e] + s.one_minus_beta2 * (g * g);
    const float denominator = __builtin_sqrtf(v) * s.inverse_root_correction2 + s.epsilon;
    moment1[e] = m;
    moment2[e] = v;
    master[e] = master[e] * s.keep - s.step_size * (m / denominator);
  }
}

inline void lamb(const AdamScalars& s, const float* gradient, const float* master, float* moment1, float* moment2,
                 float* update, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const float g = gradient[e] * s.gradient_scale;
    const float m = s.beta1 * moment1[e] + s.one_minus_beta1 * g, v = s.beta2 * moment2[e] + s.one_minus_beta2 * (g * g);
    const float denominator = __builtin_sqrtf(v) * s.inverse_root_correction2 + s.epsilon;
    moment1[e] = m;
    moment2[e] = v;
    update[e] = s.step_size * (m / denominator) + s.l2_decay * master[e];
  }
}

inline void sgd(const SgdScalars& s, const float* gradient, float* master, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const float g = gradient[e] * s.gradient_scale + s.decay * master[e];
    master[e] -= s.lr * g;
  }
}

inline void sgd_momentum(const SgdScalars& s, const float* gradient, float* master, float* buffer, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const float g = gradient[e] * s.gradient_scale + s.decay * master[e];
    const float previous = s.first_step ? 0.0f : buffer[e];  // not initialized on the first step
    const float b = s.momentum * previous + s.gradient_weight * g;
    buffer[e] = b;
    master[e] -= s.lr * (s.direct * g + s.buffered * b);
  }
}

inline void lion(const LionScalars& s, const float* gradient, float* master, float* moment, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const float g = gradient[e] * s.gradient_scale, m = moment[e];
    const float blend = s.beta1 * m + s.one_minus_beta1 * g;
    const float sign = blend > 0.0f ? 1.0f : blend < 0.0f ? -1.0f : blend;  // NaN stays NaN
    master[e] -= s.lr * (sign + s.decay * master[e]);
    moment[e] = s.beta2 * m + s.one_minus_beta2 * g;
  }
}

inline void adagrad(const AdagradScalars& s, const float* gradient, float* master, float* sum_of_squares, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const float g = gradient[e] * s.gradient_scale + s.decay * master[e];
    const float sum = sum_of_squares[e] + g * g;
    sum_of_squares[e] = sum;
    master[e] -= s.lr * (g / (__builtin_sqrtf(sum) + s.epsilon));
  }
}

inline void apply(float keep, float scale, const float* update, float* master, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) master[e] = master[e] * keep - scale * update[e];
}

inline void momentum(const MomentumScalars& s, const float* gradient, float* buffer, float* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const float g = gradient[e] * s.gradient_scale, b = s.momentum * buffer[e] + g;
    buffer[e] = b;
    out[e] = s.direct * g + s.buffered * b;
  }
}
