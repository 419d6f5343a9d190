#include "zero/collectives.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "kernels/quantization.h"

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

namespace {

constexpr int kWeightBits = 8, kGradientBits = 4;

// The quantized collectives work on pieces of the shards, too. Only with a single piece does the caller not wait for the
// stream.
template <typename Body>
void for_each_piece(int64_t shard, int64_t piece, Stream& stream, InFlight& in_flight, const Body& body) {
  for (int64_t first = 0; first < shard; first += piece) {
    body(first, std::min(piece, shard - first));
    if (piece == shard) return;
    stream.synchronize();
    in_flight.clear();
  }
}

TensorView scratch(DType dtype, int64_t elements, Arena& buffers, InFlight& in_flight) {
  return in_flight.emplace_back(buffers, dtype, Shape{elements}).view();
}

// sums[i] = the sum over the ranks of a group of what each sent of part i. `received` has `parts` packed parts from each rank.
void sum_received(TensorView received, TensorView sums, int ranks, int parts, kernels::Kernels& kernels) {
  const int64_t count = sums.elements() / parts, bytes = kernels::quantized_bytes(count, kGradientBits);
  for (int rank = 0; rank < ranks; ++rank)
    for (int part = 0; part < parts; ++part)
      kernels.dequantize(received.slice((rank * parts + part) * bytes, bytes), sums.slice(part * count, count), kGradientBits,
                         rank > 0);
}

}  // namespace

void gather_quantized(ConstTensorView shard, TensorView whole, comm::ProcessGroup& group, Stream& stream,
                      kernels::Kernels& kernels, Arena& buffers, const CollectiveOptions& options, InFlight& in_flight) {
  const int ranks = group.size();
  const int64_t count = shard.elements(), piece = piece_elements(options.gather_bucket_elements, count, ranks);
  for_each_piece(count, piece, stream, in_flight, [&](int64_t first, int64_t part) {
    const int64_t bytes = kernels::quantized_bytes(part, kWeightBits);
    const TensorView packed = scratch(DType::UInt8, bytes * ranks, buffers, in_flight);
    const TensorView own = packed.slice(group.rank() * bytes, bytes);
    stream.enqueue([=, &kernels] { kernels.quantize(shard.slice(first, part), own, kWeightBits); });
    CollectiveOptions in_one = options;
    in_one.gather_bucket_elements = std::numeric_limits<int64_t>::max();
    gather_whole(own, packed, group, stream, kernels, buffers, in_one);
    stream.enqueue([=, &kernels] {
      for (int rank = 0; rank < ranks; ++rank)
        kernels.dequantize(packed.slice(rank * bytes, bytes), whole.slice(rank * count + first, part), kWeightBits, false);
    });
  });
}

void reduce_quantized(TensorView whole, const QuantizedReduction& ranks, Stream& stream, kernels::Kernels& kernels,
                      Arena& buffers, const CollectiveOptions& options, InFlight& in_flight) {
  comm::ProcessGroup& near = ranks.near ? *ranks.near : ranks.group;
  const int all = ranks.group.size(), run = near.size(), runs = all / run;
  const int64_t shard = whole.elements() / all, piece = piece_elements(options.reduce_bucket_elements, shard, all);
  const TensorView own = whole.slice(ranks.group.rank() * shard, shard);
  for_each_piece(shard, piece, stream, in_flight, [&](int64_t first, int64_t part) {
    const int64_t bytes = kernels::quantized_bytes(part, kGradientBits);
    const TensorView packed = scratch(DType::UInt8, bytes * all, buffers, in_flight);
    const TensorView received = scratch(DType::UInt8, bytes * all, buffers, in_flight);
    // The rank at place p of this run sums what the ranks at place p of all runs own.
    stream.enqueue([=, &kernels] {
      for (int place = 0; place < run; ++place)
        for (int of = 0; of < runs; ++of)
          kernels.quantize(whole.slice((of * run + place) * shard + first, part),
                           packed.slice((place * runs + of) * bytes, bytes), kGradientBits);
    });
    near.all_to_all(packed, received, stream);
    if (runs == 1) return stream.enqueue([=, &kernels] { sum_received(received, own.slice(first, part), run, 1, kernels); });
    const TensorView sums = scratch(whole.dtype, part * runs, buffers, in_flight);
    const TensorView to = packed.slice(0, bytes * runs), from = received.slice(0, bytes * runs);
    stream.enqueue([=, &kernels] {
      sum_received(received, sums, run, runs, kernels);
      kernels.quantize(sums, to, kGradientBits);
    });
    ranks.far->all_to_all(to, from, stream);
    stream.enqueue([=, &kernels] { sum_received(from, own.slice(first, part), runs, 1, kernels); });
  });
}

}  // namespace trivet::zero
