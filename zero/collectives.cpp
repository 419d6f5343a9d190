#include "zero/collectives.h"

#include <algorithm>
#include <memory>

#include "kernels/sums.h"

namespace trivet::zero {
namespace {

// Returns how many elements of each rank's shard one operation may cover; a multiple of kSumBlock.
int64_t piece_elements(int64_t bucket_elements, int64_t shard_elements, int ranks) {
  const int64_t fits = bucket_elements / ranks / kernels::kSumBlock * kernels::kSumBlock;
  return std::min(shard_elements, std::max(fits, kernels::kSumBlock));
}

// The staging tensor must live until the stream has used it, and an arena belongs to one thread, so the caller waits for the
// stream. Only groups larger than a bucket take this path; their operations do not overlap.
template <typename Body>
void with_staging(Arena& buffers, DType dtype, int64_t elements, Stream& stream, Body&& body) {
  ScopedTensor staging(buffers, dtype, {elements});
  body(staging.view());
  stream.synchronize();
}

}  // namespace

void reduce_whole(TensorView whole, comm::ProcessGroup& group, Stream& stream, const CollectiveOptions& options) {
  const int64_t bucket = std::max<int64_t>(options.reduce_bucket_elements, 1);
  for (int64_t first = 0; first < whole.elements(); first += bucket)
    group.all_reduce(whole.slice(first, std::min(bucket, whole.elements() - first)), comm::ReduceOp::Sum, stream);
}

void reduce_to_shard(TensorView whole, comm::ProcessGroup& group, Stream& stream, kernels::Kernels& kernels, Arena& buffers,
                     const CollectiveOptions& options) {
  if (!options.reduce_scatter) return reduce_whole(whole, group, stream, options);
  const int ranks = group.size();
  const int64_t shard = whole.elements() / ranks;
  const int64_t piece = piece_elements(options.reduce_bucket_elements, shard, ranks);
  if (piece == shard) return group.reduce_scatter(whole, whole.slice(group.rank() * shard, shard), comm::ReduceOp::Sum, stream);
  with_staging(buffers, whole.dtype, piece * ranks, stream, [&](TensorView staging) {
    for (int64_t first = 0; first < shard; first += piece) {
      const int64_t count = std::min(piece, shard - first);
      stream.enqueue([=, &kernels] {
        for (int rank = 0; rank < ranks; ++rank)
          kernels.copy(whole.slice(rank * shard + first, count), staging.slice(rank * count, count));
      });
      const TensorView own = staging.slice(group.rank() * count, count);
      group.reduce_scatter(staging.slice(0, count * ranks), own, comm::ReduceOp::Sum, stream);
      stream.enqueue([=, &kernels, rank = group.rank()] { kernels.copy(own, whole.slice(rank * shard + first, count)); });
    }
  });
}

void gather_whole(ConstTensorView shard, TensorView whole, comm::ProcessGroup& group, Stream& stream, kernels::Kernels& kernels,
                  Arena& buffers, const CollectiveOptions& options) {
  const int ranks = group.size();
  const int64_t count = shard.elements();
  const TensorView own = whole.slice(group.rank() * count, count);
  if (!options.allgather_partitions) {
    if (own.data != shard.data) stream.enqueue([=, &kernels] { kernels.copy(shard, own); });
    for (int root = 0; root < ranks; ++root) group.broadcast(whole.slice(root * count, count), root, stream);
    return;
  }
  const int64_t piece = piece_elements(options.gather_bucket_elements, count, ranks);
  if (piece == count) return group.all_gather(shard, whole, stream);
  with_staging(buffers, whole.dtype, piece * ranks, stream, [&](TensorView staging) {
    for (int64_t first = 0; first < count; first += piece) {
      const int64_t part = std::min(piece, count - first);
      group.all_gather(shard.slice(first, part), staging.slice(0, part * ranks), stream);
      stream.enqueue([=, &kernels] {
        for (int rank = 0; rank < ranks; ++rank)
          kernels.copy(staging.slice(rank * part, part), whole.slice(rank * count + first, part));
      });
    }
  });
}

}  // namespace trivet::zero
