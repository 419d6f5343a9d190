#include "kernels/cpu/attention_in_pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/attention_scratch.h"

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
    return qkv.template as<bfloat16>() + (part_.first_row + first) * width_ + column;
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
                    .b = right,
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
    const PairScratch parts = PairScratch::forward(part.tokens, size_);
    float* const floats = static_cast<float*>(attention_scratch().reserve(parts.bytes()));
    sums_ = floats, scores_ = sums_ + kTile * size_, maximum_ = scores_ + kTile * kTile, total_ = maximum_ + kTile;
    keys_ = reinterpret_cast<bfloat16*>(floats + parts.floats);
    values_ = keys_ + part.tokens * size_, probabilities_ = values_ + part.tokens * size_;
  }

  void run() {
    const int64_t g = head_ / (part_.heads / part_.key_value_heads);
    pair_cols(column(args_.qkv, part_.key_column(g)), keys_);
    loops_.pair_rows(column(args_.qkv, part_.value_column(g)), width_, part_.tokens, size_, values_);
    for (int64_t first = 0; first < part_.tokens; first += kTile)
      if (part_.wants(first)) query_tile(first);
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
    scores(first_query, first_key, {column(args_.qkv, head_ * size_, first_query), width_}, keys_ + first_key * size_, scores_);
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
    const int64_t stride = part_.out_width(), token = part_.first_row + first_query;
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
    const int64_t whole = part.tokens * size_, rows = kTile * size_, tile = kTile * kTile;
    const PairScratch parts = PairScratch::backward(part.tokens, size_);
    auto* floats = static_cast<float*>(attention_scratch().reserve(parts.bytes()));
    auto* halves = reinterpret_cast<bfloat16*>(floats + parts.floats);
    const auto take = [](auto*& memory, int64_t count) { return std::exchange(memory, memory + count); };
    dqueries_ = take(floats, whole), dkeys_ = take(floats, whole), dvalues_ = take(floats, whole);
    scores_ = take(floats, tile), score_gradients_ = take(floats, tile);
    log_sum_exp_ = take(floats, part.tokens), out_times_dout_ = take(floats, part.tokens);
    key_rows_ = take(halves, rows), key_cols_ = take(halves, rows), value_cols_ = take(halves, rows);
    query_rows_ = take(halves, whole), dout_rows_ = take(halves, whole);
    probabilities_ = take(halves, tile), dscores_ = take(halves, tile), paired_dscores_ = take(halves, tile);
  }

  void run() {
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

  // Keys and values of the tile that starts at `first`.
  void load_keys_and_values(int64_t first) {
    const bfloat16* const keys = column(args_.qkv, part_.key_column(g_), first);
    const bfloat16* const values = column(args_.qkv, part_.value_column(g_), first);
    loops_.pair_rows(keys, width_, tile_tokens(first), size_, key_rows_);
    loops_.pair_cols(keys, width_, tile_tokens(first), size_, key_cols_);
    loops_.pair_cols(values, width_, tile_tokens(first), size_, value_cols_);
  }

  void query_head(int64_t head) {
    const int64_t tokens = part_.tokens, stride = part_.out_width(), place = part_.first_row * stride + head * size_;
    const bfloat16* dout = args_.dout.as<bfloat16>() + place;
    loops_.pair_rows(column(args_.qkv, head * size_), width_, tokens, size_, query_rows_);
    loops_.pair_rows(dout, stride, tokens, size_, dout_rows_);
    loops_.dot_rows(dout, args_.out.as<bfloat16>() + place, stride, tokens, size_, out_times_dout_);
    load_rows_of_statistics(args_.log_sum_exp, part_.first_statistic(head), tokens, log_sum_exp_);
    std::fill_n(dqueries_, tokens * size_, 0.0f);
    for (int64_t first_key = 0; first_key < tokens; first_key += kTile) {
      load_keys_and_values(first_key);
      for (int64_t first_query = part_.first_query(first_key); first_query < part_.end_query(first_key); first_query += kTile)
        if (part_.wants(first_key) || part_.wants(first_query)) tile(head, dout + first_query * stride, first_query, first_key);
    }
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
    if (part_.wants(first_key)) {
      add(keys, queries, {probabilities_, 2, 2 * kTile}, dout_rows_ + first_query * size_, dvalues_ + first_key * size_, upper);
      add(keys, queries, {paired_dscores_, 2, 2 * kTile}, query_rows_ + first_query * size_, dkeys_ + first_key * size_, upper);
    }
    if (part_.wants(first_query)) add(queries, keys, {dscores_, kTile}, key_rows_, dqueries_ + first_query * size_, lower);
  }

  const AttentionBackward& args_;
  int64_t g_;
  bfloat16 *query_rows_, *dout_rows_;                     // [S / 2][D][2]
  bfloat16* key_rows_;                                    // [kTile / 2][D][2]
  bfloat16 *key_cols_, *value_cols_;                      // [D / 2][kTile][2]
  bfloat16 *probabilities_, *paired_dscores_, *dscores_;  // [kTile / 2][kTile][2] twice, [kTile, kTile]
  float *dqueries_, *dkeys_, *dvalues_;                   // [S, D]
  float *scores_, *score_gradients_;                      // [kTile, kTile]
  float *log_sum_exp_, *out_times_dout_;                  // [S]
};

