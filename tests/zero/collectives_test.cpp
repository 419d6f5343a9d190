// Tests sums and gathers of a data group, in one piece and cut into buckets. Ranks are threads.
#include "zero/collectives.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/world.h"
#include "kernels/sums.h"

namespace trivet::zero {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kShard = 5 * kernels::kSumBlock, kWhole = kRanks * kShard;
constexpr int64_t kTwoBlocks = kRanks * 2 * kernels::kSumBlock;  // two blocks of each shard; the last piece has one

struct Rank {
  explicit Rank(comm::World& world) : group(world.group()) {}
  TensorView view() { return {data.data(), DType::Float32, {kWhole}}; }
  TensorView own() { return view().slice(group.rank() * kShard, kShard); }
  bool holds_sum(int64_t e) const { return data[e] == static_cast<float>(6 * e); }  // 1 + 2 + 3

  comm::ProcessGroup& group;
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  std::unique_ptr<Stream> stream = make_thread_stream("test");
  MemoryMeter meter;
  Arena buffers{"buffers", host_allocator(), meter, MemoryCategory::Buffers, 4 * kWhole};
  std::vector<float> data = std::vector<float>(kWhole, -1.0f);
};

// Rank r contributes (r + 1) e to element e.
void contribute(Rank& rank) {
  for (int64_t e = 0; e < kWhole; ++e) rank.data[e] = static_cast<float>((rank.group.rank() + 1) * e);
}

void check_sums(Rank& rank, int64_t first, int64_t count) {
  int64_t wrong = 0;
  for (int64_t e = first; e < first + count; ++e) wrong += rank.holds_sum(e) ? 0 : 1;
  EXPECT_EQ(wrong, 0);
}

// Checks a reduction, and returns the bytes of the largest staging tensor.
int64_t reduce_to_shard_with(const CollectiveOptions& options) {
  int64_t staged = 0;
  comm::run_threads(kRanks, [&](comm::World& world) {
    Rank rank(world);
    contribute(rank);
    reduce_to_shard(rank.view(), rank.group, *rank.stream, *rank.kernels, rank.buffers, options);
    rank.stream->synchronize();
    check_sums(rank, rank.group.rank() * kShard, kShard);
    if (world.rank() == 0) staged = rank.buffers.peak_bytes();
  });
  return staged;
}

TEST(Collectives, AReductionToShardsMaySplitThemAndStagesNoMoreThanABucket) {
  EXPECT_EQ(reduce_to_shard_with({}), 0);
  EXPECT_EQ(reduce_to_shard_with({.reduce_bucket_elements = kWhole}), 0);
  EXPECT_EQ(reduce_to_shard_with({.reduce_bucket_elements = kTwoBlocks}), 4 * kTwoBlocks);
  EXPECT_EQ(reduce_to_shard_with({.reduce_bucket_elements = kTwoBlocks + kernels::kSumBlock}), 4 * kTwoBlocks);
  EXPECT_EQ(reduce_to_shard_with({.reduce_bucket_elements = 1}), 4 * kRanks * kernels::kSumBlock) << "the smallest piece";
  EXPECT_EQ(reduce_to_shard_with({.reduce_bucket_elements = kTwoBlocks, .reduce_scatter = false}), 0);
}

TEST(Collectives, AWholeReductionIsTheSumOfEveryElementWhateverTheBucket) {
  for (const int64_t bucket : {int64_t{500}, kWhole - 1, kWhole, kWhole + 1})
    comm::run_threads(kRanks, [&](comm::World& world) {
      Rank rank(world);
      contribute(rank);
      reduce_whole(rank.view(), rank.group, *rank.stream, {.reduce_bucket_elements = bucket});
      rank.stream->synchronize();
      check_sums(rank, 0, kWhole);
    });
}

void check_gathered(Rank& rank) {
  int64_t wrong = 0;
  for (int64_t e = 0; e < kWhole; ++e) wrong += rank.data[e] == static_cast<float>(e) ? 0 : 1;
  EXPECT_EQ(wrong, 0);
}

TEST(Collectives, AGatherMayTakePiecesOrBroadcastsAndAShardFromElsewhere) {
  for (const CollectiveOptions& options :
       {CollectiveOptions{}, CollectiveOptions{.gather_bucket_elements = kTwoBlocks},
        CollectiveOptions{.gather_bucket_elements = 1}, CollectiveOptions{.allgather_partitions = false}})
    for (const bool elsewhere : {false, true})
      comm::run_threads(kRanks, [&](comm::World& world) {
        Rank rank(world);
        std::vector<float> other(kShard);
        const TensorView shard = elsewhere ? TensorView{other.data(), DType::Float32, {kShard}} : rank.own();
        for (int64_t e = 0; e < kShard; ++e) shard.as<float>()[e] = static_cast<float>(rank.group.rank() * kShard + e);
        gather_whole(shard, rank.view(), rank.group, *rank.stream, *rank.kernels, rank.buffers, options);
        rank.stream->synchronize();
        check_gathered(rank);
      });
}

// Rank 1 comes late, so that the streams of the others have not begun to use the staging tensor when the call could return.
TEST(Collectives, StagingMemoryIsNotGivenBackWhileTheStreamUsesIt) {
  comm::run_threads(kRanks, [](comm::World& world) {
    Rank rank(world);
    const TensorView own = rank.own();
    for (int64_t e = 0; e < kShard; ++e) own.as<float>()[e] = static_cast<float>(rank.group.rank() * kShard + e);
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    gather_whole(own, rank.view(), rank.group, *rank.stream, *rank.kernels, rank.buffers,
                 {.gather_bucket_elements = kTwoBlocks});
    const ScopedTensor next(rank.buffers, DType::Float32, {kWhole});
    std::fill_n(next.view().as<float>(), kWhole, 7.0f);
    rank.stream->synchronize();
    for (int64_t e = 0; e < kWhole; ++e) ASSERT_EQ(next.view().as<float>()[e], 7.0f);
    check_gathered(rank);
  });
}

}  // namespace
}  // namespace trivet::zero
