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

// The dropout factor of one probability.
template <typename Sum>
__device__ __forceinline__ Sum dropout_factor(const AttentionDropout& dropout, const AttentionSizes& sizes, int64_t sequence,
                                              int64_t head, int64_t query, int64_t key) {
  if (dropout.rate == 0) return Sum{1};
  const uint64_t element = dropout.first_element + static_cast<uint64_t>((head * sizes.tokens + query) * sizes.tokens + key);
  const PhiloxBlock words = philox(dropout.key, element / 4, dropout.counter_high(sequence));
  const uint32_t place = static_cast<uint32_t>(element % 4);
  const uint32_t word = place == 0 ? words[0] : place == 1 ? words[1] : place == 2 ? words[2] : words[3];
  return unit_float(word) < dropout.rate ? Sum{0} : Sum{1} / (Sum{1} - static_cast<Sum>(dropout.rate));
}

// A warp copies rows first_row, first_row + step ... of `count` rows into shared memory. They start at row `first` of a matrix;
// its rows at and after `rows` become zeros.
template <typename T, typename Sum>
__device__ __forceinline__ void copy_rows(const T* from, int64_t stride, int first, int rows, int first_row, int count,
                                          int step, int head_size, Sum* to, int to_stride) {
  for (int row = first_row; row < count; row += step)
    for (int d = lane_index(); d < head_size; d += kWarpThreads)
      to[row * to_stride + d] = first + row < rows ? static_cast<Sum>(from[(first + row) * stride + d]) : Sum{0};
}

// Rows in shared memory, in the type of the sums. If D is even, tiles have an odd stride, so that a column of a tile is spread
// over 32 banks.
template <typename Sum>
struct SharedRows {
  Sum* data;
  int stride;
  __device__ __forceinline__ Sum& operator()(int row, int d) const { return data[row * stride + d]; }
};

// sums[own row] = sum over d of own[row, d] tile[lane, d]
template <typename Sum, int kRows>
__device__ __forceinline__ void products(const SharedRows<Sum>& own, int first_row, const SharedRows<Sum>& tile, int head_size,
                                         Sum (&sums)[kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = 0;
  for (int d = 0; d < head_size; ++d) {
    const Sum partner = tile(lane_index(), d);
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[r] += own(first_row + r, d) * partner;
  }
}

// sums[own row][i] += sum over partners of factors[row, partner] tile[partner, lane + 32 i]
template <typename Sum, int kRows, int kColsOfLane>
__device__ __forceinline__ void add_weighted(const SharedRows<Sum>& factors, int first_row, const SharedRows<Sum>& tile,
                                             int head_size, Sum (&sums)[kRows][kColsOfLane]) {
  for (int partner = 0; partner < kPartners; ++partner)
#pragma unroll
    for (int i = 0; i < kColsOfLane; ++i) {
      const int d = lane_index() + i * kWarpThreads;
      const Sum value = d < head_size ? tile(partner, d) : Sum{0};
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r][i] += factors(first_row + r, partner) * value;
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
  ScoreScale<Sum> scale;
  AttentionDropout dropout;
  BlockOrder order;
};

template <typename T, typename Sum, int kColsOfLane>
__global__ void __launch_bounds__(SimpleBlock<Sum>::kThreads, 1) simple_attention_kernel(const ForwardArguments<T, Sum> args) {
  using Block = SimpleBlock<Sum>;
  constexpr int kRows = Block::kRowsOfWarp;
  TRIVET_DYNAMIC_SHARED(Sum, shared);
  const AttentionSizes& sizes = args.sizes;
  const int head_size = sizes.head_size, tokens = sizes.tokens, stride = head_size + 1;
  const SharedRows<Sum> keys{shared, stride}, values{shared + kPartners * stride, stride};
  const SharedRows<Sum> queries{shared + 2 * kPartners * stride, head_size};
  const SharedRows<Sum> probabilities{queries.data + Block::kRows * head_size, kPartners};

  const QueryBlock block(args.order, sizes, Block::kRows);
  const int64_t sequence = block.sequence;
  const int head = block.head, group = block.group, end = min(block.first_query + Block::kRows, tokens);
  const int own = warp_index() * kRows, first_row = block.first_query + own;
  const T* qkv = args.qkv + sequence * tokens * sizes.qkv_width;
  const T* key_columns = qkv + static_cast<int64_t>(sizes.heads + group) * head_size;
  const T* value_columns = key_columns + static_cast<int64_t>(sizes.key_value_heads) * head_size;
  copy_rows(qkv + static_cast<int64_t>(head) * head_size, sizes.qkv_width, first_row, tokens, 0, kRows, 1, head_size,
            &queries(own, 0), head_size);

  Sum maximum[kRows], total[kRows], sums[kRows][kColsOfLane] = {};  // total: only of this lane's keys until the end
#pragma unroll
  for (int r = 0; r < kRows; ++r) maximum[r] = -static_cast<Sum>(INFINITY), total[r] = 0;

  for (int first_key = 0; first_key < end; first_key += kPartners) {
    __syncthreads();  // nobody still reads the previous tile
    copy_rows(key_columns, sizes.qkv_width, first_key, tokens, warp_index(), kPartners, Block::kWarps, head_size, keys.data,
              stride);
    copy_rows(value_columns, sizes.qkv_width, first_key, tokens, warp_index(), kPartners, Block::kWarps, head_size, values.data,
              stride);
    __syncthreads();
    const int key = first_key + lane_index();
    Sum scores[kRows];
    products(queries, own, keys, head_size, scores);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Sum score = key <= first_row + r ? scores[r] * args.scale.log2 : -static_cast<Sum>(INFINITY);
      const Sum highest = maximum_of_warp(score > maximum[r] ? score : maximum[r]);
      const Sum shrink = power_of_2(maximum[r] - highest), probability = power_of_2(score - highest);
      maximum[r] = highest;
      total[r] = total[r] * shrink + probability;
#pragma unroll
      for (int i = 0; i < kColsOfLane; ++i) sums[r][i] *= shrink;
      probabilities(own + r, lane_index()) =
          probability * dropout_factor<Sum>(args.dropout, sizes, sequence, head, first_row + r, key);
    }
    __syncwarp();
    add_weighted(probabilities, own, values, head_size, sums);
    __syncwarp();  // before the next tile's probabilities
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const Sum all = sum_of_warp(total[r]);
    const int row = first_row + r;
    if (row >= tokens) continue;
    store_row(sums[r], Sum{1} / all, head_size,
              args.out + (sequence * tokens + row) * sizes.out_width + static_cast<int64_t>(head) * head_size);
    if (lane_index() == 0)
      args.log_sum_exp[(sequence * sizes.heads + head) * tokens + row] =
          maximum[r] / static_cast<Sum>(kLog2E) + natural_log(all);
  }
}

