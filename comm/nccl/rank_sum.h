// Sums and maxima over ranks on the device, with the bits of comm/reduce.h: in rank order (or in a tree), in float32 (float64),
// rounded once.
#pragma once

#include <cuda_runtime.h>

#include "comm/process_group.h"

namespace trivet::comm {

// out[i] = piece of rank 0 [i] + piece of rank 1 [i] + ...; float types only. `received` has the pieces of the other ranks in
// rank order, `stride` elements apart; the piece of `rank` itself is `own`. `out` may be `own`.
struct RankSum {
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  const void* received = nullptr;
  int64_t stride = 0;
  const void* own = nullptr;
  void* out = nullptr;
  int64_t count = 0;
  int rank = 0, ranks = 1;
};

// Launches at most `blocks` thread blocks.
void rank_sum(const RankSum& sum, int blocks, cudaStream_t stream);

}  // namespace trivet::comm
