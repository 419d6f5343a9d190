// The two collectives that ZeRO needs over a flat group, in pieces of a bounded size.
//
// The bounds are the most elements of the whole tensor that one operation covers (reduce_bucket_size, allgather_bucket_size). A
// larger group goes through a staging tensor from `buffers`, piece by piece; the bits are the same, since each element is
// summed by itself.
#pragma once

#include <vector>

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
  bool quantized_gradients = false;  // for parameter groups: reduce_quantized instead of reduce_to_shard
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

// Memory that operations on a stream use until they are done. The caller keeps it until it has waited for the stream.
using InFlight = std::vector<ScopedTensor>;

// As gather_whole, but each rank sends its shard in blocks of 8-bit codes (kernels/quantization.h), and all of `whole`, its own
// shard too, becomes the values of these codes (qwZ; Wang et al. 2023). `shard` must have whole blocks.
void gather_quantized(ConstTensorView shard, TensorView whole, comm::ProcessGroup& group, Stream& stream,
                      kernels::Kernels& kernels, Arena& buffers, const CollectiveOptions& options, InFlight& in_flight);

// As reduce_to_shard, but what ranks send each other are blocks of 4-bit codes, and sums are taken in the type of `whole` (qgZ;
// Wang et al. 2023). With `near`, a run of consecutive ranks of `group`, and `far`, the ranks at the same place of all runs,
// there are two hops: sums within each run, quantized again, between the runs. Then what leaves a run is what one rank would
// send. Null: all ranks exchange everything directly.
struct QuantizedReduction {
  comm::ProcessGroup& group;
  comm::ProcessGroup *near = nullptr, *far = nullptr;
};
void reduce_quantized(TensorView whole, const QuantizedReduction& ranks, Stream& stream, kernels::Kernels& kernels,
                      Arena& buffers, const CollectiveOptions& options, InFlight& in_flight);

}  // namespace trivet::zero