template <typename T, typename Sum>
struct BackwardArguments {
  const T *qkv, *dout;
  T* dqkv;
  AttentionStatistics<Sum> statistics;
  AttentionSizes sizes;
  ScoreScale<Sum> scale;
  AttentionDropout dropout;
  BlockOrder order;
};

// Without kOwnKeys, own rows are queries with their rows of dO, partners are keys and values, and dQ is summed. With kOwnKeys
// it is the other way round, and dK and dV are summed over all query heads of a group.
template <typename T, typename Sum, int kColsOfLane, bool kOwnKeys>
__global__ void __launch_bounds__(SimpleBlock<Sum>::kThreads, 1) simple_gradients_kernel(const BackwardArguments<T, Sum> args) {
  using Block = SimpleBlock<Sum>;
  constexpr int kRows = Block::kRowsOfWarp;
  TRIVET_DYNAMIC_SHARED(Sum, shared);
  const AttentionSizes& sizes = args.sizes;
  const int head_size = sizes.head_size, tokens = sizes.tokens, stride = head_size + 1;
  // x of one side times x of the other is a score, y times y is dP.
  const SharedRows<Sum> x_tile{shared, stride}, y_tile{shared + kPartners * stride, stride};
  const SharedRows<Sum> x_own{y_tile.data + kPartners * stride, head_size},
      y_own{x_own.data + Block::kRows * head_size, head_size};
  const SharedRows<Sum> dscores{y_own.data + Block::kRows * head_size, kPartners};
  const SharedRows<Sum> probabilities{dscores.data + Block::kRows * kPartners, kPartners};

  const BlockPlace place(args.order);
  const int heads_of_group = sizes.heads / sizes.key_value_heads, own_heads = kOwnKeys ? sizes.key_value_heads : sizes.heads;
  const int64_t sequence = place.head / own_heads;
  const int own_head = place.head % own_heads, group = kOwnKeys ? own_head : own_head / heads_of_group;
  const int first_of_block = (kOwnKeys ? place.tile : args.order.tiles - 1 - place.tile) * Block::kRows;  // the longest first
  const int own = warp_index() * kRows, first_row = first_of_block + own;
  const T* qkv = args.qkv + sequence * tokens * sizes.qkv_width;
  const T* key_columns = qkv + static_cast<int64_t>(sizes.heads + group) * head_size;
  const T* value_columns = key_columns + static_cast<int64_t>(sizes.key_value_heads) * head_size;
  const auto query_columns = [&](int head) { return qkv + static_cast<int64_t>(head) * head_size; };
  const auto dout_columns = [&](int head) {
    return args.dout + sequence * tokens * sizes.out_width + static_cast<int64_t>(head) * head_size;
  };

  copy_rows(kOwnKeys ? key_columns : query_columns(own_head), sizes.qkv_width, first_row, tokens, 0, kRows, 1, head_size,
            &x_own(own, 0), head_size);
  copy_rows(kOwnKeys ? value_columns : dout_columns(own_head), kOwnKeys ? sizes.qkv_width : sizes.out_width, first_row, tokens,
            0, kRows, 1, head_size, &y_own(own, 0), head_size);
  Sum x_sums[kRows][kColsOfLane] = {}, y_sums[kRows][kColsOfLane] = {};  // dQ; or dK and dV

  const int first_head = kOwnKeys ? group * heads_of_group : own_head, end_head = first_head + (kOwnKeys ? heads_of_group : 1);
  const int first_partner = kOwnKeys ? first_of_block / kPartners * kPartners : 0;
  const int end_partner = kOwnKeys ? tokens : min(first_of_block + Block::kRows, tokens);
  for (int head = first_head; head < end_head; ++head) {
    const int64_t statistics_row = args.statistics.first_row(sequence, sizes.heads, head);
    for (int first = first_partner; first < end_partner; first += kPartners) {
      __syncthreads();  // nobody still reads the previous tile
      copy_rows(kOwnKeys ? query_columns(head) : key_columns, sizes.qkv_width, first, tokens, warp_index(), kPartners,
                Block::kWarps, head_size, x_tile.data, stride);
      copy_rows(kOwnKeys ? dout_columns(head) : value_columns, kOwnKeys ? sizes.out_width : sizes.qkv_width, first, tokens,
                warp_index(), kPartners, Block::kWarps, head_size, y_tile.data, stride);
      __syncthreads();
      Sum scores[kRows], dprobabilities[kRows];
      products(x_own, own, x_tile, head_size, scores);
      products(y_own, own, y_tile, head_size, dprobabilities);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int partner = first + lane_index(), query = kOwnKeys ? partner : first_row + r,
                  key = kOwnKeys ? first_row + r : partner;
        const bool sees = key <= query && query < tokens;
        const int64_t row = statistics_row + (sees ? query : 0);
        const Sum probability = sees ? power_of_2(scores[r] * args.scale.log2 - args.statistics.offsets[row]) : Sum{0};
        const Sum factor = dropout_factor<Sum>(args.dropout, sizes, sequence, head, query, key);
        probabilities(own + r, lane_index()) = probability * factor;
        dscores(own + r, lane_index()) = probability * (dprobabilities[r] * factor - args.statistics.deltas[row]);
      }
      __syncwarp();
      add_weighted(dscores, own, x_tile, head_size, x_sums);
      if constexpr (kOwnKeys) add_weighted(probabilities, own, y_tile, head_size, y_sums);
      __syncwarp();  // before the next tile's factors
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first_row + r >= tokens) continue;
    T* to = args.dqkv + (sequence * tokens + first_row + r) * sizes.qkv_width;
    store_row(x_sums[r], args.scale.plain, head_size,
              to + static_cast<int64_t>(kOwnKeys ? sizes.heads + group : own_head) * head_size);
    if constexpr (kOwnKeys)
      store_row(y_sums[r], Sum{1}, head_size,
                to + static_cast<int64_t>(sizes.heads + sizes.key_value_heads + group) * head_size);
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

// The shared memory of a block: two tiles, own rows of `own_matrices` matrices, and `factors` numbers for each own row and
// partner.
template <typename Sum>
size_t shared_bytes(int head_size, int own_matrices, int factors) {
  const int rows = SimpleBlock<Sum>::kRows;
  return sizeof(Sum) *
         static_cast<size_t>(2 * kPartners * (head_size + 1) + own_matrices * rows * head_size + factors * rows * kPartners);
}

}  // namespace

void simple_attention(const Attention& args, const Launch& launch) {
  const AttentionSizes sizes(args.qkv.shape, args.heads, args.key_value_heads);
  dispatch_simple(args.qkv.dtype, sizes.head_size, [&]<typename T, typename Sum, int kColsOfLane>() {
    const ForwardArguments<T, Sum> arguments{
        static_cast<const T*>(args.qkv.data), static_cast<T*>(args.out.data), static_cast<Sum*>(args.log_sum_exp.data), sizes,
        ScoreScale<Sum>(sizes.head_size),     AttentionDropout(args.dropout), order_of<Sum>(sizes, sizes.heads)};
    const size_t bytes = shared_bytes<Sum>(sizes.head_size, 1, 1);
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
                                        ScoreScale<Sum>(sizes.head_size),
                                        AttentionDropout(args.dropout),
                                        order_of<Sum>(sizes, sizes.key_value_heads)};
    const size_t bytes = shared_bytes<Sum>(sizes.head_size, 2, 2);
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
