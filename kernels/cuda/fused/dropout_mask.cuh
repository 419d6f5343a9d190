// The mask of a dropout site on a device: it drops the same elements as on the CPU (kernels/elementwise.h, DropoutSite).
#pragma once

#include <algorithm>

#include "core/random.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/kernels.h"

namespace trivet::kernels::cuda {

// `drop` returns x / keep, or 0. Every thread must call begin() once first, because the step may be in device memory.
template <typename Sum>
struct Mask {
  float rate;
  Sum keep;
  uint64_t key, first_sample, first_element;
  Number step;
  uint64_t counter_high = 0;  // of the first sample; set by begin()

  explicit Mask(const DropoutSite& site)
      : rate(site.rate),
        keep(Sum(1) - static_cast<Sum>(site.rate)),
        key(site.key),
        first_sample(static_cast<uint64_t>(site.first_sample)),
        first_element(static_cast<uint64_t>(site.first_element)),
        step(site.step) {}

  __device__ void begin() { counter_high = (static_cast<uint64_t>(read(step)) << 32) + first_sample; }

  __device__ __forceinline__ Sum drop(Sum x, uint32_t word) const {
    const Sum kept = x / keep;
    return unit_float(word) < rate ? Sum(0) : kept;
  }

  // values = drop(values) for elements [col, col + N) of a sample. For N >= 4 the elements must start at a multiple of four, so
  // that every four share a Philox block; fewer must not cross the end of a block.
  template <int N>
  __device__ __forceinline__ void apply(int64_t sample, int64_t col, Sum (&values)[N]) const {
    const uint64_t element = first_element + static_cast<uint64_t>(col), high = counter_high + static_cast<uint64_t>(sample);
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

// Whether packs of T that begin at multiples of their size share Philox blocks as Mask::apply requires.
template <typename T>
bool mask_fits_packs(const DropoutSite& site) {
  return site.rate == 0 || site.first_element % std::min(kPackOf<T>, 4) == 0;
}

}  // namespace trivet::kernels::cuda
