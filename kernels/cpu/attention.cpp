// Attention with a running softmax (Milakov & Gimelshein 2018; FlashAttention, Dao et al. 2022): for each tile of queries, all
// tiles of keys that it sees are visited in order. When the maximum of a row grows, its sums so far are scaled down.
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/attention_in_pairs.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/scratch.h"

namespace trivet::kernels::cpu {
namespace {

// Computes one query head of one sequence on the calling thread.
template <typename T>
class HeadForward {
 public:
  using Sum = SumOf<T>;

  HeadForward(const Attention& args, const AttentionSizes& sizes, int64_t sequence, int64_t head)
      : args_(args), sizes_(sizes), sequence_(sequence), head_(head) {
    const int64_t tokens = padded(sizes.tokens, kTile), width = sizes.padded_head_size();
    thread_local Scratch scratch;
    Sum* memory = scratch.reserve_elements<Sum>(2 * tokens * width + 2 * kTile * width + kTile * kTile + 2 * kTile);
    const auto take = [&](int64_t count) { return std::exchange(memory, memory + count); };
    keys_ = take(tokens * width), values_ = take(tokens * width);
    queries_ = take(kTile * width), sums_ = take(kTile * width), scores_ = take(kTile * kTile);
    maximum_ = take(kTile), total_ = take(kTile);
  }

  void run() {
    const T* qkv = args_.qkv.as<T>() + sequence_ * sizes_.tokens * sizes_.qkv_width();
    const int64_t g = head_ / (sizes_.heads / sizes_.key_value_heads), stride = sizes_.qkv_width();
    for (int64_t first = 0; first < sizes_.tokens; first += kTile)
      loops_.load_transposed(qkv + sizes_.key_column(g) + first * stride, stride, sizes_.tile_tokens(first), sizes_.head_size,
                             keys_ + first * sizes_.head_size);
    loops_.load_rows(qkv + sizes_.value_column(g), stride, sizes_.tokens, sizes_.head_size, Sum{1}, values_);
    for (int64_t first = 0; first < sizes_.tokens; first += kTile) query_tile(qkv, first);
  }

 private:
  void query_tile(const T* qkv, int64_t first_query) {
    const int64_t queries = sizes_.tile_tokens(first_query), width = sizes_.padded_head_size();
    const Sum scale = sizes_.score_scale<Sum>();
    loops_.load_rows(qkv + first_query * sizes_.qkv_width() + head_ * sizes_.head_size, sizes_.qkv_width(), queries,
                     sizes_.head_size, scale, queries_);
    std::fill_n(maximum_, kTile, -std::numeric_limits<Sum>::infinity());
    std::fill_n(total_, kTile, Sum{0});
    std::fill_n(sums_, kTile * width, Sum{0});
    for (int64_t first_key = sizes_.begin_key(first_query); first_key < sizes_.end_key(first_query); first_key += kTile)
      add_keys(first_query, queries, first_key);
    write(first_query, queries);
  }

  void add_keys(int64_t first_query, int64_t queries, int64_t first_key) {
    const int64_t width = sizes_.padded_head_size(), rows = padded(queries, kProductRows);
    const int64_t keys = padded(sizes_.tile_tokens(first_key), kProductCols);
    const bool diagonal = sizes_.on_diagonal(first_query, first_key);
    loops_.product({.m = rows,
                    .n = keys,
                    .k = sizes_.head_size,
                    .a = {queries_, width},
                    .b = keys_ + first_key * sizes_.head_size,
                    .b_stride = kTile,
                    .c = scores_,
                    .c_stride = kTile,
                    .part = diagonal ? TilePart::LowerOut : TilePart::Whole});
    loops_.softmax({.rows = queries,
                    .width = width,
                    .keys = sizes_.tile_tokens(first_key),
                    .diagonal = diagonal,
                    .hidden = sizes_.hidden(first_query, first_key),
                    .soft_cap = static_cast<Sum>(sizes_.soft_cap),
                    .scores = scores_,
                    .sums = sums_,
                    .maximum = maximum_,
                    .total = total_,
                    .dropout = tile_dropout(args_.dropout, sequence_, head_, sizes_.tokens, first_query, first_key)});
    loops_.product({.m = rows,
                    .n = width,
                    .k = keys,
                    .a = {scores_, kTile},
                    .b = values_ + first_key * width,
                    .b_stride = width,
                    .c = sums_,
                    .c_stride = width,
                    .accumulate = true,
                    .part = diagonal ? TilePart::LowerLeft : TilePart::Whole});
  }

  void write(int64_t first_query, int64_t queries) {
    const int64_t row_stride = sizes_.out_width(), token = sequence_ * sizes_.tokens + first_query;
    T* out = args_.out.as<T>() + token * row_stride + head_ * sizes_.head_size;
    const int64_t statistic = (sequence_ * sizes_.heads + head_) * sizes_.tokens + first_query;
    for (int64_t row = 0; row < queries; ++row) {
      const Sum* sums = sums_ + row * sizes_.padded_head_size();
      loops_.store_rows(sums, 1, sizes_.head_size, Sum{1} / total_[row], out + row * row_stride, row_stride);
      store_statistic(maximum_[row] + std::log(total_[row]), args_.log_sum_exp, statistic + row);
    }
  }

  const AttentionLoops<T>& loops_ = attention_loops<T>();
  const Attention& args_;
  const AttentionSizes& sizes_;
  int64_t sequence_, head_;
  Sum *keys_, *values_;    // [tiles][D, kTile], [S, D]
  Sum *queries_, *sums_;   // [kTile, D]
  Sum* scores_;            // [kTile, kTile]
  Sum *maximum_, *total_;  // [kTile]
};

}  // namespace

void compute(const Attention& args, int threads) {
  const AttentionSizes sizes(args, args.out.shape);
  if (args.out.elements() == 0) return;
  if (const AttentionPairLoops* loops = pair_loops_for(sizes, args.qkv.dtype))
    return for_each_piece(sizes.sequences * sizes.heads, threads, [&](int64_t piece) {
      attention_in_pairs(*loops, args, sizes, piece / sizes.heads, piece % sizes.heads);
    });
  dispatch_float(args.qkv.dtype, [&]<typename T>() {
    for_each_piece(sizes.sequences * sizes.heads, threads,
                   [&](int64_t piece) { HeadForward<T>(args, sizes, piece / sizes.heads, piece % sizes.heads).run(); });
  });
}

}  // namespace trivet::kernels::cpu
