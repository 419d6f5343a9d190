#include "kernels/cpu/attention_in_pairs.h"

#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/scratch.h"

namespace trivet::kernels::cpu {
namespace {

// One document: S tokens, D head size. Tiles have kTile tokens; the last one of a document may have fewer.
class PairHead {
 protected:
  PairHead(const AttentionPairLoops& loops, const AttentionPart& part)
      : loops_(loops), part_(part), size_(part.head_size), width_(part.qkv_width()) {}

  float scale() const { return part_.score_scale<float>(); }
  int64_t tile_tokens(int64_t first) const { return part_.tile_tokens(first); }

  // Points to `column` of the document's token `first` in qkv (or in its gradient).
  template <typename View>
  auto* column(const View& qkv, int64_t column, int64_t first = 0) const {
    return qkv.template as<bfloat16>() + (part_.first_row() + first) * width_ + column;
  }

  // to[tiles][D / 2][tokens of the tile][2]
  void pair_cols(const bfloat16* from, bfloat16* to) const {
    for (int64_t first = 0; first < part_.tokens; first += kTile)
      loops_.pair_cols(from + first * width_, width_, tile_tokens(first), size_, to + first * size_);
  }

  // out[queries, keys] = left[queries, D] right[D, keys]
  void scores(int64_t first_query, int64_t first_key, const PairView& left, const bfloat16* right, float* out) const {
    loops_.product({.m = tile_tokens(first_query),
                    .n = tile_tokens(first_key),
                    .k = size_,
                    .a = left,
                    .b = right + first_key * size_,
                    .c = out,
                    .c_stride = kTile,
                    .part = part_.on_diagonal(first_query, first_key) ? TilePart::LowerOut : TilePart::Whole});
  }

  // out[m, D] += left[m, k] right[k, D]
  void add(int64_t m, int64_t k, const PairView& left, const bfloat16* right, float* out, TilePart part) const {
    loops_.product(
        {.m = m, .n = size_, .k = k, .a = left, .b = right, .c = out, .c_stride = size_, .accumulate = true, .part = part});
  }

  const AttentionPairLoops& loops_;
  const AttentionPart& part_;
  int64_t size_, width_;
};

class PairHeadForward : private PairHead {
 public:
  PairHeadForward(const AttentionPairLoops& loops, const Attention& args, const AttentionPart& part, int64_t head)
      : PairHead(loops, part), args_(args), head_(head) {
    thread_local Scratch sums, pairs;
    float* floats = sums.reserve_elements<float>(kTile * (size_ + kTile + 2));
    sums_ = floats, scores_ = sums_ + kTile * size_, maximum_ = scores_ + kTile * kTile, total_ = maximum_ + kTile;
    keys_ = pairs.reserve_elements<bfloat16>(2 * part.tokens * size_ + kTile * kTile);
    values_ = keys_ + part.tokens * size_, probabilities_ = values_ + part.tokens * size_;
  }

  void run() {
    const int64_t g = head_ / (part_.heads / part_.key_value_heads);
    pair_cols(column(args_.qkv, part_.key_column(g)), keys_);
    loops_.pair_rows(column(args_.qkv, part_.value_column(g)), width_, part_.tokens, size_, values_);
    for (int64_t first = 0; first < part_.tokens; first += kTile) query_tile(first);
  }

 private:
  void query_tile(int64_t first_query) {
    std::fill_n(maximum_, kTile, -std::numeric_limits<float>::infinity());
    std::fill_n(total_, kTile, 0.0f);
    std::fill_n(sums_, kTile * size_, 0.0f);
    for (int64_t first_key = part_.begin_key(first_query); first_key < part_.end_key(first_query); first_key += kTile)
      add_keys(first_query, first_key);
    write(first_query);
  }

