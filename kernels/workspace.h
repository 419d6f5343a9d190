// Scratch memory, in bytes, that a device's kernels need in addition to their arguments. It is computed from shapes alone, so
// that a plan can count it without a device. A launch may be given more.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/product_scratch.h"
#include "kernels/rules.h"

namespace trivet::kernels {

inline constexpr int64_t kWorkspaceAlignment = 256;  // for a workspace and the parts into which a kernel divides it
constexpr int64_t aligned_workspace(int64_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// On every device, sums over rows are built from sums over chunks of this many rows.
inline constexpr int64_t kRowChunk = 64;

// The chunks' sums of one parameter: [chunks, columns].
inline int64_t column_sum_bytes(ConstTensorView rows, int64_t columns) {
  const int64_t chunks = (rows.shape.rows() + kRowChunk - 1) / kRowChunk;
  return aligned_workspace(chunks * columns * size_of(statistics_type(rows.dtype)));
}
inline int64_t column_sum_bytes(ConstTensorView rows) { return column_sum_bytes(rows, rows.shape.cols()); }

inline int64_t workspace_bytes(const BiasGradient& args) { return column_sum_bytes(args.dy); }
inline int64_t workspace_bytes(const LayerNormBackwardWeight& args) {
  return column_sum_bytes(args.dy) * ((args.dgain.absent() ? 0 : 1) + (args.dbias.absent() ? 0 : 1));
}
inline int64_t workspace_bytes(const RmsNormBackwardWeight& args) { return column_sum_bytes(args.dy); }
inline int64_t workspace_bytes(const HeadNormBackwardWeight& args) {
  return column_sum_bytes(args.dout, args.dgains.elements());
}

// Lists of the tokens of each row of the table: see kernels/cuda/fused/embedding_backward.cu.
struct EmbeddingScratch {
  int64_t counts, starts, slots, places, sorted, few, many, cursors;  // offsets in bytes
  int64_t bytes;

  EmbeddingScratch(int64_t tokens, int64_t rows) {
    int64_t end = 0;
    const auto take = [&end](int64_t words) {
      const int64_t first = end;
      end += aligned_workspace(words * size_of(DType::Int32));
      return first;
    };
    cursors = take(4);
    counts = take(rows);
    starts = take(rows);
    slots = take(tokens);
    places = take(tokens);
    sorted = take(tokens);
    few = take(std::min(tokens, rows));
    many = take(std::min(tokens, rows));
    bytes = end;
  }
};
inline int64_t workspace_bytes(const EmbeddingBackward& args) {
  return args.dtable.absent() ? 0 : EmbeddingScratch(args.tokens.elements(), args.dtable.shape[0]).bytes;
}

// The loss of each row, before they are added in order.
inline int64_t workspace_bytes(const CrossEntropy& args) { return args.logits.shape.rows() * size_of(DType::Float64); }
inline int64_t workspace_bytes(const CrossEntropyOfPart& args) { return args.logits.shape.rows() * size_of(DType::Float64); }

// The statistics that attention's backward reads are padded to whole tiles of this many queries.
inline constexpr int64_t kAttentionRows = 128;
constexpr int64_t padded_attention_rows(int64_t tokens) {
  return (tokens + kAttentionRows - 1) / kAttentionRows * kAttentionRows;
}

// The log-sum-exp and the sum over d of dO O of every row: [2, B, N, padded S].
inline int64_t workspace_bytes(const AttentionBackward& args) {
  const int64_t rows = args.qkv.shape[0] * args.heads * padded_attention_rows(args.qkv.shape[1]);
  return 2 * rows * size_of(args.log_sum_exp.dtype);
}

// What each thread of a CPU keeps for attention, at most: which loops run depends on the processor.
int64_t thread_scratch_bytes(const Attention& args);
int64_t thread_scratch_bytes(const AttentionBackward& args);

}  // namespace trivet::kernels
