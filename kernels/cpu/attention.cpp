// Attention with a running softmax (Milakov & Gimelshein 2018; FlashAttention, Dao et al. 2022): for each tile of queries, all
// tiles of keys that it sees are visited in order. When the maximum of a row grows, its sums so far are scaled down.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/attention_in_pairs.h"
#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/pieces.h"

namespace trivet::kernels::cpu {
namespace {

// Computes one query head of one document on the calling thread.
template <typename T>
class HeadForward {
 public:
  using Sum = SumOf<T>;

  HeadForward(const Attention& args, const AttentionPart& part, int64_t head) : args_(args), part_(part), head_(head) {
    const int64_t tokens = padded(part.tokens, kTile), width = part.padded_head_size();
    Sum* memory = attention_scratch().reserve_elements<Sum>(LoopScratch::forward(tokens, width));
    const auto take = [&](int64_t count) { return std::exchange(memory, memory + count); };
    keys_ = take(tokens * width), values_ = take(tokens * width);
    queries_ = take(kTile * width), sums_ = take(kTile * width), scores_ = take(kTile * kTile);
    maximum_ = take(kTile), total_ = take(kTile);
  }

  void run() {
    const T* qkv = args_.qkv.as<T>() + part_.first_row * part_.qkv_width();
    const int64_t g = head_ / (part_.heads / part_.key_value_heads), stride = part_.qkv_width();
    for (int64_t first = 0; first < part_.tokens; first += kTile)
      loops_.load_transposed(qkv + part_.key_column(g) + first * stride, stride, part_.tile_tokens(first), part_.head_size,
                             keys_ + first * part_.head_size);
    loops_.load_rows(qkv + part_.value_column(g), stride, part_.tokens, part_.head_size, Sum{1}, values_);
    for (int64_t first = 0; first < part_.tokens; first += kTile)
      if (part_.wants(first)) query_tile(qkv, first);
  }

 private:
  void query_tile(const T* qkv, int64_t first_query) {
    const int64_t queries = part_.tile_tokens(first_query), width = part_.padded_head_size();
    const Sum scale = part_.score_scale<Sum>();
    loops_.load_rows(qkv + first_query * part_.qkv_width() + head_ * part_.head_size, part_.qkv_width(), queries,
                     part_.head_size, scale, queries_);
    std::fill_n(maximum_, kTile, -std::numeric_limits<Sum>::infinity());
    std::fill_n(total_, kTile, Sum{0});
    std::fill_n(sums_, kTile * width, Sum{0});
    for (int64_t first_key = part_.begin_key(first_query); first_key < part_.end_key(first_query); first_key += kTile)
      add_keys(first_query, queries, first_key);
    write(first_query, queries);
  }

  void add_keys(int64_t first_query, int64_t queries, int64_t first_key) {
    const int64_t width = part_.padded_head_size(), rows = padded(queries, kProductRows);
    const int64_t keys = padded(part_.tile_tokens(first_key), kProductCols);
    const bool diagonal = part_.on_diagonal(first_query, first_key);
    loops_.product({.m = rows,
                    .n = keys,
                    .k = part_.head_size,
                    .a = {queries_, width},
                    .b = keys_ + first_key * part_.head_size,
                    .b_stride = kTile,
                    .c = scores_,
                    .c_stride = kTile,
                    .part = diagonal ? TilePart::LowerOut : TilePart::Whole});
    loops_.softmax({.rows = queries,
                    .width = width,
                    .keys = part_.tile_tokens(first_key),
                    .diagonal = diagonal,
                    .hidden = part_.hidden(first_query, first_key),
                    .soft_cap = static_cast<Sum>(part_.soft_cap),
                    .scores = scores_,
                    .sums = sums_,
                    .maximum = maximum_,
                    .total = total_,
                    .dropout = part_.tile_dropout(args_.dropout, head_, first_query, first_key)});
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
    const int64_t row_stride = part_.out_width(), token = part_.first_row + first_query;
    T* out = args_.out.as<T>() + token * row_stride + head_ * part_.head_size;
    const int64_t statistic = part_.first_statistic(head_) + first_query;
    for (int64_t row = 0; row < queries; ++row) {
      const Sum* sums = sums_ + row * part_.padded_head_size();
      loops_.store_rows(sums, 1, part_.head_size, Sum{1} / total_[row], out + row * row_stride, row_stride);
      store_statistic(maximum_[row] + std::log(total_[row]), args_.log_sum_exp, statistic + row);
    }
  }

