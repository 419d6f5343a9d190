// The two collectives that ZeRO needs over a flat group, in pieces of a bounded size.
//
// The bounds are the most elements of the whole tensor that one operation covers (reduce_bucket_size, allgather_bucket_size). A
// larger group goes through a staging tensor from `buffers`, piece by piece; the bits are the same, since each element is
// summed by itself.
#pragma once

#include "comm/process_group.h"
#include "core/arena.h"
#include "core/stream.h"
#include "kernels/interface.h"

namespace trivet::zero {

struct CollectiveOptions {
  int64_t reduce_bucket_elements = 500'000'000;
  int64_t gather_bucket_elements = 500'000'000;
  bool reduce_scatter = true;        // false: all_reduce, then use only the own shard (zero_optimization.reduce_scatter)
  bool allgather_partitions = true;  // false: one broadcast per rank instead of an all_gather
};

// `whole` [n * c] holds this rank's contribution. Afterwards the rank's own shard, c elements from rank * c, holds the sum over
// ranks (in place).
void reduce_to_shard(TensorView whole, comm::ProcessGroup& group, Stream& stream, kernels::Kernels& kernels, Arena& buffers,
                     const CollectiveOptions& options);
// Afterwards all of `whole` holds the sum over ranks.
void reduce_whole(TensorView whole, comm::ProcessGroup& group, Stream& stream, const CollectiveOptions& options);
// Gathers the shards of all ranks into `whole`. `shard` may be the rank's own range of `whole` or separate memory.
void gather_whole(ConstTensorView shard, TensorView whole, comm::ProcessGroup& group, Stream& stream, kernels::Kernels& kernels,
                  Arena& buffers, const CollectiveOptions& options);

}  // namespace trivet::zero
