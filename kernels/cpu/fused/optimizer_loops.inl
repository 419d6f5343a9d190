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

// `weights` may not be the master weights.
inline void local_adam(const AdamScalars& s, const float* gradient, const float* variance, float* master, float* moment,
                       float* sum, float* weights, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const float g = gradient[e] * s.gradient_scale, p = master[e] * s.keep;
    const float m = s.beta1 * moment[e] + s.one_minus_beta1 * g, total = sum[e] + s.step_size * m;
    const float ahead = total / (__builtin_sqrtf(variance[e]) + s.epsilon);
    const bool counts = variance[e] > 0.0f;
    moment[e] = counts ? m : 0.0f;
    sum[e] = counts ? total : 0.0f;
    master[e] = p;
    weights[e] = counts ? p - ahead : p;
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

// Returns the largest quotient of the two denominators; 0 if there is none.
inline float fresh_variance(const FreshScalars& s, const float* moment, const float* earlier, const float* variance,
                            float* fresh, int64_t count) {
  constexpr int64_t kLanes = 16;
  float largest[kLanes] = {};
  const auto one = [&](int64_t e, float& most) {
    const float g = (moment[e] - s.beta1 * earlier[e]) * s.inverse_one_minus_beta1;
    const float v = s.beta2 * fresh[e] + s.one_minus_beta2 * (g * g);
    const float quotient = (__builtin_sqrtf(variance[e]) + s.epsilon) / (__builtin_sqrtf(v) + s.epsilon);
    fresh[e] = v;
    most = quotient > most ? quotient : most;
  };
  int64_t e = 0;
  for (; e + kLanes <= count; e += kLanes)
#pragma GCC ivdep
    for (int64_t lane = 0; lane < kLanes; ++lane) one(e + lane, largest[lane]);
  for (; e < count; ++e) one(e, largest[0]);
  for (int64_t lane = 1; lane < kLanes; ++lane) largest[0] = largest[lane] > largest[0] ? largest[lane] : largest[0];
  return largest[0];
}
