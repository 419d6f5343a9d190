// Shared by attention's forward and backward: the layout of the heads, documents, and conversions of statistics.
//
//   B sequences, S tokens per sequence, N query heads, G key/value heads, D head size
//   qkv[B, S, (N + 2G) D] = [query heads | key heads | value heads]
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu/attention_loops.h"
#include "kernels/cpu/numbers.h"
#include "kernels/kernels.h"

namespace trivet::kernels::cpu {

struct AttentionSizes {
  int64_t sequences = 0, tokens = 0, heads = 0, key_value_heads = 0, head_size = 0;
  bool causal = true;
  int64_t window = 0;              // 0: queries see all earlier keys
  double scale = 0, soft_cap = 0;  // scale 0: 1 / sqrt(D)
  OwnTokens own;                   // their results are wanted

  template <typename Args>  // Attention, AttentionBackward
  explicit AttentionSizes(const Args& args, const Shape& out)
      : heads(args.heads),
        key_value_heads(args.key_value_heads),
        causal(args.causal),
        window(args.hides_early_keys() ? args.window : 0),
        scale(args.scale),
        soft_cap(args.soft_cap),
        own(args.own) {
    const Shape& qkv = args.qkv.shape;
    const int64_t n = heads, g = key_value_heads;
    const bool fits = qkv.dims() == 3 && out.dims() == 3 && n > 0 && g > 0 && n % g == 0 && qkv[2] % (n + 2 * g) == 0 &&
                      qkv[0] == out[0] && qkv[1] == out[1] && out[2] == qkv[2] / (n + 2 * g) * n;
    if (!fits)
      throw std::logic_error("attention: qkv " + to_string(qkv) + ", out " + to_string(out) + ", heads " + std::to_string(n) +
                             ", key/value heads " + std::to_string(g) +
                             " do not fit: qkv is [B, S, (N + 2G) D], out is [B, S, N D], G divides N");
    sequences = qkv[0], tokens = qkv[1], head_size = qkv[2] / (n + 2 * g);
  }
  int64_t qkv_width() const { return (heads + 2 * key_value_heads) * head_size; }
  int64_t out_width() const { return heads * head_size; }
  int64_t key_column(int64_t g) const { return (heads + g) * head_size; }
  int64_t value_column(int64_t g) const { return (heads + key_value_heads + g) * head_size; }
  int64_t tile_tokens(int64_t first) const { return std::min(kTile, tokens - first); }
  // Queries of the tile that starts at `first_query` see the keys of tiles that start from here to before end_key.
  int64_t begin_key(int64_t first_query) const {
    return window > 0 ? std::max(int64_t{0}, first_query - window + 1) / kTile * kTile : 0;
  }
  int64_t end_key(int64_t first_query) const { return causal ? first_query + 1 : tokens; }
  // The first tile of queries that see keys of the tile that starts at `first_key`, and where those tiles end.
  int64_t first_query(int64_t first_key) const { return causal ? first_key : 0; }
  int64_t end_query(int64_t first_key) const { return window > 0 ? std::min(tokens, first_key + kTile + window - 1) : tokens; }
  // Row r of a tile does not see the first hidden + r keys.
  int64_t hidden(int64_t first_query, int64_t first_key) const {
    return window > 0 ? first_query - first_key - window + 1 : -kTile;
  }
  // Checks whether causality hides some keys of this tile from some of its queries.
  bool on_diagonal(int64_t first_query, int64_t first_key) const { return causal && first_query == first_key; }
  template <typename Sum>
  Sum score_scale() const {
    return scale > 0 ? static_cast<Sum>(scale) : Sum{1} / std::sqrt(static_cast<Sum>(head_size));
  }
  int64_t padded_head_size() const { return padded(head_size, kProductCols); }
};

// A document: tokens of one sequence that see each other and no others. `tokens` of the base class is their number. Without
// documents, a sequence is one.
struct AttentionPart : AttentionSizes {
  int64_t sequence = 0, first = 0, all_tokens = 0;  // `first`: the document's first token, of all_tokens of the sequence
  bool padding = false;
  int64_t first_row = 0;                           // in qkv and out
  int64_t statistics = 0, statistics_of_head = 0;  // where those of head 0 are, and from there to those of the next head

  AttentionPart(const AttentionSizes& sizes, int64_t of_sequence, int64_t first_token, int64_t end_token)
      : AttentionSizes(sizes), sequence(of_sequence), first(first_token), all_tokens(sizes.tokens) {
    tokens = end_token - first_token;
    first_row = sequence * all_tokens + first;
    statistics = sequence * heads * all_tokens + first;
    statistics_of_head = all_tokens;
    if (window >= tokens) window = 0;
  }
  // Checks whether results of the document's tile that starts at `first_token` are wanted.
  bool wants(int64_t first_token) const { return own.any_of(first + first_token, tile_tokens(first_token)); }
  int64_t first_statistic(int64_t head) const { return statistics + head * statistics_of_head; }
  // Describes dropout to the loops, for the tile of `head` that starts at this query and key of the document.
  TileDropout tile_dropout(const DropoutSite& site, int64_t head, int64_t query, int64_t key) const {
    const uint64_t sample = static_cast<uint64_t>(site.first_sample + sequence);
    return {site.rate, site.key, (static_cast<uint64_t>(site.step.value()) << 32) + sample,
            static_cast<uint64_t>(site.first_element + (head * all_tokens + first + query) * all_tokens + first + key),
            all_tokens};
  }
};

// Returns the documents of all sequences, and their padding. Throws std::logic_error if they are none.
std::vector<AttentionPart> attention_parts(const AttentionSizes& sizes, ConstTensorView documents);

// Zeros the document's rows of a tensor [B, S, width].
inline void zero_rows(const TensorView& tensor, const AttentionPart& part) {
  const int64_t row = tensor.shape.cols() * static_cast<int64_t>(size_of(tensor.dtype));
  std::memset(static_cast<std::byte*>(tensor.data) + part.first_row * row, 0, static_cast<size_t>(part.tokens * row));
}

// The statistics of rows are float32, or float64 for gradient checks.
template <typename Sum>
void load_rows_of_statistics(const ConstTensorView& from, int64_t first, int64_t count, Sum* to) {
  dispatch_float(from.dtype, [&]<typename T>() {
    for (int64_t row = 0; row < count; ++row) to[row] = widen<Sum>(from.as<T>()[first + row]);
  });
}

template <typename Sum>
void store_statistic(Sum value, const TensorView& to, int64_t row) {
  dispatch_float(to.dtype, [&]<typename T>() { to.as<T>()[row] = narrow<T>(value); });
}

}  // namespace trivet::kernels::cpu
