// Looking up rows of a table, which ranks may share.
#pragma once

#include <cstdint>

#include "kernels/kernel_call.h"

namespace trivet::kernels {

// The part of the vocabulary that a call's table (or logits) holds: rows (columns) [first, first + their number) of
// `vocabulary`. If `vocabulary` is 0, it holds all of them.
struct TableRows {
  int64_t first = 0, vocabulary = 0;
};

// out[B, S, H] = table[tokens[B, S], H] (+ positions[s, H] when present, or positions[places[B, S], H]); tokens whose row is in
// another part of the table get zeros. A token id outside [0, V) throws std::out_of_range before anything is written; on a
// device, where the host cannot see the ids, its row becomes NaN.
struct Embedding {
  ConstTensorView tokens, table, positions;
  TensorView out;
  TableRows rows;
  ConstTensorView places = {};  // optional int32 [B, S], rows of `positions`

  void check() const;
  KernelCall describe() const;
};

// dtable[token] += rows of dy, in token order; dpositions[s] += dy[b, s] over b, in order, whatever the tokens are. Absent
// gradients are not computed.
struct EmbeddingBackward {
  ConstTensorView tokens, dy;
  TensorView dtable, dpositions;
  bool accumulate_table = true, accumulate_positions = true;
  TableRows rows;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
