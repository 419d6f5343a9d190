// Attention without tensor cores. A warp has a few "own" rows: queries, or keys in one pass of the backward. Their partners
// come in tiles with one partner per lane, so that a score needs no sum over lanes. In sums over partners, each lane has
// columns of its own.
#include "kernels/cuda/attention_simple.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>
#include <string>
#include <type_traits>

#include "core/cuda/launch.h"
#include "core/random.h"
#include "kernels/cuda/attention_blocks.cuh"
#include "kernels/cuda/attention_statistics.cuh"

namespace trivet::kernels::cuda {
namespace {

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

// The keys that a query sees: those of its token and before it, the last `window` of them, or all.
struct Sight {
  bool causal;
  int window;  // at most S, which hides nothing

  template <typename Args>  // Attention, AttentionBackward
  explicit Sight(const Args& args)
      : causal(args.causal), window(static_cast<int>(args.hides_early_keys() ? args.window : args.qkv.shape[1])) {}

  // The first key that this query sees.
  __device__ __forceinline__ int first_key(int query) const { return causal ? max(query - window + 1, 0) : 0; }
};

// A query and a key of one head.
struct Pair {
  int64_t sequence;
  int head, query, key;

  // Checks whether the query, which exists, sees the key, and the key exists.
  __device__ __forceinline__ bool sees(int tokens, const Sight& sight) const {
    return sight.causal ? key <= query && key > query - sight.window : key < tokens;
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

template <typename T, typename Sum>
struct ForwardArguments {
  const T* qkv;
  T* out;
  Sum* log_sum_exp;
  AttentionSizes sizes;
  ScoreRule<Sum> rule;
  AttentionDropout dropout;
  BlockOrder order;
  Sight sight;
};

template <typename Sum>
using ForwardMemory = BlockMemory<Sum, 1, 1>;  // own rows of queries; probabilities

// The softmax of a warp's rows over the keys so far, and the sums of values that it weighs. Until the end, a total covers only
// this lane's keys.
template <typename Sum, int kColsOfLane>
struct RunningSoftmax {
  static constexpr int kRows = SimpleBlock<Sum>::kRowsOfWarp;

  Sum maximum[kRows], total[kRows], sums[kRows][kColsOfLane] = {};

  __device__ __forceinline__ RunningSoftmax() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) maximum[r] = -static_cast<Sum>(INFINITY), total[r] = 0;
  }
  // Returns 2^(score - maximum). Sums under an earlier maximum are scaled to the new one. A row that has seen no key
  // yet has no maximum.
  __device__ __forceinline__ Sum add(int r, Sum score) {
    const Sum highest = maximum_of_warp(score > maximum[r] ? score : maximum[r]);
    if (highest == -static_cast<Sum>(INFINITY) && score == highest) return 0;
    const Sum shrink = power_of_2(maximum[r] - highest), probability = power_of_2(score - highest);
    maximum[r] = highest;
    total[r] = total[r] * shrink + probability;
#pragma unroll
    for (int i = 0; i < kColsOfLane; ++i) sums[r][i] *= shrink;
    return probability;
  }
  // Divides the sums by the totals, and stores them and the log-sum-exp of each row. The first row is that of token first_row;
  // log_sum_exp points to the number of token 0.
  template <typename T>
  __device__ __forceinline__ void store(const HeadColumns<T>& out, Sum* log_sum_exp, int first_row) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Sum all = sum_of_warp(total[r]);
      const int row = first_row + r;
      if (row >= out.tokens) continue;
      store_row(sums[r], Sum{1} / all, out.head_size, out.row(row));
      if (lane_index() == 0) log_sum_exp[row] = maximum[r] / static_cast<Sum>(kLog2E) + natural_log(all);
    }
  }
};

