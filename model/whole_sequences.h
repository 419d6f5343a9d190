// Small values of tokens, such as their losses, of whole sequences for context ranks that share them.
#pragma once

#include "comm/rank_axis.h"
#include "core/layer.h"

namespace trivet::model {

// own[B, S / c] of each rank -> [B, S] on all of them, of any dtype that copy_runs takes.
ScopedTensor gather_sequences(Context& context, const comm::RankAxis& axis, ConstTensorView own);
// The rank's part of whole[B, S]: own[B, S / c].
void take_own_part(Context& context, const comm::RankAxis& axis, ConstTensorView whole, TensorView own);

}  // namespace trivet::model
