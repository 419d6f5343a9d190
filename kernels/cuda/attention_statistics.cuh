// The first pass of attention's backward: it computes two numbers for every row (query i of head n of sequence b), which the
// other two passes read, in the order [B, N, padded S].
//
//   offsets = log2(e) log_sum_exp, so that a probability is 2^(log2(e) score / sqrt(D) - offset)
//   deltas  = sum over d of dO O
//
// Rows from S on get the offset infinity, and therefore probabilities of 0.
#pragma once

#include "core/cuda/launch.h"
#include "kernels/cuda/attention_blocks.cuh"
#include "kernels/cuda/math.h"

namespace trivet::kernels::cuda {

// Sum: float, or double for float64.
template <typename Sum>
struct AttentionStatistics {
  Sum *offsets, *deltas;
  int padded_tokens;

  AttentionStatistics(const AttentionSizes& sizes, const TensorView& workspace)
      : offsets(static_cast<Sum*>(workspace.data)),
        deltas(offsets + sizes.sequences * sizes.heads * sizes.padded_tokens),
        padded_tokens(sizes.padded_tokens) {}

  // Where the rows of a head of a sequence begin.
  __device__ __forceinline__ int64_t first_row(int64_t sequence, int heads, int head) const {
    return (sequence * heads + head) * padded_tokens;
  }
};

inline constexpr int kStatisticsThreads = 256, kLanesOfRow = 8;

// Numbers that a lane reads at a time, aligned to their total size.
template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) Numbers {
  T numbers[kCount];
};

// kLanesOfRow lanes sum one row, in a fixed order.
template <typename T, typename Sum, int kAtOnce>
__global__ void __launch_bounds__(kStatisticsThreads)
    attention_statistics_kernel(const T* dout, const T* out, const Sum* log_sum_exp, AttentionSizes sizes,
                                AttentionStatistics<Sum> statistics) {
  const int64_t row = (int64_t{blockIdx.x} * kStatisticsThreads + threadIdx.x) / kLanesOfRow;
  const int lane = static_cast<int>(threadIdx.x) % kLanesOfRow;
  const int64_t token = row / sizes.heads % sizes.padded_tokens, sequence = row / sizes.heads / sizes.padded_tokens;
  const int head = static_cast<int>(row % sizes.heads);
  const bool present = sequence < sizes.sequences && token < sizes.tokens;
  Sum delta = 0;
  if (present) {
    const int64_t first = ((sequence * sizes.tokens + token) * sizes.heads + head) * sizes.head_size;
    using Read = Numbers<T, kAtOnce>;
    for (int d = lane * kAtOnce; d < sizes.head_size; d += kLanesOfRow * kAtOnce) {
      const Read x = *reinterpret_cast<const Read*>(dout + first + d), y = *reinterpret_cast<const Read*>(out + first + d);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) delta += static_cast<Sum>(x.numbers[i]) * static_cast<Sum>(y.numbers[i]);
    }
  }
  for (int distance = kLanesOfRow / 2; distance > 0; distance /= 2) delta += __shfl_xor_sync(0xffffffffu, delta, distance);
  if (sequence >= sizes.sequences || lane != 0) return;
  const int64_t place = statistics.first_row(sequence, sizes.heads, head) + token;
  const int64_t source = (sequence * sizes.heads + head) * sizes.tokens + token;
  statistics.offsets[place] = present ? log_sum_exp[source] * static_cast<Sum>(kLog2E) : static_cast<Sum>(INFINITY);
  statistics.deltas[place] = delta;
}

// kAtOnce divides the head size, and dout and out are aligned to kAtOnce numbers.
template <typename T, typename Sum, int kAtOnce>
AttentionStatistics<Sum> start_statistics(const AttentionBackward& args, const AttentionSizes& sizes, const Launch& launch) {
  if (launch.workspace.bytes() < workspace_bytes(args))
    throw std::logic_error("attention_backward: the workspace has " + std::to_string(launch.workspace.bytes()) +
                           " bytes but needs " + std::to_string(workspace_bytes(args)));
  const AttentionStatistics<Sum> statistics(sizes, launch.workspace);
  const int64_t threads = sizes.sequences * sizes.heads * sizes.padded_tokens * kLanesOfRow;
  TRIVET_LAUNCH((attention_statistics_kernel<T, Sum, kAtOnce>),
                static_cast<unsigned>((threads + kStatisticsThreads - 1) / kStatisticsThreads), kStatisticsThreads, 0,
                launch.stream, static_cast<const T*>(args.dout.data), static_cast<const T*>(args.out.data),
                static_cast<const Sum*>(args.log_sum_exp.data), sizes, statistics);
  return statistics;
}

}  // namespace trivet::kernels::cuda
