// Block quantisation, with the same bits as on the CPU. kLanes lanes of a warp share a block: each takes every kLanes-th run of
// eight elements. Together they find the largest magnitude; then each reads its runs again, from the first-level cache, and
// rounds them.
#include "kernels/quantize.h"

#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/reduce.cuh"

namespace trivet::kernels::cuda {
namespace {

constexpr int kThreads = 256, kRun = 8;

// Loads kRun elements from `first` on; those from `end` on are zero. Aligned runs are read as packs.
template <typename T>
__device__ __forceinline__ Pack<float, kRun> load_run(const T* x, int64_t first, int64_t end, bool aligned) {
  Pack<float, kRun> run;
  if (aligned && first + kRun <= end) {
    const Pack<T, kRun> loaded = load_pack<kRun>(x + first);
#pragma unroll
    for (int i = 0; i < kRun; ++i) run[i] = static_cast<float>(widen(loaded[i]));
  } else {
#pragma unroll
    for (int i = 0; i < kRun; ++i) run[i] = first + i < end ? static_cast<float>(widen(x[first + i])) : 0.0f;
  }
  return run;
}

// Stores the bytes of a run from byte `first` on, up to byte `end`.
template <int kBytes>
__device__ __forceinline__ void store_bytes(uint8_t* values, const Pack<uint8_t, kBytes>& bytes, int64_t first, int64_t end,
                                            bool aligned) {
  if (aligned && first + kBytes <= end) return store_pack(values + first, bytes);
#pragma unroll
  for (int i = 0; i < kBytes; ++i)
    if (first + i < end) values[first + i] = bytes[i];
}

template <int kBits>
constexpr int kRunBytes = kRun* kBits / 8;

template <typename T, int kBits, int kLanes>
__global__ void __launch_bounds__(kThreads, 2)
    quantize_blocks(const T* x, uint8_t* values, float* scales, int64_t elements, int block, bool aligned) {
  constexpr float kLargest = kBits == 8 ? 127.0f : 7.0f;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t blocks = (elements + block - 1) / block, step = int64_t{gridDim.x} * kThreads / kLanes;
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  // The lanes of a warp stay together, as the shuffles require.
  for (int64_t index = thread / kLanes, of_warp = thread / kWarp * (kWarp / kLanes); of_warp < blocks;
       index += step, of_warp += step) {
    const int64_t begin = min(index * block, elements), end = min(begin + block, elements);
    uint32_t largest = 0;
    for (int64_t first = begin + lane * kRun; first < end; first += kLanes * kRun) {
      const Pack<float, kRun> run = load_run(x, first, end, aligned);
#pragma unroll
      for (int i = 0; i < kRun; ++i) largest = max(largest, magnitude_bits(run[i]));
    }
#pragma unroll
    for (int mask = kLanes / 2; mask > 0; mask /= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, mask));
    const float scale = scale_of_block(largest, kLargest);
    if (lane == 0 && index < blocks) scales[index] = scale;
    for (int64_t first = begin + lane * kRun; first < end; first += kLanes * kRun) {
      const Pack<float, kRun> run = load_run(x, first, end, aligned);
      Pack<uint8_t, kRunBytes<kBits>> bytes;
#pragma unroll
      for (int i = 0; i < kRun; i += 8 / kBits) {
        const int32_t value = quantized(run[i], scale, kLargest);
        if constexpr (kBits == 8)
          bytes[i] = static_cast<uint8_t>(value);
        else
          bytes[i / 2] = two_quantized(value, quantized(run[i + 1], scale, kLargest));
      }
      store_bytes(values, bytes, first * kBits / 8, (end * kBits + 7) / 8, aligned);
    }
  }
}

template <typename T, int kBits>
struct DequantizeRuns : ElementOp {
  const uint8_t* values;
  const float* scales;
  T* out;
  uint32_t block_64ths;
  bool accumulate;
  template <int N>
  struct Loaded {
    Pack<uint8_t, N * kBits / 8 + (N == 1 && kBits == 4)> values;
    float scale;
    Pack<T, N> before;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t first) const {
    Loaded<N> loaded;
    loaded.values = load_pack<sizeof(loaded.values.values)>(values + first * kBits / 8);
    loaded.scale = scales[static_cast<uint32_t>(first / 64) / block_64ths];  // 64-bit division is slow
    if (accumulate) loaded.before = load_pack<N>(static_cast<const T*>(out + first));
    return loaded;
  }
  template <int N>
  __device__ void finish(int64_t first, const Loaded<N>& loaded) const {
    Pack<T, N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      int32_t value = 0;
      if constexpr (kBits == 8)
        value = static_cast<int8_t>(loaded.values[i]);
      else
        value = one_quantized(loaded.values[i / 2], N == 1 ? static_cast<int>(first % 2) : i % 2);
      const float product = static_cast<float>(value) * loaded.scale;
      result[i] = accumulate ? narrow<T>(widen(loaded.before[i]) + product) : narrow<T>(product);
    }
    store_pack(out + first, result);
  }
};

template <typename T, int kBits>
void launch_quantize(const Quantize& args, const Launch& launch) {
  const T* x = data_of<T>(args.x);
  auto* values = data_of<uint8_t>(args.values);
  const bool aligned = aligned_for_packs<kRun>(x) && aligned_for_packs<kRunBytes<kBits>>(values);
  const auto with_lanes = [&]<int kLanes>() {
    const int64_t blocks = static_cast<int64_t>(args.scales.elements());
    TRIVET_LAUNCH((quantize_blocks<T, kBits, kLanes>), grid_blocks((blocks * kLanes + kThreads - 1) / kThreads, launch),
                  kThreads, 0, launch.stream, x, values, data_of<float>(args.scales), args.x.elements(),
                  static_cast<int>(args.block), aligned);
  };
  if (args.block % (kRun * 32) == 0) return with_lanes.template operator()<32>();
  if (args.block % (kRun * 16) == 0) return with_lanes.template operator()<16>();
  with_lanes.template operator()<8>();
}

template <typename T, int kBits>
void launch_dequantize(const Dequantize& args, const Launch& launch) {
  constexpr int kPack = std::max(2, kPackOf<T>);  // whole bytes
  DequantizeRuns<T, kBits> op;
  op.values = data_of<uint8_t>(args.values);
  op.scales = data_of<float>(args.scales);
  op.out = data_of<T>(args.out);
  op.block_64ths = static_cast<uint32_t>(args.block / 64);
  op.accumulate = args.accumulate;
  const bool aligned = aligned_for_packs<kPack>(op.out) && aligned_for_packs<kPack * kBits / 8>(op.values);
  launch_elements<kPack, 2>(op, args.out.elements(), aligned, launch);
}

}  // namespace

void compute(const Quantize& args, const Launch& launch) {
  if (args.x.elements() == 0) return;
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    if (args.bits == 8)
      launch_quantize<T, 8>(args, launch);
    else
      launch_quantize<T, 4>(args, launch);
  });
}

void compute(const Dequantize& args, const Launch& launch) {
  dispatch_device_float(args.out.dtype, [&]<typename T>() {
    if (args.bits == 8)
      launch_dequantize<T, 8>(args, launch);
    else
      launch_dequantize<T, 4>(args, launch);
  });
}

}  // namespace trivet::kernels::cuda
