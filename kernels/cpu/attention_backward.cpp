// Backward of attention. Probabilities are recomputed from the stored log-sum-exp; nothing of size S x S is stored.
//
//   P = exp(Q K^T / sqrt(D) - lse),  dP = dO V^T,  dS = P (dP - sum_d dO O),
//   dV = P^T dO,  dK = dS^T Q / sqrt(D),  dQ = dS K / sqrt(D)
//
// One thread computes one key/value head of one sequence with all of its query heads in order, so that the sums over heads and
// over queries have the same order for any number of threads.
#include <cmath>
#include <utility>

#include "kernels/cpu/attention_in_pairs.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/scratch.h"

namespace trivet::kernels::cpu {
namespace {

template <typename T>
class KeyValueHeadBackward {
 public:
  using Sum = SumOf<T>;

  KeyValueHeadBackward(const AttentionBackward& args, const AttentionSizes& sizes, int64_t sequence, int64_t key_value_head)
      : args_(args), sizes_(sizes), sequence_(sequence), g_(key_value_head), width_(sizes.padded_head_size()) {
    const int64_t tokens = padded(sizes.tokens, kTile), whole = tokens * width_, tile = kTile * kTile;
    thread_local Scratch scratch;
    Sum* memory = scratch.reserve_elements<Sum>(8 * whole + 2 * tile + 2 * tokens);
    const auto take = [&](int64_t count) { return std::exchange(memory, memory + count); };
    keys_ = take(whole), transposed_keys_ = take(whole), transposed_values_ = take(whole);
    queries_ = take(whole), douts_ = take(whole);
    dqueries_ = take(whole), dkeys_ = take(whole), dvalues_ = take(whole);
    probabilities_ = take(tile), dscores_ = take(tile);
    log_sum_exp_ = take(tokens), out_times_dout_ = take(tokens);
  }

  void run() {
    load_keys_and_values();
    std::fill_n(dkeys_, padded(sizes_.tokens, kProductCols) * width_, Sum{0});
    std::fill_n(dvalues_, padded(sizes_.tokens, kProductCols) * width_, Sum{0});
    const int64_t heads = sizes_.heads / sizes_.key_value_heads;
    for (int64_t head = g_ * heads; head < (g_ + 1) * heads; ++head) query_head(head);
    store(dkeys_, sizes_.key_column(g_), Sum{1});
    store(dvalues_, sizes_.value_column(g_), Sum{1});
  }

 private:
  Sum scale() const { return sizes_.score_scale<Sum>(); }

  const T* qkv() const { return args_.qkv.as<T>() + sequence_ * sizes_.tokens * sizes_.qkv_width(); }

  void load_keys_and_values() {
    loops_.load_rows(qkv() + sizes_.key_column(g_), sizes_.qkv_width(), sizes_.tokens, sizes_.head_size, Sum{1}, keys_);
    load_transposed(sizes_.key_column(g_), transposed_keys_);
    load_transposed(sizes_.value_column(g_), transposed_values_);
  }

  void load_transposed(int64_t column, Sum* to) {
    const int64_t stride = sizes_.qkv_width();
    for (int64_t first = 0; first < sizes_.tokens; first += kTile)
      loops_.load_transposed(qkv() + column + first * stride, stride, sizes_.tile_tokens(first), sizes_.head_size,
                             to + first * sizes_.head_size);
  }

  void store(const Sum* from, int64_t column, Sum factor) {
    T* to = args_.dqkv.as<T>() + sequence_ * sizes_.tokens * sizes_.qkv_width() + column;
    loops_.store_rows(from, sizes_.tokens, sizes_.head_size, factor, to, sizes_.qkv_width());
  }

  void query_head(int64_t head) {
    load_queries(head);
    std::fill_n(dqueries_, padded(sizes_.tokens, kProductCols) * width_, Sum{0});
    for (int64_t first_key = 0; first_key < sizes_.tokens; first_key += kTile)
      for (int64_t first_query = sizes_.first_query(first_key); first_query < sizes_.end_query(first_key); first_query += kTile)
        tile(head, first_query, first_key);
    store(dqueries_, head * sizes_.head_size, scale());
  }

  void load_queries(int64_t head) {
    const int64_t tokens = sizes_.tokens, size = sizes_.head_size, stride = sizes_.out_width();
    loops_.load_rows(qkv() + head * size, sizes_.qkv_width(), tokens, size, scale(), queries_);
    const T* dout = args_.dout.as<T>() + sequence_ * tokens * stride + head * size;
    const T* out = args_.out.as<T>() + sequence_ * tokens * stride + head * size;
    loops_.load_rows(dout, stride, tokens, size, Sum{1}, douts_);
    for (int64_t token = 0; token < tokens; ++token) {
      Sum sum = 0;
      for (int64_t d = 0; d < size; ++d) sum += douts_[token * width_ + d] * widen<Sum>(out[token * stride + d]);
      out_times_dout_[token] = sum;
    }
    load_rows_of_statistics(args_.log_sum_exp, (sequence_ * sizes_.heads + head) * tokens, tokens, log_sum_exp_);
  }

