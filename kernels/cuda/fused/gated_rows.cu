// The gate of a shared expert, and the biases that balance experts. A warp has a row of the gate's gradient.
#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/expert_balance.h"
#include "kernels/experts.h"
#include "kernels/verdict.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarpsOfBlock = 4;

template <typename Sum>
__device__ __forceinline__ Sum sigmoid(Sum z) {
  const Sum small = exponential(z < 0 ? z : -z);
  return quotient(z < 0 ? small : Sum(1), Sum(1) + small);
}

template <typename T>
struct AddGatedOp {
  const T* x;
  const SumOf<T>* logits;
  T* y;
  int64_t width;
  template <int N>
  struct Loaded {
    Pack<T, N> x, y;
    SumOf<T> logit;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t row, int64_t col) const {
    return {load_pack<N>(x + row * width + col), load_pack<N>(y + row * width + col), logits[row]};
  }
  template <int N>
  __device__ void finish(int64_t row, int64_t col, const Loaded<N>& loaded) const {
    const SumOf<T> gate = sigmoid(loaded.logit);
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = narrow<T>(widen(loaded.y[i]) + gate * widen(loaded.x[i]));
    store_pack(y + row * width + col, out);
  }
};

template <typename T>
struct AddGatedGradient {
  using Sum = SumOf<T>;
  const T *dy, *x;
  const Sum* logits;
  T *dx, *dlogits;
  int64_t rows, width;

  // Adds the terms of N adjacent elements of the gate's gradient to `sum`.
  template <int N>
  __device__ __forceinline__ void add(int64_t place, Sum gate, Sum& sum) const {
    const Pack<T, N> gradients = load_pack<N>(dy + place), values = load_pack<N>(x + place);
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Sum gradient = widen(gradients[i]);
      sum += gradient * Sum(widen(values[i]));
      out[i] = narrow<T>(gate * gradient);
    }
    store_pack(dx + place, out);
  }
};

template <typename T>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarp) add_gated_backward(AddGatedGradient<T> args, bool aligned) {
  using Sum = SumOf<T>;
  constexpr int kPack = kPackOf<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.x} * kWarpsOfBlock + static_cast<int>(threadIdx.x) / kWarp;
  if (row >= args.rows) return;
  const Sum logit = args.logits[row], gate = sigmoid(logit);
  Sum sum = 0;
  for (int64_t col = lane * kPack; col < args.width; col += kWarp * kPack) {
    if (aligned && col + kPack <= args.width)
      args.template add<kPack>(row * args.width + col, gate, sum);
    else
#pragma unroll 1
      for (int64_t i = col; i < min(col + kPack, args.width); ++i) args.template add<1>(row * args.width + i, gate, sum);
  }
  sum = join_warp(sum, Plus{});
  if (lane == 0) args.dlogits[row] = narrow<T>(sum * gate * sigmoid(-logit));
}

__global__ void __launch_bounds__(kThreads) balance_experts(float* bias, const int64_t* counts, const double* verdict,
                                                            int64_t experts, int64_t first, int64_t count, double rate) {
  if (verdict != nullptr && verdict[kApply] == 0) return;
  __shared__ unsigned long long all;
  if (threadIdx.x == 0) all = 0;
  __syncthreads();
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) atomicAdd(&all, static_cast<unsigned long long>(counts[e]));
  __syncthreads();
  for (int64_t i = threadIdx.x; i < count; i += kThreads)
    bias[i] = balanced_bias(bias[i], static_cast<int64_t>(all), experts, counts[first + i], rate);
}

}  // namespace

void compute(const AddGated& args, const Launch& launch) {
  dispatch_device_float(args.y.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    const AddGatedOp<T> op{data_of<T>(args.x), data_of<SumOf<T>>(args.logits), data_of<T>(args.y), args.y.shape[1]};
    launch_rows<kPack, 2>(op, args.y.shape[0], op.width, aligned_for_packs<kPack>(op.x, op.y), launch);
  });
}

void compute(const AddGatedBackward& args, const Launch& launch) {
  if (args.dy.shape[0] == 0) return;
  dispatch_device_float(args.dy.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    const AddGatedGradient<T> op{data_of<T>(args.dy), data_of<T>(args.x),       data_of<SumOf<T>>(args.logits),
                                 data_of<T>(args.dx), data_of<T>(args.dlogits), args.dy.shape[0],
                                 args.dy.shape[1]};
    const bool aligned = op.width % kPack == 0 && aligned_for_packs<kPack>(op.dy, op.x, op.dx);
    TRIVET_LAUNCH(add_gated_backward<T>, static_cast<unsigned>((op.rows + kWarpsOfBlock - 1) / kWarpsOfBlock),
                  kWarpsOfBlock * kWarp, 0, launch.stream, op, aligned);
  });
}

void compute(const BalanceExperts& args, const Launch& launch) {
  TRIVET_LAUNCH(balance_experts, 1, kThreads, 0, launch.stream, data_of<float>(args.bias), data_of<int64_t>(args.counts),
                data_of<double>(args.verdict), args.counts.elements(), args.first, args.bias.elements(), args.rate);
}

}  // namespace trivet::kernels::cuda
