// Tests reductions and gathers of whole groups in pieces that fit into a bucket. Values are checked by formula, and operations
// are counted.
#include "zero/collectives.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/world.h"
#include "kernels/sums.h"

namespace trivet::zero {
namespace {

constexpr int64_t kBlock = kernels::kSumBlock;

// The value of element e on rank r: small integers, so that sums are exact.
float value(int rank, int64_t e) { return static_cast<float>((rank + 1) * (e % 97 + 1)); }
float sum_of(int ranks, int64_t e) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value(rank, e);
  return sum;
}

struct OnRank {
  comm::World& world;
  std::unique_ptr<Stream> stream = make_thread_stream("transfers");
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  MemoryMeter meter;
  Arena buffers{"buffers", host_allocator(), meter, MemoryCategory::Buffers, 1 << 20};
  std::vector<float> whole;

  OnRank(comm::World& of, int64_t elements) : world(of), whole(elements) {
    for (int64_t e = 0; e < elements; ++e) whole[e] = value(world.rank(), e);
  }
  TensorView view() { return {whole.data(), DType::Float32, {static_cast<int64_t>(whole.size())}}; }
  int64_t operations() const { return world.group().traffic().operations; }
};

class CollectivePieces : public testing::TestWithParam<int> {};

TEST_P(CollectivePieces, ReduceScatterSumsTheRanksOwnShardInAsManyPiecesAsTheBucketSays) {
  const int ranks = GetParam();
  const int64_t shard = 5 * kBlock;
  for (const auto& [bucket, pieces] : {std::pair<int64_t, int64_t>{1, 5},  // a piece is never smaller than a block
                                       {kBlock * ranks, 5},
                                       {2 * kBlock * ranks, 3},
                                       {2 * kBlock * ranks + ranks, 3},
                                       {5 * kBlock * ranks - 1, 2},
                                       {5 * kBlock * ranks, 1},
                                       {1'000'000'000, 1}})
    comm::run_threads(ranks, [&, bucket = bucket, pieces = pieces](comm::World& world) {
      OnRank rank(world, shard * ranks);
      reduce_to_shard(rank.view(), world.group(), *rank.stream, *rank.kernels, rank.buffers,
                      {.reduce_bucket_elements = bucket});
      rank.stream->synchronize();
      EXPECT_EQ(rank.operations(), pieces) << bucket;
      for (int64_t e = world.rank() * shard; e < (world.rank() + 1) * shard; ++e)
        ASSERT_EQ(rank.whole[e], sum_of(ranks, e)) << "bucket " << bucket << ", element " << e;
      EXPECT_EQ(rank.buffers.used_bytes(), 0);
    });
}

TEST_P(CollectivePieces, WithoutReduceScatterEverythingIsSummedInBuckets) {
  const int ranks = GetParam();
  const int64_t elements = 3 * kBlock * ranks;
  for (const auto& [bucket, pieces] : {std::pair<int64_t, int64_t>{elements, 1}, {elements - 1, 2}, {elements / 3, 3}})
    comm::run_threads(ranks, [&, bucket = bucket, pieces = pieces](comm::World& world) {
      OnRank rank(world, elements);
      reduce_to_shard(rank.view(), world.group(), *rank.stream, *rank.kernels, rank.buffers,
                      {.reduce_bucket_elements = bucket, .reduce_scatter = false});
      rank.stream->synchronize();
      EXPECT_EQ(rank.operations(), pieces) << bucket;
      for (int64_t e = 0; e < elements; ++e) ASSERT_EQ(rank.whole[e], sum_of(ranks, e)) << e;
    });
}

TEST_P(CollectivePieces, GatherBringsEveryRanksShardToItsPlace) {
  const int ranks = GetParam();
  const int64_t shard = 5 * kBlock;
  for (const bool partitions : {true, false})
    for (const auto& [bucket, pieces] :
         {std::pair<int64_t, int64_t>{1, 5}, {2 * kBlock * ranks, 3}, {5 * kBlock * ranks - 1, 2}, {5 * kBlock * ranks, 1}})
      comm::run_threads(ranks, [&, partitions = partitions, bucket = bucket, pieces = pieces](comm::World& world) {
        OnRank rank(world, shard * ranks);
        std::vector<float> own(shard);
        for (int64_t e = 0; e < shard; ++e) own[e] = value(world.rank(), world.rank() * shard + e) + 0.5f;
        gather_whole({own.data(), DType::Float32, {shard}}, rank.view(), world.group(), *rank.stream, *rank.kernels,
                     rank.buffers, {.gather_bucket_elements = bucket, .allgather_partitions = partitions});
        rank.stream->synchronize();
        EXPECT_EQ(rank.operations(), partitions ? pieces : ranks);
        for (int64_t e = 0; e < shard * ranks; ++e)
          ASSERT_EQ(rank.whole[e], value(static_cast<int>(e / shard), e) + 0.5f) << bucket << " " << e;
      });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivePieces, testing::Values(2, 3));

}  // namespace
}  // namespace trivet::zero
