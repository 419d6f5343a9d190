// Sequence parallelism (Korthikanti et al. 2022): between blocks each tensor rank has its S / size consecutive tokens of every
// sequence, x[B, S / size, H]. Norms, residuals and dropout work on them; what mixes tokens or channels of several ranks
// gathers all tokens first, and AxisSum scatters the sums (model/axis_sum.h).
//
//   TokenGather all(context, x);      (other work)      all.view()      [B, S, H]
//
// One all_gather a sequence, since a sequence's tokens are neighbours in memory and those of a rank are not. What is gathered
// is scratch: backward gathers again rather than keep it. view() must be called before the object goes; after an exception the
// stream must end before the arena does.
#pragma once

#include "core/layer.h"
#include "tensor_parallel/tensor_axis.h"

namespace trivet::model {

// The tensor axis where it also shares the tokens, else null.
const tensor_parallel::TensorAxis* sequence_axis(const Context& context);
// Shape of all tokens where a rank has [B, S / size, ...] of them.
Shape all_tokens(const Context& context, Shape own);

class TokenGather {
 public:
  // `wanted` false, or no sequence parallelism: x has all tokens already. x must live as long as this.
  TokenGather(Context& context, ConstTensorView x, bool wanted = true);

  ConstTensorView view();  // waits

 private:
  ConstTensorView x_;
  ScopedTensor all_;
  Event arrived_;
};

}  // namespace trivet::model