  void add_keys(int64_t first_query, int64_t first_key) {
    const bool diagonal = part_.on_diagonal(first_query, first_key);
    const int64_t queries = tile_tokens(first_query);
    scores(first_query, first_key, {column(args_.qkv, head_ * size_, first_query), width_}, keys_, scores_);
    loops_.softmax({.tile = {.rows = queries,
                             .width = size_,
                             .keys = tile_tokens(first_key),
                             .diagonal = diagonal,
                             .hidden = part_.hidden(first_query, first_key),
                             .soft_cap = static_cast<float>(part_.soft_cap),
                             .scores = scores_,
                             .sums = sums_,
                             .maximum = maximum_,
                             .total = total_,
                             .dropout = part_.tile_dropout(args_.dropout, head_, first_query, first_key)},
                    .scale = scale(),
                    .probabilities = probabilities_});
    add(queries, tile_tokens(first_key), {probabilities_, kTile}, values_ + first_key * size_, sums_,
        diagonal ? TilePart::LowerLeft : TilePart::Whole);
  }

  void write(int64_t first_query) {
    const int64_t stride = part_.out_width(), token = part_.first_row() + first_query;
    bfloat16* out = args_.out.as<bfloat16>() + token * stride + head_ * size_;
    const int64_t statistic = part_.first_statistic(head_) + first_query;
    for (int64_t row = 0; row < tile_tokens(first_query); ++row) {
      attention_loops<bfloat16>().store_rows(sums_ + row * size_, 1, size_, 1 / total_[row], out + row * stride, stride);
      store_statistic(maximum_[row] + std::log(total_[row]), args_.log_sum_exp, statistic + row);
    }
  }

  const Attention& args_;
  int64_t head_;
  bfloat16* keys_;           // [tiles][D / 2][kTile][2]
  bfloat16* values_;         // [S / 2][D][2]
  bfloat16* probabilities_;  // [kTile, kTile]
  float *sums_, *scores_;    // [kTile, D], [kTile, kTile]
  float *maximum_, *total_;  // [kTile]
};

class PairHeadBackward : private PairHead {
 public:
  PairHeadBackward(const AttentionPairLoops& loops, const AttentionBackward& args, const AttentionPart& part,
                   int64_t key_value_head)
      : PairHead(loops, part), args_(args), g_(key_value_head) {
    const int64_t whole = part.tokens * size_, tile = kTile * kTile;
    thread_local Scratch sums, pairs;
    float* floats = sums.reserve_elements<float>(3 * whole + 2 * tile + 2 * part.tokens);
    bfloat16* halves = pairs.reserve_elements<bfloat16>(5 * whole + 3 * tile);
    const auto take = [](auto*& memory, int64_t count) { return std::exchange(memory, memory + count); };
    dqueries_ = take(floats, whole), dkeys_ = take(floats, whole), dvalues_ = take(floats, whole);
    scores_ = take(floats, tile), score_gradients_ = take(floats, tile);
    log_sum_exp_ = take(floats, part.tokens), out_times_dout_ = take(floats, part.tokens);
    key_rows_ = take(halves, whole), key_cols_ = take(halves, whole), value_cols_ = take(halves, whole);
    query_rows_ = take(halves, whole), dout_rows_ = take(halves, whole);
    probabilities_ = take(halves, tile), dscores_ = take(halves, tile), paired_dscores_ = take(halves, tile);
  }

  void run() {
    const bfloat16 *keys = column(args_.qkv, part_.key_column(g_)), *values = column(args_.qkv, part_.value_column(g_));
    loops_.pair_rows(keys, width_, part_.tokens, size_, key_rows_);
    pair_cols(keys, key_cols_);
    pair_cols(values, value_cols_);
    std::fill_n(dkeys_, part_.tokens * size_, 0.0f);
    std::fill_n(dvalues_, part_.tokens * size_, 0.0f);
    const int64_t heads = part_.heads / part_.key_value_heads;
    for (int64_t head = g_ * heads; head < (g_ + 1) * heads; ++head) query_head(head);
    store(dkeys_, part_.key_column(g_), scale());
    store(dvalues_, part_.value_column(g_), 1);
  }

 private:
  void store(const float* from, int64_t first_column, float factor) const {
    attention_loops<bfloat16>().store_rows(from, part_.tokens, size_, factor, column(args_.dqkv, first_column), width_);
  }

