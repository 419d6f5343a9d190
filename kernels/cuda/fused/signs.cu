// Signs with error feedback (kernels/signs.h). A warp has a block of 256 elements, and lane l every 32nd of them from l on, so
// that a vote of the warp gives the signs of 32 neighbours.
#include "kernels/cuda/fused/elements.cuh"
#include "kernels/signs.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kLanes = 32, kWarpsOfBlock = 4, kOfLane = kQuantizedBlock / kLanes;
constexpr unsigned kWholeWarp = 0xffffffffu;

// Calls body(block, lane) for the blocks of this warp.
template <typename Body>
__device__ __forceinline__ void for_each_sign_block(int64_t blocks, const Body& body) {
  const int64_t warp = int64_t{blockIdx.x} * kWarpsOfBlock + threadIdx.x / kLanes;
  for (int64_t block = warp; block < blocks; block += int64_t{gridDim.x} * kWarpsOfBlock)
    body(block, static_cast<int>(threadIdx.x) % kLanes);
}

template <typename T>
__device__ __forceinline__ T sum_of_lanes(T value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(kWholeWarp, value, distance);
  return value;
}

__global__ void __launch_bounds__(kLanes* kWarpsOfBlock)
    pack_sign_blocks(float* values, const float* variance, uint8_t* packed, int64_t blocks) {
  for_each_sign_block(blocks, [&](int64_t block, int lane) {
    float* const x = values + block * kQuantizedBlock;
    const float* const v = variance + block * kQuantizedBlock;
    uint8_t* const to = packed + block * kSignBlockBytes;
    float own[kOfLane], sum = 0;
    bool counts[kOfLane];
    int counted = 0;
#pragma unroll
    for (int p = 0; p < kOfLane; ++p) {
      own[p] = x[p * kLanes + lane];
      counts[p] = v[p * kLanes + lane] > 0.0f;
      sum = __fadd_rn(sum, counts[p] ? fabsf(own[p]) : 0.0f);
      counted += counts[p] ? 1 : 0;
    }
    sum = sum_of_lanes(sum);
    counted = sum_of_lanes(counted);
    const float scale = counted == 0 ? 0.0f : __fdiv_rn(sum, static_cast<float>(counted));
#pragma unroll
    for (int p = 0; p < kOfLane; ++p) {
      const bool negative = own[p] < 0.0f;
      const unsigned signs = __ballot_sync(kWholeWarp, negative);
      if (lane == 0) reinterpret_cast<uint32_t*>(to)[p] = signs;
      x[p * kLanes + lane] = counts[p] ? __fsub_rn(own[p], negative ? -scale : scale) : 0.0f;
    }
    if (lane == 0) *reinterpret_cast<float*>(to + kQuantizedBlock / 8) = scale;
  });
}

template <bool kAdd>
__global__ void __launch_bounds__(kLanes* kWarpsOfBlock)
    unpack_sign_blocks(const uint8_t* packed, const float* variance, float weight, float* out, int64_t blocks) {
  for_each_sign_block(blocks, [&](int64_t block, int lane) {
    const uint8_t* const from = packed + block * kSignBlockBytes;
    const float* const v = variance + block * kQuantizedBlock;
    float* const to = out + block * kQuantizedBlock;
    const float scale = __fmul_rn(*reinterpret_cast<const float*>(from + kQuantizedBlock / 8), weight);
#pragma unroll
    for (int p = 0; p < kOfLane; ++p) {
      const int at = p * kLanes + lane;
      const bool negative = (from[at / 8] >> at % 8 & 1) != 0;
      const float value = v[at] > 0.0f ? (negative ? -scale : scale) : 0.0f;
      to[at] = kAdd ? __fadd_rn(to[at], value) : value;
    }
  });
}

unsigned sign_grid(int64_t blocks, const Launch& launch) {
  return grid_blocks((blocks + kWarpsOfBlock - 1) / kWarpsOfBlock, launch);
}

}  // namespace

void compute(const PackSigns& args, const Launch& launch) {
  const int64_t blocks = args.values.elements() / kQuantizedBlock;
  if (blocks == 0) return;
  TRIVET_LAUNCH(pack_sign_blocks, sign_grid(blocks, launch), kLanes * kWarpsOfBlock, 0, launch.stream,
                data_of<float>(args.values), data_of<float>(args.variance), data_of<uint8_t>(args.packed), blocks);
}

void compute(const UnpackSigns& args, const Launch& launch) {
  const int64_t blocks = args.out.elements() / kQuantizedBlock;
  if (blocks == 0) return;
  const auto kernel = args.accumulate ? &unpack_sign_blocks<true> : &unpack_sign_blocks<false>;
  TRIVET_LAUNCH(kernel, sign_grid(blocks, launch), kLanes * kWarpsOfBlock, 0, launch.stream, data_of<uint8_t>(args.packed),
                data_of<float>(args.variance), static_cast<float>(args.weight), data_of<float>(args.out), blocks);
}

}  // namespace trivet::kernels::cuda