// A copy of some heads of a document whose number of tokens the loops cannot take, followed by zeros. No token sees those,
// because they come later, and their gradients are 0.
class PaddedHeads {
 public:
  // `first_head` of part's query heads and the `heads` - 1 after it, which have one key/value head. There is memory for as many
  // tensors like qkv and like out.
  PaddedHeads(const AttentionPart& part, int64_t first_head, int64_t heads, int64_t wide, int64_t narrow)
      : from_(part), part_(part), first_head_(first_head) {
    part_.heads = heads, part_.key_value_heads = 1;
    part_.tokens = part_.statistics_of_head = padded(part.tokens, kPairTokens);
    part_.first_row = part_.statistics = 0;
    const int64_t bytes = padded_copy_bytes(part_.tokens, part_.head_size, heads, wide, narrow);
    memory_ = static_cast<std::byte*>(padded_copies().reserve(bytes));
  }
  const AttentionPart& part() const { return part_; }
  TensorView like_qkv() { return take(DType::BFloat16, {1, part_.tokens, part_.qkv_width()}); }
  TensorView like_out() { return take(DType::BFloat16, {1, part_.tokens, part_.out_width()}); }
  TensorView statistics() { return take(DType::Float32, {1, part_.heads, part_.tokens}); }
  // The heads keep their random draws.
  DropoutSite site(DropoutSite of_all) const {
    of_all.first_element += first_head_ * part_.all_tokens * part_.all_tokens;
    return of_all;
  }
  // qkv or its gradient; out or its gradient.
  void read_qkv(ConstTensorView all, TensorView copy) const {
    for_each_segment([&](int64_t in_all, int64_t in_copy, int64_t width) { read(all, in_all, copy, in_copy, width); });
  }
  void write_qkv(ConstTensorView copy, TensorView all) const {
    for_each_segment([&](int64_t in_all, int64_t in_copy, int64_t width) { write(copy, in_copy, all, in_all, width); });
  }
  void read_out(ConstTensorView all, TensorView copy) const {
    read(all, first_head_ * part_.head_size, copy, 0, part_.out_width());
  }
  void write_out(ConstTensorView copy, TensorView all) const {
    write(copy, 0, all, first_head_ * part_.head_size, part_.out_width());
  }
  void read_statistics(ConstTensorView all, TensorView copy) const {
    std::fill_n(copy.as<float>(), copy.elements(), 0.0f);
    for (int64_t head = 0; head < part_.heads; ++head)
      std::copy_n(all.as<float>() + from_.first_statistic(first_head_ + head), from_.tokens,
                  copy.as<float>() + part_.first_statistic(head));
  }
  void write_statistics(ConstTensorView copy, TensorView all) const {
    for (int64_t head = 0; head < part_.heads; ++head)
      std::copy_n(copy.as<float>() + part_.first_statistic(head), from_.tokens,
                  all.as<float>() + from_.first_statistic(first_head_ + head));
  }

