// The arithmetic of judge_gradients and of the trust ratio, shared by all devices.
#pragma once

#include <cmath>

#include "core/exact_sum.h"
#include "core/host_device.h"

namespace trivet::kernels {

// Indices into a verdict.
enum VerdictIndex { kNorm, kFactor, kApply, kVerdictSize };

struct GradientRules {
  double unit = 1, clipping = 0;
  bool check_finite = true;
};

TRIVET_HOST_DEVICE inline void judge(const int64_t* square_sum, const int64_t* losses, const GradientRules& rules,
                                     double* verdict) {
  const int64_t counted = losses[ExactSum::kWords];
  const double mean = rules.unit / static_cast<double>(counted > 0 ? counted : 1);
  const double norm = sqrt(ExactSum::value_of(square_sum)) * mean;
  double clip = 1;
  if (rules.clipping > 0 && norm > 0) {  // false for NaN
    const double ratio = rules.clipping / (norm + 1e-6);
    clip = ratio < 1 ? ratio : 1;
  }
  verdict[kNorm] = norm;
  verdict[kFactor] = mean * clip;
  const bool overflowed = rules.check_finite && square_sum[ExactSum::kLimbs] != 0;
  verdict[kApply] = counted == 0 || overflowed ? 0 : 1;
}

TRIVET_HOST_DEVICE inline double trust_ratio(const int64_t* square_sums, double min_ratio, double max_ratio) {
  const double weights = sqrt(ExactSum::value_of(square_sums));
  const double update = sqrt(ExactSum::value_of(square_sums + ExactSum::kWords));
  if (!(weights > 0 && update > 0)) return 1;
  const double ratio = weights / update;
  return ratio < min_ratio ? min_ratio : max_ratio < ratio ? max_ratio : ratio;
}

}  // namespace trivet::kernels
