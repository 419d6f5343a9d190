// Tests sums and gathers of a data group, in one piece and cut into buckets. Ranks are threads. Values are checked by formula,
// operations and staging memory are counted.
#include "zero/collectives.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "comm/world.h"
#include "kernels/sums.h"

namespace trivet::zero {
namespace {

constexpr int64_t kBlock = kernels::kSumBlock;
constexpr int64_t kShard = 5 * kBlock;

// The value of element e on rank r: small integers, so that sums are exact.
float value(int rank, int64_t e) { return static_cast<float>((rank + 1) * (e % 97 + 1)); }

struct OnRank {
  explicit OnRank(comm::World& world)
      : ranks(world.size()), rank(world.rank()), group(world.group()), data(kShard * world.size()) {
    for (int64_t e = 0; e < whole().elements(); ++e) data[e] = value(rank, e);
  }
  TensorView whole() { return {data.data(), DType::Float32, {static_cast<int64_t>(data.size())}}; }
  TensorView own() { return whole().slice(rank * kShard, kShard); }
  void expect_sums(int64_t first, int64_t count) const {
    for (int64_t e = first; e < first + count; ++e)
      ASSERT_EQ(data[e], value(ranks * (ranks + 1) / 2 - 1, e)) << "element " << e;
  }
  // Every element is the value of the rank whose shard it is in.
  void expect_gathered() const {
    for (int64_t e = 0; e < kShard * ranks; ++e) ASSERT_EQ(data[e], value(static_cast<int>(e / kShard), e)) << "element " << e;
  }

  const int ranks, rank;
  comm::ProcessGroup& group;
  std::unique_ptr<Stream> stream = make_thread_stream("transfers");
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  MemoryMeter meter;
  Arena buffers{"buffers", host_allocator(), meter, MemoryCategory::Buffers, 1 << 20};
  std::vector<float> data;
};

class Collectives : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  // What an operation must do and may use.
  struct Expected {
    int64_t bucket, operations, staged_blocks;  // of each shard
  };
  // Runs `body` on each rank, and counts its operations and the bytes that it stages.
  void run(const Expected& expected, const std::function<void(OnRank&)>& body) const {
    SCOPED_TRACE(fmt::format("{} ranks, buckets of {}", ranks(), expected.bucket));
    comm::run_threads(ranks(), [&](comm::World& world) {
      OnRank rank(world);
      body(rank);
      EXPECT_EQ(rank.group.traffic().operations, expected.operations);
      EXPECT_EQ(rank.buffers.peak_bytes(), 4 * ranks() * expected.staged_blocks * kBlock);
      EXPECT_EQ(rank.buffers.used_bytes(), 0);
    });
  }
  // A shard of five blocks, in pieces of as many blocks as fit into the bucket, and one at least.
  std::vector<Expected> in_pieces() const {
    const int64_t block = kBlock * ranks();
    return {{1, 5, 1},         {block, 5, 1},        {2 * block, 3, 2}, {2 * block + ranks(), 3, 2}, {5 * block - 1, 2, 4},
            {5 * block, 1, 0}, {1'000'000'000, 1, 0}};
  }
};

TEST_P(Collectives, AReductionToShardsMaySplitThemAndStagesNoMoreThanABucket) {
  for (const Expected& expected : in_pieces())
    run(expected, [&](OnRank& rank) {
      reduce_to_shard(rank.whole(), rank.group, *rank.stream, *rank.kernels, rank.buffers,
                      {.reduce_bucket_elements = expected.bucket});
      rank.stream->synchronize();
      rank.expect_sums(rank.rank * kShard, kShard);
    });
}

TEST_P(Collectives, AWholeReductionIsTheSumOfEveryElementWhateverTheBucket) {
  const int64_t elements = kShard * ranks();
  for (const bool to_shard : {true, false})
    for (const Expected& expected :
         {Expected{elements + 1, 1, 0}, {elements, 1, 0}, {elements - 1, 2, 0}, {elements / 3, elements % 3 == 0 ? 3 : 4, 0}})
      run(expected, [&](OnRank& rank) {
        const CollectiveOptions options{.reduce_bucket_elements = expected.bucket, .reduce_scatter = false};
        if (to_shard)
          reduce_to_shard(rank.whole(), rank.group, *rank.stream, *rank.kernels, rank.buffers, options);
        else
          reduce_whole(rank.whole(), rank.group, *rank.stream, options);
        rank.stream->synchronize();
        rank.expect_sums(0, elements);
      });
}

// The shard is in its place in the whole tensor, or elsewhere.
TEST_P(Collectives, AGatherMayTakePiecesOrBroadcastsAndAShardFromElsewhere) {
  for (const bool partitions : {true, false})
    for (const Expected& expected : partitions ? in_pieces() : std::vector<Expected>{{1, ranks(), 0}})
      for (const bool elsewhere : {false, true})
        run(expected, [&](OnRank& rank) {
          const std::vector<float> shard(rank.own().as<float>(), rank.own().as<float>() + kShard);
          std::fill(rank.data.begin(), rank.data.end(), -1.0f);
          std::vector<float> other = shard;
          if (!elsewhere) std::copy(shard.begin(), shard.end(), rank.own().as<float>());
          gather_whole(elsewhere ? TensorView{other.data(), DType::Float32, {kShard}} : rank.own(), rank.whole(), rank.group,
                       *rank.stream, *rank.kernels, rank.buffers,
                       {.gather_bucket_elements = expected.bucket, .allgather_partitions = partitions});
          rank.stream->synchronize();
          rank.expect_gathered();
        });
}

// Rank 1 comes late, so that the streams of the others have not begun to use the staging tensor when the call could return.
TEST(CollectivesInPieces, StagingMemoryIsNotGivenBackWhileTheStreamUsesIt) {
  comm::run_threads(3, [](comm::World& world) {
    OnRank rank(world);
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    gather_whole(rank.own(), rank.whole(), rank.group, *rank.stream, *rank.kernels, rank.buffers,
                 {.gather_bucket_elements = 2 * kBlock * rank.ranks});
    const ScopedTensor next(rank.buffers, DType::Float32, rank.whole().shape);
    std::fill_n(next.view().as<float>(), next.view().elements(), 7.0f);
    rank.stream->synchronize();
    for (int64_t e = 0; e < next.view().elements(); ++e) ASSERT_EQ(next.view().as<float>()[e], 7.0f);
    rank.expect_gathered();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(2, 3));

}  // namespace
}  // namespace trivet::zero
