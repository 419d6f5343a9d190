// Sums over heads of what all heads of a token, or of a model, share.
#pragma once

#include <span>

#include "core/arena.h"
#include "core/layer.h"

namespace trivet::model {

// Returns sums [chunks, W] in float32 (float64), of which row 0 is the sum over heads of parts[heads, W]: each chunk of heads
// is summed by itself, and the chunks in a balanced tree, as a sum over ranks is. `chunk_ends`: the ends of the chunks; none:
// all heads are one.
ScopedTensor sum_over_heads(Context& context, ConstTensorView parts, std::span<const int64_t> chunk_ends);

}  // namespace trivet::model
