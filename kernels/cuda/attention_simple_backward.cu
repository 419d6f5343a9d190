// The gradients of attention without tensor cores.
#include "kernels/cuda/attention_simple.cuh"
#include "kernels/cuda/attention_statistics.cuh"

namespace trivet::kernels::cuda {
namespace simple {
namespace {

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
  WantedTokens wanted;
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
      first_own = block.first_query, first_partner = sight.first_key(sequence, first_own) / kPartners * kPartners;
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
  const AttentionSizes sizes = args.sizes;  // a copy: with a reference, the kernel needs more registers
  const BackwardMemory<Sum> memory(shared, sizes);
  const SharedRows<Sum> x_tile = memory.tile(0), y_tile = memory.tile(1), x_own = memory.own(0), y_own = memory.own(1);
  const SharedRows<Sum> dscores = memory.factors(0), probabilities = memory.factors(1);

  const GradientsBlock<Sum, kOwnKeys> block(args.order, sizes, args.sight);
  if (!args.wanted.any_of(block.first_own, SimpleBlock<Sum>::kRows)) return;
  const int first_row = block.first_own + memory.warp_row;
  const Side<T> of_keys = keys_and_values(args.qkv, sizes, block.sequence, block.group);
  const Side<T> own = kOwnKeys ? of_keys : queries_and_douts(args, sizes, block.sequence, block.first_head);
  copy_own(own.x, first_row, x_own);
  copy_own(own.y, first_row, y_own);

  Sum x_sums[kRows][kColsOfLane] = {}, y_sums[kRows][kColsOfLane] = {};  // dQ; or dK and dV
  for (int head = block.first_head; head < block.end_head; ++head) {
    const Side<T> partners = kOwnKeys ? queries_and_douts(args, sizes, block.sequence, head) : of_keys;
    for (int first = block.first_partner; first < block.end_partner; first += kPartners) {
      if (kOwnKeys && args.sight.first_of_document(block.sequence, first) >= block.first_own + SimpleBlock<Sum>::kRows)
        break;  // no later query sees a key of this block
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

}  // namespace
}  // namespace simple

void simple_attention_backward(const AttentionBackward& args, const Launch& launch) {
  using namespace simple;
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
                                        Sight(args),
                                        WantedTokens(args.own, sizes.tokens)};
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