 private:
  // Calls body(first column in all heads, first column in the copy, columns) for queries, keys and values.
  template <typename Body>
  void for_each_segment(const Body& body) const {
    const int64_t size = part_.head_size, queries = part_.out_width();
    const int64_t g = first_head_ / (from_.heads / from_.key_value_heads);
    body(first_head_ * size, 0, queries);
    body(from_.key_column(g), queries, size);
    body(from_.value_column(g), queries + size, size);
  }
  TensorView take(DType dtype, const Shape& shape) {
    const TensorView tensor{memory_, dtype, shape};
    memory_ += shape.elements() * size_of(dtype);
    return tensor;
  }
  void read(ConstTensorView all, int64_t column, TensorView copy, int64_t to_column, int64_t width) const {
    const int64_t stride = copy.shape[2];
    for (int64_t row = 0; row < part_.tokens; ++row) {
      bfloat16* const to = copy.as<bfloat16>() + row * stride + to_column;
      if (row < from_.tokens)
        std::copy_n(all.as<bfloat16>() + (from_.first_row + row) * all.shape[2] + column, width, to);
      else
        std::fill_n(to, width, bfloat16(0.0f));
    }
  }
  void write(ConstTensorView copy, int64_t column, TensorView all, int64_t to_column, int64_t width) const {
    for (int64_t row = 0; row < from_.tokens; ++row)
      std::copy_n(copy.as<bfloat16>() + row * copy.shape[2] + column, width,
                  all.as<bfloat16>() + (from_.first_row + row) * all.shape[2] + to_column);
  }

  const AttentionPart& from_;
  AttentionPart part_;
  int64_t first_head_;
  std::byte* memory_;  // what is left of it
};

}  // namespace

// Those of the whole sequence, also for its documents: they have the bits that they would have alone in it.
const AttentionPairLoops* pair_loops_for(const AttentionPart& part, DType dtype) {
  const bool fits = dtype == DType::BFloat16 && part.all_tokens % kPairTokens == 0 && part.head_size % kPairHeadSize == 0;
  return fits ? attention_pair_loops() : nullptr;
}

void attention_in_pairs(const AttentionPairLoops& loops, const Attention& args, const AttentionPart& part, int64_t head) {
  if (part.tokens % kPairTokens == 0) return PairHeadForward(loops, args, part, head).run();
  PaddedHeads heads(part, head, 1, 1, 1);
  Attention padded = args;
  const TensorView qkv = heads.like_qkv();
  padded.qkv = qkv, padded.out = heads.like_out();
  padded.log_sum_exp = heads.statistics();
  padded.dropout = heads.site(args.dropout);
  heads.read_qkv(args.qkv, qkv);
  PairHeadForward(loops, padded, heads.part(), 0).run();
  heads.write_out(padded.out, args.out);
  heads.write_statistics(padded.log_sum_exp, args.log_sum_exp);
}

void attention_backward_in_pairs(const AttentionPairLoops& loops, const AttentionBackward& args, const AttentionPart& part,
                                 int64_t key_value_head) {
  if (part.tokens % kPairTokens == 0) return PairHeadBackward(loops, args, part, key_value_head).run();
  const int64_t of_group = part.heads / part.key_value_heads;
  PaddedHeads heads(part, key_value_head * of_group, of_group, 2, 2);
  const TensorView qkv = heads.like_qkv(), out = heads.like_out(), dout = heads.like_out();
  const TensorView dqkv = heads.like_qkv(), log_sum_exp = heads.statistics();
  heads.read_qkv(args.qkv, qkv);
  heads.read_out(args.out, out);
  heads.read_out(args.dout, dout);
  heads.read_statistics(args.log_sum_exp, log_sum_exp);
  AttentionBackward padded = args;
  padded.qkv = qkv, padded.out = out, padded.dout = dout, padded.log_sum_exp = log_sum_exp;
  padded.dqkv = dqkv;
  padded.dropout = heads.site(args.dropout);
  PairHeadBackward(loops, padded, heads.part(), 0).run();
  heads.write_qkv(padded.dqkv, args.dqkv);
}

}  // namespace trivet::kernels::cpu
