// Backward of attention. Probabilities are recomputed from the stored log-sum-exp; nothing of size S x S is stored.
//
//   P = exp(Q K^T / sqrt(D) - lse),  dP = dO V^T,  dS = P (dP - sum_d dO O),
//   dV = P^T dO,  dK = dS^T Q / sqrt(D),  dQ = dS K / sqrt(D)
//
// One thread computes one key/value head of one document with all of its query heads in order, so that the sums over heads and
// over queries have the same order for any number of threads.
#include <cmath>
#include <utility>

#include "kernels/cpu/attention_in_pairs.h"
#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/pieces.h"

namespace trivet::kernels::cpu {
namespace {

template <typename T>
class KeyValueHeadBackward {
 public:
  using Sum = SumOf<T>;

  KeyValueHeadBackward(const AttentionBackward& args, const AttentionPart& part, int64_t key_value_head)
      : args_(args), part_(part), g_(key_value_head), width_(part.padded_head_size()) {
    const int64_t tokens = padded(part.tokens, kTile), whole = tokens * width_, rows = kTile * width_, tile = kTile * kTile;
    Sum* memory = attention_scratch().reserve_elements<Sum>(LoopScratch::backward(tokens, width_));
    const auto take = [&](int64_t count) { return std::exchange(memory, memory + count); };
    keys_ = take(rows), transposed_keys_ = take(rows), transposed_values_ = take(rows);
    queries_ = take(whole), douts_ = take(whole);
    dqueries_ = take(whole), dkeys_ = take(whole), dvalues_ = take(whole);
    probabilities_ = take(tile), dscores_ = take(tile);
    log_sum_exp_ = take(tokens), out_times_dout_ = take(tokens);
  }

  void run() {
    std::fill_n(dkeys_, padded(part_.tokens, kProductCols) * width_, Sum{0});
    std::fill_n(dvalues_, padded(part_.tokens, kProductCols) * width_, Sum{0});
    const int64_t heads = part_.heads / part_.key_value_heads;
    for (int64_t head = g_ * heads; head < (g_ + 1) * heads; ++head) query_head(head);
    store(dkeys_, part_.key_column(g_), Sum{1});
    store(dvalues_, part_.value_column(g_), Sum{1});
  }

 private:
  Sum scale() const { return part_.score_scale<Sum>(); }

  const T* qkv() const { return args_.qkv.as<T>() + part_.first_row * part_.qkv_width(); }

  // Keys and values of the tile that starts at `first`.
  void load_keys_and_values(int64_t first) {
    const int64_t stride = part_.qkv_width(), rows = part_.tile_tokens(first), size = part_.head_size;
    const T *keys = qkv() + first * stride + part_.key_column(g_), *values = qkv() + first * stride + part_.value_column(g_);
    loops_.load_rows(keys, stride, rows, size, Sum{1}, keys_);
    loops_.load_transposed(keys, stride, rows, size, transposed_keys_);
    loops_.load_transposed(values, stride, rows, size, transposed_values_);
  }

  void store(const Sum* from, int64_t column, Sum factor) {
    T* to = args_.dqkv.as<T>() + part_.first_row * part_.qkv_width() + column;
    loops_.store_rows(from, part_.tokens, part_.head_size, factor, to, part_.qkv_width());
  }

  void query_head(int64_t head) {
    load_queries(head);
    std::fill_n(dqueries_, padded(part_.tokens, kProductCols) * width_, Sum{0});
    for (int64_t first_key = 0; first_key < part_.tokens; first_key += kTile) {
      load_keys_and_values(first_key);
      for (int64_t first_query = part_.first_query(first_key); first_query < part_.end_query(first_key); first_query += kTile)
        if (part_.wants(first_key) || part_.wants(first_query)) tile(head, first_query, first_key);
    }
    store(dqueries_, head * part_.head_size, scale());
  }

