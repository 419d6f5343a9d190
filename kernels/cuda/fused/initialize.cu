// Initial values, computed in double with the CPU's formulas (kernels/cpu/fused/initialize.cpp); a thread computes the four
// values of a Philox block. Zeros, ones and uniform numbers have the same bits as on the CPU. Normal numbers need log, cos and
// sin, which a device computes to within 2 units in a double's last place: as float32, about one number in 10^8 differs from
// the CPU's, by one unit in the last place.
#include <numbers>

#include "core/random.h"
#include "kernels/cuda/fused/elements.cuh"

namespace trivet::kernels::cuda {
namespace {

struct FourValues {
  double values[4];
};

// Box & Muller 1958.
__device__ FourValues normals(const PhiloxBlock& words) {
  FourValues four;
#pragma unroll
  for (int pair = 0; pair < 4; pair += 2) {
    const double radius = sqrt(-2.0 * log((static_cast<double>(words[pair]) + 1.0) * 0x1p-32));
    const double angle = 2.0 * std::numbers::pi * (static_cast<double>(words[pair + 1]) * 0x1p-32);
    four.values[pair] = radius * cos(angle);
    four.values[pair + 1] = radius * sin(angle);
  }
  return four;
}

__device__ FourValues values_of_block(Init::Kind kind, double scale, uint64_t key, uint64_t block) {
  if (kind == Init::Kind::Zeros) return {{0, 0, 0, 0}};
  if (kind == Init::Kind::Ones) return {{1, 1, 1, 1}};
  const PhiloxBlock words = philox(key, block, 0);
  FourValues four;
  if (kind == Init::Kind::Normal) {
    four = normals(words);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) four.values[i] = 2.0 * static_cast<double>(unit_float(words[i])) - 1.0;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) four.values[i] *= scale;
  return four;
}

template <typename T>
__global__ void __launch_bounds__(kElementThreads)
    draw(T* out, int64_t count, Init::Kind kind, double scale, uint64_t key, int64_t first_element) {
  const int64_t first_block = first_element / 4, blocks = (first_element + count + 3) / 4 - first_block;
  const int64_t step = int64_t{gridDim.x} * kElementThreads;
  for (int64_t b = int64_t{blockIdx.x} * kElementThreads + threadIdx.x; b < blocks; b += step) {
    const FourValues four = values_of_block(kind, scale, key, static_cast<uint64_t>(first_block + b));
    const int64_t first = (first_block + b) * 4 - first_element;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (first + i >= 0 && first + i < count) out[first + i] = narrow<T>(four.values[i]);
  }
}

}  // namespace

void compute(const Initialize& args, const Launch& launch) {
  if (args.out.elements() == 0) return;
  const int64_t per_block = 4 * kElementThreads;
  dispatch_device_float(args.out.dtype, [&]<typename T>() {
    TRIVET_LAUNCH(&draw<T>, grid_blocks(args.out.elements() / per_block + 1, launch), kElementThreads, 0, launch.stream,
                  data_of<T>(args.out), args.out.elements(), args.init.kind, static_cast<double>(args.init.scale), args.key,
                  args.first_element);
  });
}

}  // namespace trivet::kernels::cuda
