// Sums and maxima over ranks, element by element: to[t][i] = from[0][i] + from[1][i] + ... for every target t.
//
// Terms are combined in rank order, so the result has the same bits wherever and in however many pieces it is computed.
// float32, bfloat16 and float16 add in float32 and round once; float64, int64 and int32 add in their own type (integers wrap).
// A maximum with a NaN is the NaN of the last rank that has one. A tree sum adds neighbours first (comm/process_group.h); its
// number of sources must be a power of two.
#pragma once

#include <span>

#include "comm/process_group.h"

namespace trivet::comm {

// Whether sum and max are defined on this dtype.
bool can_reduce(DType dtype);
// Targets may be sources (the same addresses); otherwise they must not overlap. `from` must not be empty.
void reduce(DType dtype, ReduceOp op, std::span<const void* const> from, std::span<void* const> to, int64_t count);

}  // namespace trivet::comm
