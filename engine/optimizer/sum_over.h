// Sums over ranks that the caller waits for.
#pragma once

#include "comm/process_group.h"
#include "core/stream.h"

namespace trivet {

// Afterwards `values` holds the sum over the ranks of the group.
inline void sum_over(comm::ProcessGroup& group, TensorView values, Stream& stream) {
  if (group.size() == 1) return;
  group.all_reduce(values, comm::ReduceOp::Sum, stream);
  stream.synchronize();
}

}  // namespace trivet