  void tile(int64_t head, int64_t first_query, int64_t first_key) {
    const int64_t queries = sizes_.tile_tokens(first_query), rows = padded(queries, kProductRows);
    const int64_t keys = padded(sizes_.tile_tokens(first_key), kProductCols);
    const bool diagonal = sizes_.on_diagonal(first_query, first_key);
    scores(rows, keys, queries_ + first_query * width_, transposed_keys_ + first_key * sizes_.head_size, probabilities_,
           diagonal);
    scores(rows, keys, douts_ + first_query * width_, transposed_values_ + first_key * sizes_.head_size, dscores_, diagonal);
    loops_.score_gradients({.rows = queries,
                            .keys = sizes_.tile_tokens(first_key),
                            .diagonal = diagonal,
                            .hidden = sizes_.hidden(first_query, first_key),
                            .soft_cap = static_cast<Sum>(sizes_.soft_cap),
                            .probabilities = probabilities_,
                            .dscores = dscores_,
                            .log_sum_exp = log_sum_exp_ + first_query,
                            .row_sum = out_times_dout_ + first_query,
                            .dropout = tile_dropout(args_.dropout, sequence_, head, sizes_.tokens, first_query, first_key)});
    const TilePart upper = diagonal ? TilePart::UpperLeft : TilePart::Whole,
                   lower = diagonal ? TilePart::LowerLeft : TilePart::Whole;
    add(keys, rows, {probabilities_, 1, kTile}, douts_ + first_query * width_, dvalues_ + first_key * width_, upper);
    add(keys, rows, {dscores_, 1, kTile}, queries_ + first_query * width_, dkeys_ + first_key * width_, upper);
    add(rows, keys, {dscores_, kTile}, keys_ + first_key * width_, dqueries_ + first_query * width_, lower);
  }

  // out[rows, keys] = left[rows, D] right[D, keys]
  void scores(int64_t rows, int64_t keys, const Sum* left, const Sum* right, Sum* out, bool diagonal) {
    loops_.product({.m = rows,
                    .n = keys,
                    .k = sizes_.head_size,
                    .a = {left, width_},
                    .b = right,
                    .b_stride = kTile,
                    .c = out,
                    .c_stride = kTile,
                    .part = diagonal ? TilePart::LowerOut : TilePart::Whole});
  }

  // out[m, D] += left[m, k] right[k, D]
  void add(int64_t m, int64_t k, const TileView<Sum>& left, const Sum* right, Sum* out, TilePart part) {
    loops_.product({.m = m,
                    .n = width_,
                    .k = k,
                    .a = left,
                    .b = right,
                    .b_stride = width_,
                    .c = out,
                    .c_stride = width_,
                    .accumulate = true,
                    .part = part});
  }

  const AttentionLoops<T>& loops_ = attention_loops<T>();
  const AttentionBackward& args_;
  const AttentionSizes& sizes_;
  int64_t sequence_, g_, width_;
  Sum *keys_, *queries_, *douts_;              // [S, D]
  Sum *transposed_keys_, *transposed_values_;  // [tiles][D, kTile]
  Sum *dqueries_, *dkeys_, *dvalues_;          // [S, D]
  Sum *probabilities_, *dscores_;              // [kTile, kTile]
  Sum *log_sum_exp_, *out_times_dout_;         // [S]
};

}  // namespace

void compute(const AttentionBackward& args, int threads) {
  const AttentionSizes sizes(args, args.dout.shape);
  if (args.dout.elements() == 0) return;
  if (const AttentionPairLoops* loops = pair_loops_for(sizes, args.qkv.dtype))
    return for_each_piece(sizes.sequences * sizes.key_value_heads, threads, [&](int64_t piece) {
      attention_backward_in_pairs(*loops, args, sizes, piece / sizes.key_value_heads, piece % sizes.key_value_heads);
    });
  dispatch_float(args.qkv.dtype, [&]<typename T>() {
    for_each_piece(sizes.sequences * sizes.key_value_heads, threads, [&](int64_t piece) {
      KeyValueHeadBackward<T>(args, sizes, piece / sizes.key_value_heads, piece % sizes.key_value_heads).run();
    });
  });
}

}  // namespace trivet::kernels::cpu