template <typename T, typename Sum, int kColsOfLane>
__global__ void __launch_bounds__(SimpleBlock<Sum>::kThreads, 1) simple_attention_kernel(const ForwardArguments<T, Sum> args) {
  using Block = SimpleBlock<Sum>;
  TRIVET_DYNAMIC_SHARED(Sum, shared);
  const AttentionSizes sizes = args.sizes;  // a copy: with a reference, the kernel needs more registers
  const ForwardMemory<Sum> memory(shared, sizes);
  const SharedRows<Sum> keys = memory.tile(0), values = memory.tile(1);
  const SharedRows<Sum> queries = memory.own(0), probabilities = memory.factors(0);

  const QueryBlock block(args.order, sizes, Block::kRows);
  const int first_row = block.first_query + memory.warp_row;
  const int begin = args.sight.first_key(block.first_query) / kPartners * kPartners;
  const int end = args.sight.causal ? min(block.first_query + Block::kRows, sizes.tokens) : sizes.tokens;
  const Side<T> partners = keys_and_values(args.qkv, sizes, block.sequence, block.group);
  copy_own(HeadColumns(args.qkv, sizes.qkv_width, sizes, block.sequence, block.head), first_row, queries);

  RunningSoftmax<Sum, kColsOfLane> softmax;
  for (int first_key = begin; first_key < end; first_key += kPartners) {
    copy_partners(partners, first_key, memory);
    Sum scores[Block::kRowsOfWarp];
    products(queries, keys, sizes.head_size, scores);
    const int key = first_key + lane_index();
#pragma unroll
    for (int r = 0; r < Block::kRowsOfWarp; ++r) {
      const int query = first_row + r;
      const Pair pair{block.sequence, block.head, query, key};
      const Sum score = pair.sees(sizes.tokens, args.sight) ? args.rule(scores[r]).exponent : -static_cast<Sum>(INFINITY);
      const Sum probability = softmax.add(r, score);
      probabilities(r, lane_index()) = probability * dropout_factor<Sum>(args.dropout, sizes, pair);
    }
    __syncwarp();
    add_weighted(probabilities, values, sizes.head_size, softmax.sums);
    __syncwarp();  // before the next tile's probabilities
  }
  softmax.store(HeadColumns(args.out, sizes.out_width, sizes, block.sequence, block.head),
                args.log_sum_exp + (block.sequence * sizes.heads + block.head) * sizes.tokens, first_row);
}

template <typename T, typename Sum>
struct BackwardArguments {
  const T *qkv, *dout;
  T* dqkv;
  AttentionStatistics<Sum> statistics;
  AttentionSizes sizes;
  ScoreRule<Sum> rule;
  AttentionDropout dropout;
  BlockOrder order;
  Sight sight;
};

template <typename Sum>
using BackwardMemory = BlockMemory<Sum, 2, 2>;  // own rows of x and y; dS and probabilities

// The work of a block: own rows of one head, and their partners. Without kOwnKeys, own rows are queries with their rows of dO,
// partners are keys and values, and dQ is summed. With kOwnKeys it is the other way round, and dK and dV are summed over all
// query heads of a group.
template <typename Sum, bool kOwnKeys>
struct GradientsBlock {
  int64_t sequence;
  int group;
  int first_head, end_head;                   // query heads
  int first_own, first_partner, end_partner;  // tokens

  __device__ __forceinline__ GradientsBlock(const BlockOrder& order, const AttentionSizes& sizes, const Sight& sight) {
    constexpr int kRows = SimpleBlock<Sum>::kRows;
    if constexpr (kOwnKeys) {
      const KeyBlock block(order, sizes, kRows);
      sequence = block.sequence, group = block.group;
      first_head = block.first_head, end_head = first_head + sizes.heads / sizes.key_value_heads;
      first_own = block.first_key, first_partner = sight.causal ? first_own / kPartners * kPartners : 0;
      end_partner = sight.causal ? min(first_own + kRows + sight.window - 1, sizes.tokens) : sizes.tokens;
    } else {
      const QueryBlock block(order, sizes, kRows);
      sequence = block.sequence, group = block.group;
      first_head = block.head, end_head = first_head + 1;
      first_own = block.first_query, first_partner = sight.first_key(first_own) / kPartners * kPartners;
      end_partner = sight.causal ? min(first_own + kRows, sizes.tokens) : sizes.tokens;
    }
  }
};