  const AttentionLoops<T>& loops_ = attention_loops<T>();
  const Attention& args_;
  const AttentionPart& part_;
  int64_t head_;
  Sum *keys_, *values_;    // [tiles][D, kTile], [S, D]
  Sum *queries_, *sums_;   // [kTile, D]
  Sum* scores_;            // [kTile, kTile]
  Sum *maximum_, *total_;  // [kTile]
};

// The results of padding are 0.
void clear(const Attention& args, const AttentionPart& padding, int64_t head) {
  dispatch_float(args.log_sum_exp.dtype, [&]<typename T>() {
    std::fill_n(args.log_sum_exp.as<T>() + padding.first_statistic(head), padding.tokens, T{0});
  });
  if (head == 0) zero_rows(args.out, padding);
}

}  // namespace

void compute(const MergeAttention& args, int threads) {
  const int64_t tokens = args.more.shape[1], heads = args.heads, size = args.more.shape[2] / heads;
  dispatch_float(args.more.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    const T* more = args.more.as<T>();
    Sum *out = args.out.as<Sum>(), *log_sum_exp = args.log_sum_exp.as<Sum>();
    for_each_piece(args.more.shape[0] * heads, threads, [&](int64_t piece) {
      const int64_t sequence = piece / heads, head = piece % heads;
      for (int64_t token = 0; token < tokens; ++token) {
        Sum& sum = log_sum_exp[piece * tokens + token];
        const Sum distance = args.more_log_sum_exp.as<Sum>()[piece * tokens + token] - sum;
        const Sum weight = 1 / (1 + std::exp(-distance));
        sum += std::max(distance, Sum{0}) + std::log1p(std::exp(-std::abs(distance)));
        const int64_t first = ((sequence * tokens + token) * heads + head) * size;
        for (int64_t e = first; e < first + size; ++e) out[e] += weight * (widen<Sum>(more[e]) - out[e]);
      }
    });
  });
}

void compute(const AttentionSinks& args, int threads) {
  const int64_t tokens = args.out.shape[1], heads = args.heads(), size = args.out.shape[2] / heads;
  dispatch_float(args.out.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    for_each_piece(args.out.shape[0] * heads, threads, [&](int64_t piece) {
      const int64_t sequence = piece / heads, head = piece % heads;
      const Sum sink = widen<Sum>(args.sinks.as<T>()[head]);
      for (int64_t token = 0; token < tokens; ++token) {
        Sum& sum = args.log_sum_exp.as<Sum>()[piece * tokens + token];
        const Sum distance = sink - sum, weight = 1 / (1 + std::exp(distance));
        sum += std::max(distance, Sum{0}) + std::log1p(std::exp(-std::abs(distance)));
        T* out = args.out.as<T>() + ((sequence * tokens + token) * heads + head) * size;
        for (int64_t e = 0; e < size; ++e) out[e] = narrow<T>(weight * widen<Sum>(out[e]));
      }
    });
  });
}

void compute(const AttentionSinksBackward& args, int threads) {
  const int64_t tokens = args.out.shape[1], heads = args.heads(), size = args.out.shape[2] / heads;
  dispatch_float(args.out.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    for_each_piece(args.out.shape[0] * tokens, threads, [&](int64_t row) {
      const int64_t sequence = row / tokens, token = row % tokens;
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t first = (row * heads + head) * size;
        Sum product = 0;
        for (int64_t e = first; e < first + size; ++e)
          product += widen<Sum>(args.dout.as<T>()[e]) * widen<Sum>(args.out.as<T>()[e]);
        const Sum sum = args.log_sum_exp.as<Sum>()[(sequence * heads + head) * tokens + token];
        args.dsinks.as<T>()[row * heads + head] = narrow<T>(-std::exp(widen<Sum>(args.sinks.as<T>()[head]) - sum) * product);
      }
    });
  });
}

std::vector<AttentionPart> attention_parts(const AttentionSizes& sizes, ConstTensorView documents) {
  std::vector<AttentionPart> parts;
  const int64_t all = sizes.tokens;
  for (int64_t sequence = 0; sequence < sizes.sequences; ++sequence) {
    const int32_t* const of = documents.absent() ? nullptr : documents.as<int32_t>() + sequence * all;
    for (int64_t begin = 0, end = 0; begin < all; begin = end) {
      end = of ? std::find_if(of + begin, of + all, [&](int32_t first) { return first != of[begin]; }) - of : all;
      if (of && of[begin] != begin && of[begin] != all)
        throw std::logic_error("attention: token " + std::to_string(begin) +
                               " of a sequence begins a document whose first is " + std::to_string(of[begin]));
      parts.emplace_back(sizes, sequence, begin, end);
      parts.back().padding = of && of[begin] == all;
    }
  }
  return parts;
}

void compute(const Attention& args, int threads) {
  const AttentionSizes sizes(args, args.out.shape);
  if (args.out.elements() == 0) return;
  const std::vector<AttentionPart> parts = attention_parts(sizes, args.documents);
  for_each_piece(static_cast<int64_t>(parts.size()) * sizes.heads, threads, [&](int64_t piece) {
    const AttentionPart& part = parts[piece / sizes.heads];
    const int64_t head = piece % sizes.heads;
    if (part.padding) return clear(args, part, head);
    if (const AttentionPairLoops* loops = pair_loops_for(part, args.qkv.dtype))
      return attention_in_pairs(*loops, args, part, head);
    dispatch_float(args.qkv.dtype, [&]<typename T>() { HeadForward<T>(args, part, head).run(); });
  });
}

}  // namespace trivet::kernels::cpu
