// The forward of attention without tensor cores.
#include "kernels/cuda/attention_simple.cuh"
#include "kernels/cuda/numbers.cuh"

namespace trivet::kernels::cuda {
namespace simple {
namespace {

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
  WantedTokens wanted;
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
      const bool is_padding = all == 0;  // it has seen no keys
      store_row(sums[r], is_padding ? Sum{0} : Sum{1} / all, out.head_size, out.row(row));
      if (lane_index() == 0) log_sum_exp[row] = is_padding ? Sum{0} : maximum[r] / static_cast<Sum>(kLog2E) + natural_log(all);
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
  if (!args.wanted.any_of(block.first_query, Block::kRows)) return;
  const int first_row = block.first_query + memory.warp_row;
  const int begin = args.sight.first_key(block.sequence, block.first_query) / kPartners * kPartners;
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

template <typename Sum>
__device__ __forceinline__ Sum power_of_e(Sum x) {
  return power_of_2(x * static_cast<Sum>(kLog2E));
}

// A block has one token of one sequence.
template <typename T, typename Sum>
__global__ void merge_kernel(const T* more, const Sum* more_log_sum_exp, Sum* out, Sum* log_sum_exp, int tokens, int heads,
                             int head_size) {
  const int64_t row = blockIdx.x, sequence = row / tokens, width = int64_t{heads} * head_size;
  const int token = static_cast<int>(row % tokens);
  const auto statistic = [&](int head) { return (sequence * heads + head) * tokens + token; };
  for (int e = static_cast<int>(threadIdx.x); e < width; e += static_cast<int>(blockDim.x)) {
    const int64_t place = statistic(e / head_size);
    const Sum weight = 1 / (1 + power_of_e(log_sum_exp[place] - more_log_sum_exp[place]));
    Sum& sum = out[row * width + e];
    sum += weight * (widen(more[row * width + e]) - sum);
  }
  __syncthreads();  // the weights have been read
  for (int head = static_cast<int>(threadIdx.x); head < heads; head += static_cast<int>(blockDim.x)) {
    const Sum distance = more_log_sum_exp[statistic(head)] - log_sum_exp[statistic(head)];
    log_sum_exp[statistic(head)] +=
        (distance > 0 ? distance : Sum{0}) + natural_log(1 + power_of_e(distance > 0 ? -distance : distance));
  }
}

}  // namespace
}  // namespace simple

void compute(const MergeAttention& args, const Launch& launch) {
  if (args.more.elements() == 0) return;
  const Shape& shape = args.more.shape;
  dispatch_device_float(args.more.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    TRIVET_LAUNCH((simple::merge_kernel<T, Sum>), static_cast<unsigned>(shape[0] * shape[1]), 128, 0, launch.stream,
                  static_cast<const T*>(args.more.data), static_cast<const Sum*>(args.more_log_sum_exp.data),
                  static_cast<Sum*>(args.out.data), static_cast<Sum*>(args.log_sum_exp.data), static_cast<int>(shape[1]),
                  static_cast<int>(args.heads), static_cast<int>(shape[2] / args.heads));
  });
}

void simple_attention(const Attention& args, const Launch& launch) {
  using namespace simple;
  const AttentionSizes sizes(args.qkv.shape, args.heads, args.key_value_heads);
  dispatch_simple(args.qkv.dtype, sizes.head_size, [&]<typename T, typename Sum, int kColsOfLane>() {
    const ForwardArguments<T, Sum> arguments{static_cast<const T*>(args.qkv.data),
                                             static_cast<T*>(args.out.data),
                                             static_cast<Sum*>(args.log_sum_exp.data),
                                             sizes,
                                             ScoreRule<Sum>(args),
                                             AttentionDropout(args.dropout),
                                             order_of<Sum>(sizes, sizes.heads),
                                             Sight(args),
                                             WantedTokens(args.own, sizes.tokens)};
    const size_t bytes = ForwardMemory<Sum>::bytes(sizes.head_size);
    trivet::cuda::allow_dynamic_shared(simple_attention_kernel<T, Sum, kColsOfLane>, bytes);
    TRIVET_LAUNCH((simple_attention_kernel<T, Sum, kColsOfLane>), arguments.order.blocks(), SimpleBlock<Sum>::kThreads, bytes,
                  launch.stream, arguments);
  });
}

}  // namespace trivet::kernels::cuda
