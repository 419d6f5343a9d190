// The parts of attention without tensor cores. A warp has a few "own" rows: queries, or keys in one pass of the backward. Their
// partners come in tiles with one partner per lane, so that a score needs no sum over lanes. In sums over partners, each lane
// has columns of its own.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>
#include <string>
#include <type_traits>

#include "core/cuda/launch.h"
#include "core/random.h"
#include "kernels/cuda/attention_blocks.cuh"
#include "kernels/cuda/attention_simple.h"

namespace trivet::kernels::cuda::simple {

constexpr int kPartners = kWarpThreads;  // in a tile

// Shared memory limits the number of rows of a block.
template <typename Sum>
struct SimpleBlock {
  static constexpr int kWarps = std::is_same_v<Sum, double> ? 4 : 8;
  static constexpr int kRowsOfWarp = std::is_same_v<Sum, double> ? 1 : 4;
  static constexpr int kThreads = kWarps * kWarpThreads, kRows = kWarps * kRowsOfWarp;
};

__device__ __forceinline__ float power_of_2(float x) { return exp2f(x); }
__device__ __forceinline__ double power_of_2(double x) { return exp2(x); }
__device__ __forceinline__ float natural_log(float x) { return logf(x); }
__device__ __forceinline__ double natural_log(double x) { return log(x); }

template <typename Sum>
__device__ __forceinline__ Sum maximum_of_warp(Sum x) {
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    const Sum other = __shfl_xor_sync(0xffffffffu, x, distance);
    x = other > x ? other : x;
  }
  return x;
}
template <typename Sum>
__device__ __forceinline__ Sum sum_of_warp(Sum x) {
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

// A score as the exponent of a power of two, and the derivative of the score by what it was before the soft cap.
template <typename Sum>
struct CappedScore {
  Sum exponent, slope;
};

__device__ __forceinline__ float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ __forceinline__ double hyperbolic_tangent(double x) { return tanh(x); }

// The rule that turns the product of a query and a key into a score: scaled and, with a cap, capped.
template <typename Sum>
struct ScoreRule {
  ScoreScale<Sum> scale;
  Sum soft_cap;  // 0: none

  template <typename Args>  // Attention, AttentionBackward
  explicit ScoreRule(const Args& args) : scale(args), soft_cap(static_cast<Sum>(args.soft_cap)) {}

  __device__ __forceinline__ CappedScore<Sum> operator()(Sum product) const {
    if (soft_cap == 0) return {product * scale.log2, Sum{1}};
    const Sum share = hyperbolic_tangent(product * scale.plain / soft_cap);
    return {share * soft_cap * static_cast<Sum>(kLog2E), Sum{1} - share * share};
  }
};

// The keys that a query sees: those of its token and before it in its document, the last `window` of them, or all.
struct Sight {
  bool causal;
  int window;  // at most S, which hides nothing
  int tokens;
  const int32_t* documents;  // null: each sequence is one

  template <typename Args>  // Attention, AttentionBackward
  explicit Sight(const Args& args)
      : causal(args.causal),
        window(static_cast<int>(args.hides_early_keys() ? args.window : args.qkv.shape[1])),
        tokens(static_cast<int>(args.qkv.shape[1])),
        documents(static_cast<const int32_t*>(args.documents.data)) {}

  __device__ __forceinline__ int first_of_document(int64_t sequence, int token) const {
    if (documents == nullptr) return 0;
    return token < tokens ? documents[sequence * tokens + token] : tokens;
  }
  // The first key that this query sees; not less than that of an earlier query.
  __device__ __forceinline__ int first_key(int64_t sequence, int query) const {
    return causal ? max(query - window + 1, first_of_document(sequence, query)) : 0;
  }
};

// A query and a key of one head.
struct Pair {
  int64_t sequence;
  int head, query, key;

  // Checks whether the query, which exists, sees the key, and the key exists.
  __device__ __forceinline__ bool sees(int tokens, const Sight& sight) const {
    return sight.causal ? key <= query && key >= sight.first_key(sequence, query) : key < tokens;
  }
};

// The dropout factor of one probability.
template <typename Sum>
__device__ __forceinline__ Sum dropout_factor(const AttentionDropout& dropout, const AttentionSizes& sizes, const Pair& pair) {
  if (dropout.rate == 0) return Sum{1};
  const uint64_t element =
      dropout.first_element + static_cast<uint64_t>((int64_t{pair.head} * sizes.tokens + pair.query) * sizes.tokens + pair.key);
  const PhiloxBlock words = philox(dropout.key, element / 4, dropout.counter_high(pair.sequence));
  const uint32_t place = static_cast<uint32_t>(element % 4);
  const uint32_t word = place == 0 ? words[0] : place == 1 ? words[1] : place == 2 ? words[2] : words[3];
  return unit_float(word) < dropout.rate ? Sum{0} : Sum{1} / (Sum{1} - static_cast<Sum>(dropout.rate));
}

// One head's columns of a tensor [B, S, width], in the rows of one sequence.
template <typename T>
struct HeadColumns {
  T* tensor;
  int64_t width, first_row, first_col;
  int tokens, head_size;

  // `head` counts all heads of the tensor; those of qkv are query heads, then key heads, then value heads.
  __device__ __forceinline__ HeadColumns(T* all, int64_t all_columns, const AttentionSizes& sizes, int64_t sequence, int head)
      : tensor(all),
        width(all_columns),
        first_row(sequence * sizes.tokens),
        first_col(static_cast<int64_t>(head) * sizes.head_size),
        tokens(sizes.tokens),
        head_size(sizes.head_size) {}

  __device__ __forceinline__ T* row(int token) const { return tensor + (first_row + token) * width + first_col; }
};

// Two matrices with the same rows: keys and values, or queries and dO. The x of one side times the x of the other side is a
// score; y times y is dP.
template <typename T>
struct Side {
  HeadColumns<const T> x, y;
};
template <typename T>
__device__ __forceinline__ Side<T> keys_and_values(const T* qkv, const AttentionSizes& sizes, int64_t sequence, int group) {
  return {HeadColumns(qkv, sizes.qkv_width, sizes, sequence, sizes.heads + group),
          HeadColumns(qkv, sizes.qkv_width, sizes, sequence, sizes.heads + sizes.key_value_heads + group)};
}

// The rows of a matrix in shared memory from row `first` on, in the type of the sums.
template <typename Sum>
struct SharedRows {
  Sum* matrix;
  int stride, first;

  __device__ __forceinline__ Sum& operator()(int row, int d) const { return matrix[(first + row) * stride + d]; }
};

// The shared memory of a block: two tiles of partners, own rows of kOwnMatrices matrices, and kFactors numbers for each own row
// and partner.
template <typename Sum, int kOwnMatrices, int kFactors>
struct BlockMemory {
  using Block = SimpleBlock<Sum>;

  Sum* data;
  int head_size, warp_row;  // warp_row: the first own row of this warp

  __device__ __forceinline__ BlockMemory(Sum* shared, const AttentionSizes& sizes)
      : data(shared), head_size(sizes.head_size), warp_row(warp_index() * Block::kRowsOfWarp) {}

  // If D is even, tiles have an odd stride, so that a column of a tile is spread over 32 banks.
  __device__ __forceinline__ SharedRows<Sum> tile(int i) const {
    return {data + i * kPartners * (head_size + 1), head_size + 1, 0};
  }
  // The own rows of this warp, and its factors.
  __device__ __forceinline__ SharedRows<Sum> own(int i) const {
    return {tile(2).matrix + i * Block::kRows * head_size, head_size, warp_row};
  }
  __device__ __forceinline__ SharedRows<Sum> factors(int i) const {
    return {own(kOwnMatrices).matrix + i * Block::kRows * kPartners, kPartners, warp_row};
  }

  static size_t bytes(int head_size) {
    return sizeof(Sum) * static_cast<size_t>(2 * kPartners * (head_size + 1) + kOwnMatrices * Block::kRows * head_size +
                                             kFactors * Block::kRows * kPartners);
  }
};

// The rows that a warp copies: begin, begin + step ... before end.
struct WarpRows {
  int begin, end, step;
};

// Copies rows into shared memory. Row 0 is that of token `first`; rows after the last token become zeros.
template <typename T, typename Sum>
__device__ __forceinline__ void copy_rows(const HeadColumns<const T>& from, int first, const SharedRows<Sum>& to,
                                          const WarpRows& rows) {
  for (int row = rows.begin; row < rows.end; row += rows.step)
    for (int d = lane_index(); d < from.head_size; d += kWarpThreads)
      to(row, d) = first + row < from.tokens ? static_cast<Sum>(from.row(first + row)[d]) : Sum{0};
}

// The warp copies its own rows.
template <typename T, typename Sum>
__device__ __forceinline__ void copy_own(const HeadColumns<const T>& from, int first, const SharedRows<Sum>& own) {
  copy_rows(from, first, own, {.begin = 0, .end = SimpleBlock<Sum>::kRowsOfWarp, .step = 1});
}

// The warps of a block together replace the tiles of partners by those from token `first` on.
template <typename T, typename Sum, int kOwnMatrices, int kFactors>
__device__ __forceinline__ void copy_partners(const Side<T>& from, int first,
                                              const BlockMemory<Sum, kOwnMatrices, kFactors>& memory) {
  const WarpRows rows{.begin = warp_index(), .end = kPartners, .step = SimpleBlock<Sum>::kWarps};
  __syncthreads();  // nobody still reads the previous tiles
  copy_rows(from.x, first, memory.tile(0), rows);
  copy_rows(from.y, first, memory.tile(1), rows);
  __syncthreads();
}

// sums[own row] = sum over d of own[row, d] tile[lane, d]
template <typename Sum, int kRows>
__device__ __forceinline__ void products(const SharedRows<Sum>& own, const SharedRows<Sum>& tile, int head_size,
                                         Sum (&sums)[kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = 0;
  for (int d = 0; d < head_size; ++d) {
    const Sum partner = tile(lane_index(), d);
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[r] += own(r, d) * partner;
  }
}

// sums[own row][i] += sum over partners of factors[row, partner] tile[partner, lane + 32 i]
template <typename Sum, int kRows, int kColsOfLane>
__device__ __forceinline__ void add_weighted(const SharedRows<Sum>& factors, const SharedRows<Sum>& tile, int head_size,
                                             Sum (&sums)[kRows][kColsOfLane]) {
  for (int partner = 0; partner < kPartners; ++partner)
#pragma unroll
    for (int i = 0; i < kColsOfLane; ++i) {
      const int d = lane_index() + i * kWarpThreads;
      const Sum value = d < head_size ? tile(partner, d) : Sum{0};
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r][i] += factors(r, partner) * value;
    }
}

// to[row, :] = factor * sums
template <typename T, typename Sum, int kColsOfLane>
__device__ __forceinline__ void store_row(const Sum (&sums)[kColsOfLane], Sum factor, int head_size, T* to) {
#pragma unroll
  for (int i = 0; i < kColsOfLane; ++i) {
    const int d = lane_index() + i * kWarpThreads;
    if (d < head_size) to[d] = static_cast<T>(sums[i] * factor);
  }
}

// Calls body.operator()<T, Sum, kColsOfLane>().
template <typename Body>
void dispatch_simple(DType dtype, int head_size, Body&& body) {
  const auto with_types = [&]<typename T, typename Sum>() {
    if (head_size <= 64) return body.template operator()<T, Sum, 2>();
    if (head_size <= 128) return body.template operator()<T, Sum, 4>();
    if (head_size <= kLargestHeadSize) return body.template operator()<T, Sum, kLargestHeadSize / kWarpThreads>();
    throw std::logic_error("attention: the head size is " + std::to_string(head_size) + "; on CUDA it may be at most " +
                           std::to_string(kLargestHeadSize));
  };
  switch (dtype) {
    case DType::Float32: return with_types.template operator()<float, float>();
    case DType::BFloat16: return with_types.template operator()<__nv_bfloat16, float>();
    case DType::Float16: return with_types.template operator()<__half, float>();
    case DType::Float64: return with_types.template operator()<double, double>();
    default: throw std::logic_error("attention: not a floating-point type");
  }
}

// The order of the blocks of all sequences with `heads` heads each.
template <typename Sum>
BlockOrder order_of(const AttentionSizes& sizes, int heads) {
  return {(sizes.tokens + SimpleBlock<Sum>::kRows - 1) / SimpleBlock<Sum>::kRows, sizes.sequences * heads,
          int64_t{2} * sizes.tokens * sizes.head_size * static_cast<int64_t>(sizeof(Sum))};
}

}  // namespace trivet::kernels::cuda::simple
