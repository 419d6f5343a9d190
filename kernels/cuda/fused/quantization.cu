// Block quantization (kernels/quantization.h). A warp has a block of 256 elements, and a lane 8 neighbours in it, whose codes
// are one or two words.
#include "kernels/cuda/fused/elements.cuh"
#include "kernels/quantization.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kWarp = 32, kWarpsPerBlock = 4, kOfLane = kQuantizedBlock / kWarp;
constexpr int kWordBits = 32;

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

// The elements of a lane. Views that begin anywhere are read and written one element at a time.
template <bool kAligned, typename T>
__device__ __forceinline__ Pack<T, kOfLane> load_elements(const T* from) {
  if constexpr (kAligned) {
    return load_pack<kOfLane>(from);
  } else {
    Pack<T, kOfLane> elements;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) elements[i] = from[i];
    return elements;
  }
}
template <bool kAligned, typename T>
__device__ __forceinline__ void store_elements(T* to, const Pack<T, kOfLane>& elements) {
  if constexpr (kAligned) {
    store_pack(to, elements);
  } else {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) to[i] = elements[i];
  }
}

// The codes of a lane: the first one is in the lowest bits.
template <int kBits>
struct Codes {
  uint32_t words[kOfLane * kBits / kWordBits] = {};

  __device__ __forceinline__ void set(int i, int code) {
    const auto bits = static_cast<uint32_t>(kBits == 8 ? code & 255 : code + 8);
    words[i * kBits / kWordBits] |= bits << (i * kBits % kWordBits);
  }
  __device__ __forceinline__ int at(int i) const {
    const uint32_t bits = words[i * kBits / kWordBits] >> (i * kBits % kWordBits);
    return kBits == 8 ? static_cast<int>(static_cast<int8_t>(bits & 255)) : static_cast<int>(bits & 15) - 8;
  }
};

template <typename T, int kBits, bool kAligned>
__global__ void __launch_bounds__(kWarp* kWarpsPerBlock) quantize_blocks(const T* x, uint8_t* packed, int64_t blocks) {
  constexpr auto kLargest = static_cast<float>(largest_code(kBits));
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for_each_quantized_block(blocks, [&](int64_t block) {
    uint8_t* const codes = packed + block * quantized_block_bytes(kBits);
    const Pack<T, kOfLane> elements = load_elements<kAligned>(x + block * kQuantizedBlock + lane * kOfLane);
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const unsigned magnitude = __float_as_uint(widen(elements[i])) & 0x7fffffffu;
      bits = magnitude > bits ? magnitude : bits;
    }
    bits = largest_of_warp(bits);
    const float largest = __uint_as_float(bits);
    const bool finite = bits < 0x7f800000u, zeros = largest < 0x1p-100f;
    const float scale = finite ? (zeros ? 0.0f : __fdiv_rn(largest, kLargest)) : __uint_as_float(0x7fc00000u);
    const float inverse = finite && !zeros ? __fdiv_rn(kLargest, largest) : 0.0f;
    Codes<kBits> of_lane;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i)
      of_lane.set(i, finite ? static_cast<int>(rintf(__fmul_rn(widen(elements[i]), inverse))) : 0);
    reinterpret_cast<Codes<kBits>*>(codes)[lane] = of_lane;
    if (lane == 0) *reinterpret_cast<float*>(codes + kQuantizedBlock * kBits / 8) = scale;
  });
}

template <typename T, int kBits, bool kAdd, bool kAligned>
__global__ void __launch_bounds__(kWarp* kWarpsPerBlock) dequantize_blocks(const uint8_t* packed, T* out, int64_t blocks) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for_each_quantized_block(blocks, [&](int64_t block) {
    const uint8_t* const codes = packed + block * quantized_block_bytes(kBits);
    T* const to = out + block * kQuantizedBlock + lane * kOfLane;
    const float scale = *reinterpret_cast<const float*>(codes + kQuantizedBlock * kBits / 8);
    const Codes<kBits> of_lane = reinterpret_cast<const Codes<kBits>*>(codes)[lane];
    Pack<T, kOfLane> elements;
    if constexpr (kAdd) elements = load_elements<kAligned>(static_cast<const T*>(to));
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const float value = __fmul_rn(static_cast<float>(of_lane.at(i)), scale);
      elements[i] = narrow<T>(kAdd ? __fadd_rn(widen(elements[i]), value) : value);
    }
    store_elements<kAligned>(to, elements);
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
    const auto with_alignment = [&]<bool kAligned>() {
      return args.bits == 8 ? &quantize_blocks<T, 8, kAligned> : &quantize_blocks<T, 4, kAligned>;
    };
    const auto kernel = aligned_for_packs<kOfLane>(data_of<T>(args.x)) ? with_alignment.template operator()<true>()
                                                                       : with_alignment.template operator()<false>();
    launch_blocks(kernel, args.x.elements() / kQuantizedBlock, launch, data_of<T>(args.x), data_of<uint8_t>(args.packed));
  });
}

void compute(const Dequantize& args, const Launch& launch) {
  dispatch_narrow_float(args.out.dtype, [&]<typename T>() {
    const auto with_alignment = [&]<bool kAligned>() {
      if (args.bits == 8)
        return args.accumulate ? &dequantize_blocks<T, 8, true, kAligned> : &dequantize_blocks<T, 8, false, kAligned>;
      return args.accumulate ? &dequantize_blocks<T, 4, true, kAligned> : &dequantize_blocks<T, 4, false, kAligned>;
    };
    const auto kernel = aligned_for_packs<kOfLane>(data_of<T>(args.out)) ? with_alignment.template operator()<true>()
                                                                         : with_alignment.template operator()<false>();
    launch_blocks(kernel, args.out.elements() / kQuantizedBlock, launch, data_of<uint8_t>(args.packed), data_of<T>(args.out));
  });
}

}  // namespace trivet::kernels::cuda