template <typename T, typename Sum>
__device__ __forceinline__ Side<T> queries_and_douts(const BackwardArguments<T, Sum>& args, const AttentionSizes& sizes,
                                                     int64_t sequence, int head) {
  return {HeadColumns(args.qkv, sizes.qkv_width, sizes, sequence, head),
          HeadColumns(args.dout, sizes.out_width, sizes, sequence, head)};
}

// The probability after dropout, and dS without the factor 1 / sqrt(D).
template <typename Sum>
struct Factors {
  Sum probability, dscore;
};
template <typename T, typename Sum>
__device__ __forceinline__ Factors<Sum> factors_of(const BackwardArguments<T, Sum>& args, const AttentionSizes& sizes,
                                                   const Pair& pair, Sum score, Sum dprobability) {
  const bool sees = pair.query < sizes.tokens && pair.sees(sizes.tokens, args.sight);
  const int64_t row = args.statistics.first_row(pair.sequence, sizes.heads, pair.head) + (sees ? pair.query : 0);
  const CappedScore<Sum> capped = args.rule(score);
  const Sum probability = sees ? power_of_2(capped.exponent - args.statistics.offsets[row]) : Sum{0};
  const Sum factor = dropout_factor<Sum>(args.dropout, sizes, pair);
  return {probability * factor, probability * (dprobability * factor - args.statistics.deltas[row]) * capped.slope};
}

template <typename T, typename Sum, int kColsOfLane, bool kOwnKeys>
__global__ void __launch_bounds__(SimpleBlock<Sum>::kThreads, 1) simple_gradients_kernel(const BackwardArguments<T, Sum> args) {
  constexpr int kRows = SimpleBlock<Sum>::kRowsOfWarp;
  TRIVET_DYNAMIC_SHARED(Sum, shared);
  const AttentionSizes sizes = args.sizes;  // a copy, as in simple_attention_kernel
  const BackwardMemory<Sum> memory(shared, sizes);
  const SharedRows<Sum> x_tile = memory.tile(0), y_tile = memory.tile(1), x_own = memory.own(0), y_own = memory.own(1);
  const SharedRows<Sum> dscores = memory.factors(0), probabilities = memory.factors(1);

  const GradientsBlock<Sum, kOwnKeys> block(args.order, sizes, args.sight);
  const int first_row = block.first_own + memory.warp_row;
  const Side<T> of_keys = keys_and_values(args.qkv, sizes, block.sequence, block.group);
  const Side<T> own = kOwnKeys ? of_keys : queries_and_douts(args, sizes, block.sequence, block.first_head);
  copy_own(own.x, first_row, x_own);
  copy_own(own.y, first_row, y_own);

  Sum x_sums[kRows][kColsOfLane] = {}, y_sums[kRows][kColsOfLane] = {};  // dQ; or dK and dV
  for (int head = block.first_head; head < block.end_head; ++head) {
    const Side<T> partners = kOwnKeys ? queries_and_douts(args, sizes, block.sequence, head) : of_keys;
    for (int first = block.first_partner; first < block.end_partner; first += kPartners) {
      copy_partners(partners, first, memory);
      Sum scores[kRows], dprobabilities[kRows];
      products(x_own, x_tile, sizes.head_size, scores);
      products(y_own, y_tile, sizes.head_size, dprobabilities);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int row = first_row + r, partner = first + lane_index();
        const Pair pair{block.sequence, head, kOwnKeys ? partner : row, kOwnKeys ? row : partner};
        const Factors<Sum> factors = factors_of(args, sizes, pair, scores[r], dprobabilities[r]);
        probabilities(r, lane_index()) = factors.probability;
        dscores(r, lane_index()) = factors.dscore;
      }
      __syncwarp();
      add_weighted(dscores, x_tile, sizes.head_size, x_sums);
      if constexpr (kOwnKeys) add_weighted(probabilities, y_tile, sizes.head_size, y_sums);
      __syncwarp();  // before the next tile's factors
    }
  }

  const auto columns = [&](int head) { return HeadColumns(args.dqkv, sizes.qkv_width, sizes, block.sequence, head); };
  const HeadColumns<T> dx = columns(kOwnKeys ? sizes.heads + block.group : block.first_head);
  const HeadColumns<T> dvalues = columns(sizes.heads + sizes.key_value_heads + block.group);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first_row + r;
    if (row >= sizes.tokens) continue;
    store_row(x_sums[r], args.rule.scale.plain, sizes.head_size, dx.row(row));
    if constexpr (kOwnKeys) store_row(y_sums[r], Sum{1}, sizes.head_size, dvalues.row(row));
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

}  // namespace

