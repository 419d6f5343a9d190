// Operations on tensors of all ranks that a process group does not have: minima, products and Adasum.
//
// Each rank gets one slice of every tensor from all ranks (all_to_all), combines them, and gives the result to all
// (all_gather): as many bytes as an all_reduce. Slice r of a tensor of c elements has elements [r s, (r + 1) s) with s = ceil(c
// / ranks); what is past the end is zero. So slices, and with them all bits, depend on the tensor and the number of ranks
// alone.
#pragma once

#include <span>

#include "comm/process_group.h"
#include "hvd/types.h"

namespace trivet::hvd {

// data holds tensors one after another, with counts[t] elements each; every rank gets the result in its place. `op` is Min,
// Product or Adasum. In 16-bit types products and Adasum are computed in float32 and rounded once. NaN wins in a minimum.
void reduce_in_slices(comm::ProcessGroup& group, TensorView data, std::span<const int64_t> counts, ReduceOp op, Stream& stream);

}  // namespace trivet::hvd
