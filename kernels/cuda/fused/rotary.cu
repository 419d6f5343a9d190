// Rotary embedding. A block has one token of each of its sequences. If they all have the same position, it computes that
// position's cosines and sines once, in double as the CPU does, and rotates all heads of all its sequences by them; if
// positions are given, it computes them for each sequence.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/cuda/attention_simple.h"
#include "kernels/cuda/fused/elements.cuh"

namespace trivet::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostPairs = kLargestHeadSize / 2;

template <typename T>
struct Heads {
  T* qkv;
  int64_t sequences, width;
  int positions, heads, head_size, half;  // heads: those that are rotated; half: the pairs of a head
  SumOf<T> direction;                     // 1, or -1 for the other direction
  double magnitude;
  const int32_t* given;  // positions, or null
  int64_t first;         // the first position, if they are not given
  double query_growth;   // 0: queries are only rotated
  int64_t query_step;
  int queries;  // elements of all query heads of a token
  double frequencies[kMostPairs];
};

// A function of its own, so that its registers are free again in the loop over the heads.
template <typename Sum>
[[gnu::noinline]] __device__ void turn(double angle, double magnitude, Sum* cosine, Sum* sine) {
  *cosine = static_cast<Sum>(magnitude * cos(angle));
  *sine = static_cast<Sum>(magnitude * sin(angle));
}

template <typename T>
__device__ void fill_table(const Heads<T>& a, int64_t position, SumOf<T>* cosine, SumOf<T>* sine) {
  for (int i = static_cast<int>(threadIdx.x); i < a.half; i += kThreads)
    turn(static_cast<double>(position) * a.frequencies[i], a.magnitude, cosine + i, sine + i);
  __syncthreads();
}

// Multiplies the queries of a token, which the block has rotated.
template <typename T>
__device__ void scale_queries(const Heads<T>& a, int64_t position, T* row) {
  if (position < a.query_step) return;
  const auto factor = static_cast<SumOf<T>>(1 + a.query_growth * log1p(static_cast<double>(position / a.query_step)));
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < a.queries; i += kThreads) row[i] = narrow<T>(widen(row[i]) * factor);
}

template <typename T, int kPack, bool kGiven>
__global__ void __launch_bounds__(kThreads) rotate(const __grid_constant__ Heads<T> a) {
  using Sum = SumOf<T>;
  TRIVET_DYNAMIC_SHARED(Sum, cosine);
  Sum* const sine = cosine + a.half;
  const int64_t position = blockIdx.x;
  if constexpr (!kGiven) fill_table(a, a.first + position, cosine, sine);
  const int packs = a.half / kPack, of_sequence = a.heads * packs;
  for (int64_t sequence = blockIdx.y; sequence < a.sequences; sequence += gridDim.y) {
    if constexpr (kGiven) {
      __syncthreads();  // the table of the sequence before has been read
      fill_table(a, a.given[sequence * a.positions + position], cosine, sine);
    }
    T* const row = a.qkv + (sequence * a.positions + position) * a.width;
#pragma unroll 2
    for (int place = static_cast<int>(threadIdx.x); place < of_sequence; place += kThreads) {
      const int head = place / packs, first = (place - head * packs) * kPack;
      T* const low = row + int64_t{head} * a.head_size + first;
      T* const high = low + a.half;
      Pack<T, kPack> x = load_pack<kPack>(low), y = load_pack<kPack>(high);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const Sum c = cosine[first + i], s = a.direction * sine[first + i], before_x = widen(x[i]), before_y = widen(y[i]);
        x[i] = narrow<T>(before_x * c - before_y * s);
        y[i] = narrow<T>(before_y * c + before_x * s);
      }
      store_pack(low, x);
      store_pack(high, y);
    }
    if (a.query_growth > 0)
      scale_queries(a, kGiven ? int64_t{a.given[sequence * a.positions + position]} : a.first + position, row);
  }
}

}  // namespace

void compute(const Rotary& args, const Launch& launch) {
  if (args.qkv.elements() == 0) return;
  const int64_t sequences = args.qkv.shape[0], positions = args.qkv.shape[1], width = args.qkv.shape[2];
  const int64_t half = args.pairs(), head_size = args.head_size();
  if (half > kMostPairs)
    throw std::logic_error("rotary: " + std::to_string(half) + " pairs of a head rotate; on CUDA it may be at most " +
                           std::to_string(kMostPairs));
  // If positions alone give too few blocks for the device, the sequences are divided among blocks too.
  const int64_t shares = std::clamp<int64_t>(launch.multiprocessors * 4 / positions, 1, std::min<int64_t>(sequences, 65535));
  dispatch_device_float(args.qkv.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    constexpr int kPack = kPackOf<T>;
    Heads<T> heads{.qkv = data_of<T>(args.qkv),
                   .sequences = sequences,
                   .width = width,
                   .positions = static_cast<int>(positions),
                   .heads = static_cast<int>(args.heads + args.key_value_heads),
                   .head_size = static_cast<int>(head_size),
                   .half = static_cast<int>(half),
                   .direction = args.backward ? Sum(-1) : Sum(1),
                   .magnitude = args.magnitude,
                   .given = data_of<int32_t>(args.positions),
                   .first = args.first,
                   .query_growth = args.query_growth,
                   .query_step = args.query_step,
                   .queries = static_cast<int>(args.heads * head_size),
                   .frequencies = {}};
    std::ranges::copy(args.frequencies, heads.frequencies);
    const bool packs = half % kPack == 0 && head_size % kPack == 0 && aligned_for_packs<kPack>(heads.qkv);
    const auto kernel = heads.given ? (packs ? &rotate<T, kPack, true> : &rotate<T, 1, true>)
                                    : (packs ? &rotate<T, kPack, false> : &rotate<T, 1, false>);
    TRIVET_LAUNCH(kernel, dim3(static_cast<unsigned>(positions), static_cast<unsigned>(shares)), kThreads,
                  static_cast<size_t>(2 * half) * sizeof(Sum), launch.stream, heads);
  });
}

}  // namespace trivet::kernels::cuda
