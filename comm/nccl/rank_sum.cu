#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "comm/nccl/rank_sum.h"
#include "core/cuda/launch.h"

namespace trivet::comm {
namespace {

constexpr int kThreads = 256;
constexpr int kTreeLevels = 10;  // a tree sum is over at most 2^10 ranks

template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float widen(__half x) { return __half2float(x); }

template <typename T>
__device__ inline T narrow(SumOf<T> x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16(x);
  else if constexpr (std::is_same_v<T, __half>)
    return __float2half(x);
  else
    return x;
}

// N neighbouring elements: 16 bytes in one access, or one element where pointers are not aligned.
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
};

template <typename T>
struct Pieces {
  const T* received;
  int64_t stride;
  const T* own;
  int rank, ranks;

  template <int N>
  __device__ Pack<T, N> load(int from, int64_t index) const {
    const T* piece = from == rank ? own : received + (from < rank ? from : from - 1) * stride;
    return *reinterpret_cast<const Pack<T, N>*>(piece + index);
  }
};

struct InRankOrder {
  template <typename T, int N>
  static __device__ Pack<T, N> combine(const Pieces<T>& pieces, int64_t index) {
    SumOf<T> sum[N];
    Pack<T, N> term = pieces.template load<N>(0, index);
    for (int i = 0; i < N; ++i) sum[i] = widen(term.at[i]);
#pragma unroll 2
    for (int from = 1; from < pieces.ranks; ++from) {
      term = pieces.template load<N>(from, index);
      for (int i = 0; i < N; ++i) sum[i] += widen(term.at[i]);
    }
    for (int i = 0; i < N; ++i) term.at[i] = narrow<T>(sum[i]);
    return term;
  }
};

// Like a binary counter: partial[l] holds the sum of 2^l ranks while bit l of the number of ranks read is set. The levels are
// unrolled, so that they stay in registers.
struct InTree {
  template <typename T, int N>
  static __device__ Pack<T, N> combine(const Pieces<T>& pieces, int64_t index) {
    SumOf<T> partial[kTreeLevels][N] = {};
    SumOf<T> carry[N] = {};
    for (int from = 0; from < pieces.ranks; ++from) {
      const Pack<T, N> term = pieces.template load<N>(from, index);
      for (int i = 0; i < N; ++i) carry[i] = widen(term.at[i]);
      bool carries = true;
#pragma unroll
      for (int level = 0; level < kTreeLevels; ++level) {
        if (!carries) continue;
        carries = (from >> level & 1) != 0;
        for (int i = 0; i < N; ++i) {
          if (carries)
            carry[i] = partial[level][i] + carry[i];
          else
            partial[level][i] = carry[i];
        }
      }
    }
    Pack<T, N> out;  // the number of ranks is a power of two, so the last carry is the sum of all
    for (int i = 0; i < N; ++i) out.at[i] = narrow<T>(carry[i]);
    return out;
  }
};

// NaN propagates, as in comm/reduce.cpp.
struct Largest {
  template <typename T, int N>
  static __device__ Pack<T, N> combine(const Pieces<T>& pieces, int64_t index) {
    Pack<T, N> largest = pieces.template load<N>(0, index);
    for (int from = 1; from < pieces.ranks; ++from) {
      const Pack<T, N> term = pieces.template load<N>(from, index);
      for (int i = 0; i < N; ++i) {
        const SumOf<T> x = widen(term.at[i]);
        if (x > widen(largest.at[i]) || x != x) largest.at[i] = term.at[i];
      }
    }
    return largest;
  }
};

template <typename T, int N, typename How>
__global__ void __launch_bounds__(kThreads) combine_ranks(Pieces<T> pieces, T* out, int64_t count) {
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t packs = count / N;
  for (int64_t pack = thread; pack < packs; pack += threads)
    *reinterpret_cast<Pack<T, N>*>(out + pack * N) = How::template combine<T, N>(pieces, pack * N);
  for (int64_t index = packs * N + thread; index < count; index += threads)
    out[index] = How::template combine<T, 1>(pieces, index).at[0];
}

template <typename T>
constexpr int kWide = 16 / static_cast<int>(sizeof(T));

bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

template <typename T, typename How>
void launch(const RankSum& sum, int blocks, cudaStream_t stream) {
  // Eight elements' partial sums of all levels would not fit into registers.
  constexpr int kPack = std::is_same_v<How, InTree> ? std::min(4, kWide<T>) : kWide<T>;
  const Pieces<T> pieces{static_cast<const T*>(sum.received), sum.stride, static_cast<const T*>(sum.own), sum.rank, sum.ranks};
  const bool packed = aligned(sum.received) && aligned(sum.own) && aligned(sum.out) && sum.stride % kPack == 0;
  const int64_t work = packed ? sum.count / kPack + sum.count % kPack : sum.count;
  const int grid = static_cast<int>(std::min<int64_t>((work + kThreads - 1) / kThreads, blocks));
  if (packed)
    TRIVET_LAUNCH((combine_ranks<T, kPack, How>), grid, kThreads, 0, stream, pieces, static_cast<T*>(sum.out), sum.count);
  else
    TRIVET_LAUNCH((combine_ranks<T, 1, How>), grid, kThreads, 0, stream, pieces, static_cast<T*>(sum.out), sum.count);
}

template <typename T>
void launch(const RankSum& sum, int blocks, cudaStream_t stream) {
  switch (sum.op) {
    case ReduceOp::Sum: return launch<T, InRankOrder>(sum, blocks, stream);
    case ReduceOp::TreeSum: return launch<T, InTree>(sum, blocks, stream);
    case ReduceOp::Max: return launch<T, Largest>(sum, blocks, stream);
  }
}

}  // namespace

void rank_sum(const RankSum& sum, int blocks, cudaStream_t stream) {
  if (sum.count == 0) return;
  if (sum.op == ReduceOp::TreeSum && sum.ranks > 1 << kTreeLevels)
    throw std::logic_error("rank_sum: a tree sum over more than 1024 ranks");
  switch (sum.dtype) {
    case DType::Float32: return launch<float>(sum, blocks, stream);
    case DType::BFloat16: return launch<__nv_bfloat16>(sum, blocks, stream);
    case DType::Float16: return launch<__half>(sum, blocks, stream);
    case DType::Float64: return launch<double>(sum, blocks, stream);
    default: throw std::logic_error("rank_sum: not a floating-point type");
  }
}

}  // namespace trivet::comm