  void query_head(int64_t head) {
    const int64_t tokens = part_.tokens, stride = part_.out_width(), place = part_.first_row() * stride + head * size_;
    const bfloat16* dout = args_.dout.as<bfloat16>() + place;
    loops_.pair_rows(column(args_.qkv, head * size_), width_, tokens, size_, query_rows_);
    loops_.pair_rows(dout, stride, tokens, size_, dout_rows_);
    loops_.dot_rows(dout, args_.out.as<bfloat16>() + place, stride, tokens, size_, out_times_dout_);
    load_rows_of_statistics(args_.log_sum_exp, part_.first_statistic(head), tokens, log_sum_exp_);
    std::fill_n(dqueries_, tokens * size_, 0.0f);
    for (int64_t first_key = 0; first_key < tokens; first_key += kTile)
      for (int64_t first_query = part_.first_query(first_key); first_query < part_.end_query(first_key); first_query += kTile)
        tile(head, dout + first_query * stride, first_query, first_key);
    store(dqueries_, head * size_, scale());
  }

  void tile(int64_t head, const bfloat16* dout, int64_t first_query, int64_t first_key) {
    const int64_t queries = tile_tokens(first_query), keys = tile_tokens(first_key);
    const bool diagonal = part_.on_diagonal(first_query, first_key);
    scores(first_query, first_key, {column(args_.qkv, head * size_, first_query), width_}, key_cols_, scores_);
    scores(first_query, first_key, {dout, part_.out_width()}, value_cols_, score_gradients_);
    loops_.score_gradients({.tile = {.rows = queries,
                                     .keys = keys,
                                     .diagonal = diagonal,
                                     .hidden = part_.hidden(first_query, first_key),
                                     .soft_cap = static_cast<float>(part_.soft_cap),
                                     .probabilities = scores_,
                                     .dscores = score_gradients_,
                                     .log_sum_exp = log_sum_exp_ + first_query,
                                     .row_sum = out_times_dout_ + first_query,
                                     .dropout = part_.tile_dropout(args_.dropout, head, first_query, first_key)},
                            .scale = scale(),
                            .paired_probabilities = probabilities_,
                            .paired_dscores = paired_dscores_,
                            .dscores = dscores_});
    const TilePart upper = diagonal ? TilePart::UpperLeft : TilePart::Whole,
                   lower = diagonal ? TilePart::LowerLeft : TilePart::Whole;
    add(keys, queries, {probabilities_, 2, 2 * kTile}, dout_rows_ + first_query * size_, dvalues_ + first_key * size_, upper);
    add(keys, queries, {paired_dscores_, 2, 2 * kTile}, query_rows_ + first_query * size_, dkeys_ + first_key * size_, upper);
    add(queries, keys, {dscores_, kTile}, key_rows_ + first_key * size_, dqueries_ + first_query * size_, lower);
  }

  const AttentionBackward& args_;
  int64_t g_;
  bfloat16 *key_rows_, *query_rows_, *dout_rows_;         // [S / 2][D][2]
  bfloat16 *key_cols_, *value_cols_;                      // [tiles][D / 2][kTile][2]
  bfloat16 *probabilities_, *paired_dscores_, *dscores_;  // [kTile / 2][kTile][2] twice, [kTile, kTile]
  float *dqueries_, *dkeys_, *dvalues_;                   // [S, D]
  float *scores_, *score_gradients_;                      // [kTile, kTile]
  float *log_sum_exp_, *out_times_dout_;                  // [S]
};

}  // namespace

const AttentionPairLoops* pair_loops_for(const AttentionSizes& sizes, DType dtype) {
  const bool fits = dtype == DType::BFloat16 && sizes.tokens % kPairTokens == 0 && sizes.head_size % kPairHeadSize == 0;
  return fits ? attention_pair_loops() : nullptr;
}

void attention_in_pairs(const AttentionPairLoops& loops, const Attention& args, const AttentionPart& part, int64_t head) {
  PairHeadForward(loops, args, part, head).run();
}

void attention_backward_in_pairs(const AttentionPairLoops& loops, const AttentionBackward& args, const AttentionPart& part,
                                 int64_t key_value_head) {
  PairHeadBackward(loops, args, part, key_value_head).run();
}

}  // namespace trivet::kernels::cpu