  void load_queries(int64_t head) {
    const int64_t tokens = part_.tokens, size = part_.head_size, stride = part_.out_width();
    loops_.load_rows(qkv() + head * size, part_.qkv_width(), tokens, size, scale(), queries_);
    const T* dout = args_.dout.as<T>() + part_.first_row * stride + head * size;
    const T* out = args_.out.as<T>() + part_.first_row * stride + head * size;
    loops_.load_rows(dout, stride, tokens, size, Sum{1}, douts_);
    for (int64_t token = 0; token < tokens; ++token) {
      Sum sum = 0;
      for (int64_t d = 0; d < size; ++d) sum += douts_[token * width_ + d] * widen<Sum>(out[token * stride + d]);
      out_times_dout_[token] = sum;
    }
    load_rows_of_statistics(args_.log_sum_exp, part_.first_statistic(head), tokens, log_sum_exp_);
  }

  void tile(int64_t head, int64_t first_query, int64_t first_key) {
    const int64_t queries = part_.tile_tokens(first_query), rows = padded(queries, kProductRows);
    const int64_t keys = padded(part_.tile_tokens(first_key), kProductCols);
    const bool diagonal = part_.on_diagonal(first_query, first_key);
    scores(rows, keys, queries_ + first_query * width_, transposed_keys_, probabilities_, diagonal);
    scores(rows, keys, douts_ + first_query * width_, transposed_values_, dscores_, diagonal);
    loops_.score_gradients({.rows = queries,
                            .keys = part_.tile_tokens(first_key),
                            .diagonal = diagonal,
                            .hidden = part_.hidden(first_query, first_key),
                            .soft_cap = static_cast<Sum>(part_.soft_cap),
                            .probabilities = probabilities_,
                            .dscores = dscores_,
                            .log_sum_exp = log_sum_exp_ + first_query,
                            .row_sum = out_times_dout_ + first_query,
                            .dropout = part_.tile_dropout(args_.dropout, head, first_query, first_key)});
    const TilePart upper = diagonal ? TilePart::UpperLeft : TilePart::Whole,
                   lower = diagonal ? TilePart::LowerLeft : TilePart::Whole;
    if (part_.wants(first_key)) {
      add(keys, rows, {probabilities_, 1, kTile}, douts_ + first_query * width_, dvalues_ + first_key * width_, upper);
      add(keys, rows, {dscores_, 1, kTile}, queries_ + first_query * width_, dkeys_ + first_key * width_, upper);
    }
    if (part_.wants(first_query)) add(rows, keys, {dscores_, kTile}, keys_, dqueries_ + first_query * width_, lower);
  }

  // out[rows, keys] = left[rows, D] right[D, keys]
  void scores(int64_t rows, int64_t keys, const Sum* left, const Sum* right, Sum* out, bool diagonal) {
    loops_.product({.m = rows,
                    .n = keys,
                    .k = part_.head_size,
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
  const AttentionPart& part_;
  int64_t g_, width_;
  Sum *queries_, *douts_;                      // [S, D]
  Sum* keys_;                                  // [kTile, D]
  Sum *transposed_keys_, *transposed_values_;  // [D, kTile]
  Sum *dqueries_, *dkeys_, *dvalues_;          // [S, D]
  Sum *probabilities_, *dscores_;              // [kTile, kTile]
  Sum *log_sum_exp_, *out_times_dout_;         // [S]
};

}  // namespace

void compute(const AttentionBackward& args, int threads) {
  const AttentionSizes sizes(args, args.dout.shape);
  if (args.dout.elements() == 0) return;
  const std::vector<AttentionPart> parts = attention_parts(sizes, args.documents);
  for_each_piece(static_cast<int64_t>(parts.size()) * sizes.key_value_heads, threads, [&](int64_t piece) {
    const AttentionPart& part = parts[piece / sizes.key_value_heads];
    const int64_t g = piece % sizes.key_value_heads;
    if (part.padding) return g == 0 ? zero_rows(args.dqkv, part) : void();
    if (const AttentionPairLoops* loops = pair_loops_for(part, args.qkv.dtype))
      return attention_backward_in_pairs(*loops, args, part, g);
    dispatch_float(args.qkv.dtype, [&]<typename T>() { KeyValueHeadBackward<T>(args, part, g).run(); });
  });
}

}  // namespace trivet::kernels::cpu
