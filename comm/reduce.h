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

// Checks whether sum and max are defined on this dtype.
bool can_reduce(DType dtype);
// Targets may be sources (the same addresses); otherwise they must not overlap. `from` must not be empty.
void reduce(DType dtype, ReduceOp op, std::span<const void* const> from, std::span<void* const> to, int64_t count);

// A reduction in parts, each of which continues what another one has left: the same bits as all in one, because only the end
// rounds. Between the parts, elements have the type in which they are added: float32 for the 16-bit types, otherwise the dtype.
DType sum_type(DType dtype);
// to[i] = start[i] + from[0][i] + from[1][i] + ...; `start` is the first term, and may be null. `start` and `to`, which may be
// the same, have sum_type(dtype). A tree sum has no start.
void reduce_part(DType dtype, ReduceOp op, const void* start, std::span<const void* const> from, void* to, int64_t count);
// Rounds elements of sum_type(dtype) to dtype. Targets must not overlap `sum`, unless they are the same and the types are, too.
void round_sum(DType dtype, const void* sum, std::span<void* const> to, int64_t count);

}  // namespace trivet::comm