void simple_attention(const Attention& args, const Launch& launch) {
  const AttentionSizes sizes(args.qkv.shape, args.heads, args.key_value_heads);
  dispatch_simple(args.qkv.dtype, sizes.head_size, [&]<typename T, typename Sum, int kColsOfLane>() {
    const ForwardArguments<T, Sum> arguments{static_cast<const T*>(args.qkv.data),
                                             static_cast<T*>(args.out.data),
                                             static_cast<Sum*>(args.log_sum_exp.data),
                                             sizes,
                                             ScoreRule<Sum>(args),
                                             AttentionDropout(args.dropout),
                                             order_of<Sum>(sizes, sizes.heads),
                                             Sight(args)};
    const size_t bytes = ForwardMemory<Sum>::bytes(sizes.head_size);
    trivet::cuda::allow_dynamic_shared(simple_attention_kernel<T, Sum, kColsOfLane>, bytes);
    TRIVET_LAUNCH((simple_attention_kernel<T, Sum, kColsOfLane>), arguments.order.blocks(), SimpleBlock<Sum>::kThreads, bytes,
                  launch.stream, arguments);
  });
}

void simple_attention_backward(const AttentionBackward& args, const Launch& launch) {
  const AttentionSizes sizes(args.qkv.shape, args.heads, args.key_value_heads);
  dispatch_simple(args.qkv.dtype, sizes.head_size, [&]<typename T, typename Sum, int kColsOfLane>() {
    BackwardArguments<T, Sum> arguments{static_cast<const T*>(args.qkv.data),
                                        static_cast<const T*>(args.dout.data),
                                        static_cast<T*>(args.dqkv.data),
                                        start_statistics<T, Sum, 1>(args, sizes, launch),
                                        sizes,
                                        ScoreRule<Sum>(args),
                                        AttentionDropout(args.dropout),
                                        order_of<Sum>(sizes, sizes.key_value_heads),
                                        Sight(args)};
    const size_t bytes = BackwardMemory<Sum>::bytes(sizes.head_size);
    trivet::cuda::allow_dynamic_shared(simple_gradients_kernel<T, Sum, kColsOfLane, true>, bytes);
    TRIVET_LAUNCH((simple_gradients_kernel<T, Sum, kColsOfLane, true>), arguments.order.blocks(), SimpleBlock<Sum>::kThreads,
                  bytes, launch.stream, arguments);
    arguments.order = order_of<Sum>(sizes, sizes.heads);
    trivet::cuda::allow_dynamic_shared(simple_gradients_kernel<T, Sum, kColsOfLane, false>, bytes);
    TRIVET_LAUNCH((simple_gradients_kernel<T, Sum, kColsOfLane, false>), arguments.order.blocks(), SimpleBlock<Sum>::kThreads,
                  bytes, launch.stream, arguments);
  });
}

}  // namespace trivet::kernels::cuda
