// The 64-bit grid on which `reproducible: "layout"` sums gradients.
//
// A microbatch's gradient, divided by the loss scale, is rounded once to a multiple of 2^-kFractionBits and added as an
// integer; integer sums do not depend on the order of their terms. A value that could overflow when `terms` of them are added
// is not added but flagged; a step with a flag is handled like one with a NaN (all ranks skip it together). One grid step is
// 2^-44 = 5.7e-14.
#pragma once

#include <cmath>
#include <cstdint>

namespace trivet::fixed_point {

inline constexpr int kFractionBits = 44;

// The magnitude below which `terms` values can be summed without overflow.
inline double limit(int64_t terms) { return std::ldexp(1.0, 62 - kFractionBits) / static_cast<double>(terms < 1 ? 1 : terms); }

inline double to_double(int64_t sum) { return static_cast<double>(sum) * 0x1p-44; }

}  // namespace trivet::fixed_point
