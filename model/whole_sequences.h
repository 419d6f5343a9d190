// Values of tokens of whole sequences, for context ranks that share them.
#pragma once

#include "comm/rank_axis.h"
#include "core/layer.h"
#include "core/sequence_part.h"

namespace trivet::model {

// The elements from `first` on.
inline ConstTensorView from_element(ConstTensorView view, int64_t first) { return view.slice(first, view.elements() - first); }
inline TensorView from_element(TensorView view, int64_t first) { return view.slice(first, view.elements() - first); }

// Some columns of rows of tokens.
struct TokenColumns {
  int64_t first = 0, width = 0;
};
// Copies columns of own[B, n, w], the tokens of `rank`, to their places in whole[B, S, W], from column `to` on.
void place_tokens(Context& context, const SequencePart& part, int rank, ConstTensorView own, const TokenColumns& from,
                  TensorView whole, int64_t to);
// Copies the columns of whole[B, S, W] from `from` on, of the tokens that this rank has, to columns of own[B, n, w].
void take_tokens(Context& context, const SequencePart& part, ConstTensorView whole, int64_t from, TensorView own,
                 const TokenColumns& to);

// own[B, n] of each rank -> [B, S] on all of them, of any dtype that copy_runs takes.
ScopedTensor gather_sequences(Context& context, const comm::RankAxis& axis, ConstTensorView own);
// The rank's part of whole[B, S]: own[B, n].
void take_own_part(Context& context, const SequencePart& part, ConstTensorView whole, TensorView own);

}  // namespace trivet::model
