// The mask of a dropout site on a device: it drops the same elements as on the CPU (kernels/elementwise.h, DropoutSite).
#pragma once

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/kernels.h"

namespace trivet::kernels::cuda {

// Divides by a number between 2^-24 and 1 that is known on the host. The quotients equal IEEE's, which have few instructions
// for most operands but take a branch for each of them.
struct FixedDivisor {
  float divisor, inverse;

  explicit FixedDivisor(float number) : divisor(number), inverse(1 / number) {}

  // Two steps of Newton's method. `inverse` is correctly rounded, so the first result is one of the two floats next to the
  // quotient, the remainder it leaves is exact, and the second one is the quotient, correctly rounded (Markstein 1990), unless
  // something overflows or is too small to be exact.
  __device__ __forceinline__ float quotient_of_usual(float x) const {
    float quotient = __fmul_rn(x, inverse);
#pragma unroll
    for (int step = 0; step < 2; ++step) quotient = __fmaf_rn(__fmaf_rn(-quotient, divisor, x), inverse, quotient);
    return copysignf(quotient, x);  // -0, too
  }
  // Checks whether quotient_of_usual(x) is right: for 0, and from 2^-80 to 2^100.
  static __device__ __forceinline__ bool usual(float x) {
    constexpr unsigned kLeast = (127u - 80) << 23, kMost = (127u + 100) << 23;
    const unsigned magnitude = __float_as_uint(x) & 0x7fffffffu;
    return magnitude - 1 >= kLeast - 1 && magnitude <= kMost;  // 0 - 1 is the largest number
  }
  template <int N>
  __device__ __forceinline__ void divide(float (&values)[N]) const {
    float quotients[N];
    bool all_usual = true;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      quotients[i] = quotient_of_usual(values[i]);
      all_usual = all_usual && usual(values[i]);
    }
    if (all_usual) {
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] = quotients[i];
    } else {
#pragma unroll 1
      for (int i = 0; i < N; ++i) values[i] = values[i] / divisor;
    }
  }
};
struct FixedDivisorOfDouble {
  double divisor;

  template <int N>
  __device__ __forceinline__ void divide(double (&values)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = values[i] / divisor;
  }
};

// Every thread must call begin() once before apply(), because the step may be in device memory.
template <typename Sum>
struct Mask {
  float rate;
  uint32_t first_kept;  // words below this one drop their element: unit_float(word) < rate
  std::conditional_t<std::is_same_v<Sum, double>, FixedDivisorOfDouble, FixedDivisor> keep;
  uint64_t key, first_sample, first_element, skipped;
  int64_t second;
  Number step;
  uint64_t counter_high = 0;  // for the first sample; set by begin()

  explicit Mask(const DropoutSite& site)
      : rate(site.rate),
        first_kept(static_cast<uint32_t>(std::ceil(static_cast<double>(site.rate) * 0x1p24)) << 8),
        keep{Sum(1) - static_cast<Sum>(site.rate)},
        key(site.key),
        first_sample(static_cast<uint64_t>(site.first_sample)),
        first_element(static_cast<uint64_t>(site.first_element)),
        skipped(static_cast<uint64_t>(site.skipped)),
        second(site.second),
        step(site.step) {}

  __device__ void begin() { counter_high = (static_cast<uint64_t>(read(step)) << 32) + first_sample; }

  // Values become value / keep, or 0, for elements [col, col + N) of a sample. For N >= 4 the elements must start at a multiple
  // of four, so that every four share a Philox block; fewer must not cross the end of a block.
  template <int N>
  __device__ __forceinline__ void apply(int64_t sample, int64_t col, Sum (&values)[N]) const {
    keep.divide(values);
    const auto drop = [this](Sum kept, uint32_t word) { return word < first_kept ? Sum(0) : kept; };
    const uint64_t element = first_element + static_cast<uint64_t>(col) + (col >= second ? skipped : 0),
                   high = counter_high + static_cast<uint64_t>(sample);
    if constexpr (N >= 4) {
#pragma unroll
      for (int quad = 0; quad < N / 4; ++quad) {
        const PhiloxBlock words = philox(key, element / 4 + quad, high);
#pragma unroll
        for (int i = 0; i < 4; ++i) values[4 * quad + i] = drop(values[4 * quad + i], words[i]);
      }
    } else {
      const PhiloxBlock words = philox(key, element / 4, high);
      const uint32_t place = static_cast<uint32_t>(element % 4);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const uint32_t p = place + i;  // every index is a constant, so that words stay in registers
        values[i] = drop(values[i], p == 0 ? words[0] : p == 1 ? words[1] : p == 2 ? words[2] : words[3]);
      }
    }
  }
};

// Checks whether packs of T that begin at multiples of their size share Philox blocks as Mask::apply requires.
template <typename T>
bool mask_fits_packs(const DropoutSite& site) {
  const auto fits = [](int64_t element) { return element % std::min(kPackOf<T>, 4) == 0; };
  return site.rate == 0 || (fits(site.first_element) && fits(site.skipped) && site.second % kPackOf<T> == 0);
}

}  // namespace trivet::kernels::cuda
