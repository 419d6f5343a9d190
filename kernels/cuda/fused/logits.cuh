// Walks with a block of threads over a row of logits, which may be long and have any length and alignment.
#pragma once

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace trivet::kernels::cuda {

inline constexpr int kLogitThreads = 512;

// e^x with a relative error of at most (1 + |x|) 2^-22; 0 if that is below the normal range. expf is more exact, but its eight
// instructions for each logit, twice, take longer than memory.
__device__ __forceinline__ float power_of_e(float x) { return exp2_approximate(x * 1.4426950408889634f); }
__device__ __forceinline__ double power_of_e(double x) { return exp(x); }

// The larger number, ignoring NaN.
__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

// A row is divided into single elements up to the first address at which packs may start, packs, and single elements again.
// Every walk gives a thread the same elements.
template <typename T, int kPack>
class LogitWalk {
 public:
  __device__ __forceinline__ LogitWalk(const T* row, int cols) : cols_(cols) {
    constexpr auto kAlign = alignof(Pack<T, kPack>);
    head_ = min(cols, static_cast<int>((kAlign - reinterpret_cast<uintptr_t>(row) % kAlign) % kAlign / sizeof(T)));
    packs_ = (cols - head_) / kPack;
  }

  __device__ __forceinline__ int head() const { return head_; }
  __device__ __forceinline__ bool mine(int col) const {
    const int place = col - head_;
    if (place < 0 || place >= packs_ * kPack) return (place < 0 ? col : place - packs_ * kPack) == thread();
    return place / kPack % kLogitThreads == thread();
  }

  // use<N>(col, load<N>(col)) for this thread's elements; loads of several packs are in flight before the first is used.
  template <typename Load, typename Use>
  __device__ __forceinline__ void for_each(const Load& load, const Use& use) const {
    constexpr int kUnroll = 4;
    if (thread() < head_) use.template operator()<1>(thread(), load.template operator()<1>(thread()));
    int pack = thread();
    for (; pack + (kUnroll - 1) * kLogitThreads < packs_; pack += kUnroll * kLogitThreads) {
      decltype(load.template operator()<kPack>(0)) loaded[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) loaded[u] = load.template operator()<kPack>(column(pack + u * kLogitThreads));
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) use.template operator()<kPack>(column(pack + u * kLogitThreads), loaded[u]);
    }
    for (; pack < packs_; pack += kLogitThreads)
      use.template operator()<kPack>(column(pack), load.template operator()<kPack>(column(pack)));
    if (const int col = head_ + packs_ * kPack + thread(); col < cols_)
      use.template operator()<1>(col, load.template operator()<1>(col));
  }

 private:
  static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int column(int pack) const { return head_ + pack * kPack; }

  int cols_, head_, packs_;
};

// The maximum of the logits that a thread has seen, and the sum of exp(logit - maximum) (Milakov & Gimelshein 2018).
template <typename Sum>
struct RunningSum {
  Sum maximum = -static_cast<Sum>(INFINITY), sum = 0;

  template <typename T, int N>
  __device__ __forceinline__ void add(const Pack<T, N>& pack) {
    Sum highest = maximum;
#pragma unroll
    for (int i = 0; i < N; ++i) highest = larger(highest, widen(pack[i]));
    if (highest > maximum) {
      sum = sum == 0 ? sum : sum * power_of_e(maximum - highest);
      maximum = highest;
    }
    const Sum base = maximum == -static_cast<Sum>(INFINITY) ? Sum(0) : maximum;  // so far nothing but -infinity
#pragma unroll
    for (int i = 0; i < N; ++i) sum += power_of_e(widen(pack[i]) - base);
  }
  // Joins all threads of the block: sets the maximum, and returns the sum in double.
  __device__ __forceinline__ double join() {
    const Sum highest = join_group<kLogitThreads>(maximum, Maximum());
    const Sum mine = sum == 0 ? sum : sum * power_of_e(maximum - highest);
    maximum = highest;
    return join_group<kLogitThreads>(static_cast<double>(mine), Plus());
  }
};

// Where the chunks of CrossEntropy::chunk_ends end.
struct LogitChunks {
  static constexpr int kMost = 256;
  int count = 0;  // 0: the row is summed as one; otherwise a power of two
  int ends[kMost];
};

// The order in which a chunk is summed depends only on positions within the chunk, not on the rank that has it or where it
// starts. Each chunk's sum is rounded, and the balanced tree of kernels/balanced_tree.h adds them. All threads get the sum.
template <typename T>
__device__ SumOf<T> sum_of_chunks(const T* row, SumOf<T> maximum, const LogitChunks& chunks) {
  using Sum = SumOf<T>;
  __shared__ Sum sums[LogitChunks::kMost];
  __shared__ bool some[LogitChunks::kMost];  // a chunk without elements adds nothing
  for (int c = 0; c < chunks.count; ++c) {
    const int begin = c == 0 ? 0 : chunks.ends[c - 1], end = chunks.ends[c];
    Sum mine = 0;
    for (int col = begin + static_cast<int>(threadIdx.x); col < end; col += kLogitThreads)
      mine += power_of_e(widen(row[col]) - maximum);
    const double sum = join_group<kLogitThreads>(static_cast<double>(mine), Plus());
    if (threadIdx.x == 0) {
      sums[c] = static_cast<Sum>(sum);
      some[c] = begin != end;
    }
  }
  if (threadIdx.x == 0)
    for (int width = 1; width < chunks.count; width *= 2)
      for (int left = 0; left < chunks.count; left += 2 * width) {
        const int right = left + width;
        sums[left] = !some[right] ? sums[left] : some[left] ? sums[left] + sums[right] : sums[right];
        some[left] = some[left] || some[right];
      }
  __syncthreads();
  const Sum sum = some[0] ? sums[0] : Sum(0);
  __syncthreads();
  return sum;
}

}  // namespace trivet::kernels::cuda
