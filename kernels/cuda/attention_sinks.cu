// Sinks of attention. A block has one token of one sequence, a warp some of its heads.
#include "kernels/cuda/attention_simple.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace trivet::kernels::cuda {
namespace {

constexpr int kWarps = 4;

template <typename Sum>
__device__ __forceinline__ Sum e_to(Sum x) {
  return simple::power_of_2(x * static_cast<Sum>(kLog2E));
}

// The place of a head's statistic; the blocks are the rows of out.
struct SinkSizes {
  int tokens, heads, head_size;
  __device__ __forceinline__ int64_t statistic(int64_t row, int head) const {
    return (row / tokens * heads + head) * tokens + row % tokens;
  }
};

template <typename T, typename Sum>
__global__ void __launch_bounds__(kWarps* kWarp) add_sinks(const T* sinks, T* out, Sum* log_sum_exp, SinkSizes sizes) {
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int head = static_cast<int>(threadIdx.x) / kWarp; head < sizes.heads; head += kWarps) {
    Sum& place = log_sum_exp[sizes.statistic(row, head)];
    const Sum sum = place, distance = Sum(widen(sinks[head])) - sum;
    const Sum grown =
        sum + (distance > 0 ? distance : Sum{0}) + simple::natural_log(1 + e_to(distance > 0 ? -distance : distance));
    const Sum weight = e_to(sum - grown);
    T* const of_head = out + (row * sizes.heads + head) * sizes.head_size;
    for (int e = lane; e < sizes.head_size; e += kWarp) of_head[e] = narrow<T>(weight * widen(of_head[e]));
    __syncwarp();  // all lanes have read the statistic
    if (lane == 0) place = grown;
  }
}

template <typename T, typename Sum>
__global__ void __launch_bounds__(kWarps* kWarp)
    gradients_of_sinks(const T* dout, const T* out, const Sum* log_sum_exp, const T* sinks, T* dsinks, SinkSizes sizes) {
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int head = static_cast<int>(threadIdx.x) / kWarp; head < sizes.heads; head += kWarps) {
    const int64_t first = (row * sizes.heads + head) * sizes.head_size;
    Sum product = 0;
    for (int64_t e = first + lane; e < first + sizes.head_size; e += kWarp) product += Sum(widen(dout[e])) * Sum(widen(out[e]));
    product = join_warp(product, Plus{});
    if (lane == 0)
      dsinks[row * sizes.heads + head] =
          narrow<T>(-e_to(Sum(widen(sinks[head])) - log_sum_exp[sizes.statistic(row, head)]) * product);
  }
}

SinkSizes sizes_of(ConstTensorView out, int64_t heads) {
  return {static_cast<int>(out.shape[1]), static_cast<int>(heads), static_cast<int>(out.shape[2] / heads)};
}

}  // namespace

void compute(const AttentionSinks& args, const Launch& launch) {
  if (args.out.elements() == 0) return;
  dispatch_device_float(args.out.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    TRIVET_LAUNCH((add_sinks<T, Sum>), static_cast<unsigned>(args.out.shape.rows()), kWarps * kWarp, 0, launch.stream,
                  static_cast<const T*>(args.sinks.data), static_cast<T*>(args.out.data),
                  static_cast<Sum*>(args.log_sum_exp.data), sizes_of(args.out, args.heads()));
  });
}

void compute(const AttentionSinksBackward& args, const Launch& launch) {
  if (args.out.elements() == 0) return;
  dispatch_device_float(args.out.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    TRIVET_LAUNCH((gradients_of_sinks<T, Sum>), static_cast<unsigned>(args.out.shape.rows()), kWarps * kWarp, 0, launch.stream,
                  static_cast<const T*>(args.dout.data), static_cast<const T*>(args.out.data),
                  static_cast<const Sum*>(args.log_sum_exp.data), static_cast<const T*>(args.sinks.data),
                  static_cast<T*>(args.dsinks.data), sizes_of(args.out, args.heads()));
  });
}

}  // namespace trivet::kernels::cuda
