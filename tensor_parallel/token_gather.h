// Sequence parallelism (Korthikanti et al. 2022): between blocks each tensor rank has its S / size consecutive tokens of every
// sequence, x[B, S / size, H]. Norms, residuals and dropout work on these; a layer that mixes tokens or channels of several
// ranks gathers all tokens first, and AxisSum scatters the sums (tensor_parallel/axis_sum.h).
//
//   TokenGather all(context, x);      (other work)      all.view()      [B, S, H]
//
// It runs one all_gather per sequence, because the tokens of a sequence are contiguous in memory and those of a rank are not.
// The gathered tensor is scratch: backward gathers again instead of keeping it. view() must be called before the object is
// destroyed; after an exception the stream must finish before the arena is destroyed.
#pragma once

#include "comm/rank_axis.h"
#include "core/layer.h"

namespace trivet::tensor_parallel {

// Returns the tensor axis if its ranks also share the tokens, else null.
const comm::RankAxis* sequence_axis(const Context& context);
// Returns the tokens that this rank has between blocks, if it has `own` of each sequence: context ranks share the sequence, and
// the tensor ranks of each may share its part.
OwnTokens own_tokens(const Context& context, int64_t own);
// Returns the shape of all tokens of the context rank; `own` [B, S / size, ...] is the shape of this rank's.
Shape all_tokens(const Context& context, Shape own);

class TokenGather {
 public:
  // If `wanted` is false or there is no sequence parallelism, view() is x itself. x must outlive this object.
  TokenGather(Context& context, ConstTensorView x, bool wanted = true);

  ConstTensorView view();  // waits for the gather

 private:
  ConstTensorView x_;
  ScopedTensor all_;
  Event arrived_;
};

}  // namespace trivet::tensor_parallel
