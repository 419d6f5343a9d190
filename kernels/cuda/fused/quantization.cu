// Block quantization (kernels/quantization.h). A warp has a block of 256 elements, and a lane 4 pairs of neighbours in it, so
// that the two codes of a byte belong to one lane.
#include "kernels/cuda/fused/elements.cuh"
#include "kernels/quantization.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kWarp = 32, kWarpsPerBlock = 4, kPairsOfLane = kQuantizedBlock / 2 / kWarp;

// Calls body(block) for the blocks of this warp.
template <typename Body>
__device__ __forceinline__ void for_each_quantized_block(int64_t blocks, const Body& body) {
  const int64_t warp = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarp;
  for (int64_t block = warp; block < blocks; block += int64_t{gridDim.x} * kWarpsPerBlock) body(block);
}

__device__ __forceinline__ unsigned largest_of_warp(unsigned value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const unsigned other = __shfl_xor_sync(0xffffffffu, value, distance);
    value = other > value ? other : value;
  }
  return value;
}

template <int kBits>
__device__ __forceinline__ void store_codes(uint8_t* codes, int pair, int first, int second) {
  if constexpr (kBits == 8) {
    codes[2 * pair] = static_cast<uint8_t>(first);
    codes[2 * pair + 1] = static_cast<uint8_t>(second);
  } else {
    codes[pair] = static_cast<uint8_t>((first + 8) | (second + 8) << 4);
  }
}

template <typename T, int kBits>
__global__ void __launch_bounds__(kWarp* kWarpsPerBlock) quantize_blocks(const T* x, uint8_t* packed, int64_t blocks) {
  constexpr auto kLargest = static_cast<float>(largest_code(kBits));
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for_each_quantized_block(blocks, [&](int64_t block) {
    const T* const from = x + block * kQuantizedBlock;
    uint8_t* const codes = packed + block * quantized_block_bytes(kBits);
    float values[kPairsOfLane][2];
    unsigned bits = 0;
#pragma unroll
    for (int p = 0; p < kPairsOfLane; ++p)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        values[p][i] = widen(from[2 * (p * kWarp + lane) + i]);
        const unsigned magnitude = __float_as_uint(values[p][i]) & 0x7fffffffu;
        bits = magnitude > bits ? magnitude : bits;
      }
    bits = largest_of_warp(bits);
    const float largest = __uint_as_float(bits);
    const bool finite = bits < 0x7f800000u, zeros = largest < 0x1p-100f;
    const float scale = finite ? (zeros ? 0.0f : __fdiv_rn(largest, kLargest)) : __uint_as_float(0x7fc00000u);
    const float inverse = finite && !zeros ? __fdiv_rn(kLargest, largest) : 0.0f;
#pragma unroll
    for (int p = 0; p < kPairsOfLane; ++p) {
      const auto code = [&](float value) { return finite ? static_cast<int>(rintf(__fmul_rn(value, inverse))) : 0; };
      store_codes<kBits>(codes, p * kWarp + lane, code(values[p][0]), code(values[p][1]));
    }
    if (lane == 0) *reinterpret_cast<float*>(codes + kQuantizedBlock * kBits / 8) = scale;
  });
}

template <typename T, int kBits, bool kAdd>
__global__ void __launch_bounds__(kWarp* kWarpsPerBlock) dequantize_blocks(const uint8_t* packed, T* out, int64_t blocks) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for_each_quantized_block(blocks, [&](int64_t block) {
    const uint8_t* const codes = packed + block * quantized_block_bytes(kBits);
    T* const to = out + block * kQuantizedBlock;
    const float scale = *reinterpret_cast<const float*>(codes + kQuantizedBlock * kBits / 8);
#pragma unroll
    for (int p = 0; p < kPairsOfLane; ++p)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 2 * (p * kWarp + lane) + i;
        const int code = kBits == 8 ? static_cast<int>(static_cast<int8_t>(codes[at])) : (codes[at / 2] >> 4 * i & 15) - 8;
        const float value = __fmul_rn(static_cast<float>(code), scale);
        to[at] = narrow<T>(kAdd ? __fadd_rn(widen(to[at]), value) : value);
      }
  });
}

// body.operator()<T>() for the types of at most 32 bits, which are all that the arguments may have.
template <typename Body>
void dispatch_narrow_float(DType dtype, const Body& body) {
  dispatch_device_float(dtype, [&]<typename T>() {
    if constexpr (sizeof(T) <= 4) body.template operator()<T>();
  });
}

template <typename Kernel, typename... Arguments>
void launch_blocks(Kernel kernel, int64_t blocks, const Launch& launch, Arguments... arguments) {
  if (blocks == 0) return;
  const unsigned grid = grid_blocks((blocks + kWarpsPerBlock - 1) / kWarpsPerBlock, launch);
  TRIVET_LAUNCH(kernel, grid, kWarp * kWarpsPerBlock, 0, launch.stream, arguments..., blocks);
}

}  // namespace

void compute(const Quantize& args, const Launch& launch) {
  dispatch_narrow_float(args.x.dtype, [&]<typename T>() {
    const auto kernel = args.bits == 8 ? &quantize_blocks<T, 8> : &quantize_blocks<T, 4>;
    launch_blocks(kernel, args.x.elements() / kQuantizedBlock, launch, data_of<T>(args.x), data_of<uint8_t>(args.packed));
  });
}

void compute(const Dequantize& args, const Launch& launch) {
  dispatch_narrow_float(args.out.dtype, [&]<typename T>() {
    const auto kernel = args.bits == 8 ? (args.accumulate ? &dequantize_blocks<T, 8, true> : &dequantize_blocks<T, 8, false>)
                                       : (args.accumulate ? &dequantize_blocks<T, 4, true> : &dequantize_blocks<T, 4, false>);
    launch_blocks(kernel, args.out.elements() / kQuantizedBlock, launch, data_of<uint8_t>(args.packed), data_of<T>(args.out));
  });
}

}  // namespace trivet::kernels::cuda
