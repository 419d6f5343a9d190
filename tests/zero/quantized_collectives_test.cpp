// Gathers in 8 bits and sums in 4 bits: every bit against what one rank computes with the kernels in the same order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "comm/world.h"
#include "core/random.h"
#include "kernels/quantization.h"
#include "tests/zero/own_group.h"
#include "zero/collectives.h"

namespace trivet::zero {
namespace {

constexpr int64_t kWholeBlock = kernels::kQuantizedBlock;

using Values = std::vector<float>;

TensorView view_of(Values& values) { return {values.data(), DType::Float32, {static_cast<int64_t>(values.size())}}; }

// What rank `rank` has of the whole tensor.
Values values_of(int rank, int64_t elements) {
  Values values(elements);
  for (int64_t e = 0; e < elements; ++e)
    values[e] = unit_float(philox(static_cast<uint64_t>(rank), static_cast<uint64_t>(e) / 4, 0)[e % 4]) - 0.5f;
  return values;
}

// What arrives of the elements [first, first + count).
Values rounded(Values values, int64_t first, int64_t count, int bits) {
  const auto kernels = kernels::make_cpu_kernels(1);
  std::vector<uint8_t> packed(kernels::quantized_bytes(count, bits));
  const TensorView view{packed.data(), DType::UInt8, {static_cast<int64_t>(packed.size())}};
  Values out(count);
  kernels->quantize(view_of(values).slice(first, count), view, bits);
  kernels->dequantize(view, view_of(out), bits, false);
  return out;
}

void add(const Values& from, Values& to) {
  for (size_t e = 0; e < to.size(); ++e) to[e] += from[e];
}

struct TransfersOfRank {
  std::unique_ptr<Stream> stream = make_thread_stream("transfers");
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  MemoryMeter meter;
  Arena buffers{"buffers", host_allocator(), meter, MemoryCategory::Buffers, 1 << 20};
  InFlight in_flight;

  void finish() {
    stream->synchronize();
    in_flight.clear();
    EXPECT_EQ(buffers.used_bytes(), 0);
  }
};

TEST(GatherQuantized, EveryRankGetsTheSameRoundedValuesAlsoOfItsOwnShard) {
  const int64_t shard = 5 * kWholeBlock;
  for (const int ranks : {1, 2, 3})
    for (const bool partitions : {true, false})
      for (const auto& [bucket, pieces] : {std::pair<int64_t, int64_t>{1, 5}, {2 * kWholeBlock * ranks, 3}, {1'000'000'000, 1}})
        comm::run_threads(ranks, [&, partitions = partitions, bucket = bucket, pieces = pieces](comm::World& world) {
          TransfersOfRank rank;
          Values whole(shard * ranks, -7.0f), own = values_of(world.rank(), shard);
          gather_quantized(view_of(own), view_of(whole), world.group(), *rank.stream, *rank.kernels, rank.buffers,
                           {.gather_bucket_elements = bucket, .allgather_partitions = partitions}, rank.in_flight);
          rank.finish();
          EXPECT_EQ(world.group().traffic().bytes_sent,
                    partitions ? kernels::quantized_bytes(shard, 8) * (ranks - 1) : world.group().traffic().bytes_sent);
          EXPECT_EQ(world.group().traffic().operations, partitions ? pieces : pieces * ranks);
          for (int from = 0; from < ranks; ++from)
            ASSERT_EQ(Values(whole.begin() + from * shard, whole.begin() + (from + 1) * shard),
                      rounded(values_of(from, shard), 0, shard, 8));
        });
}

TEST(ReduceQuantized, SumsWhatEachRankSentInTheOrderOfRanks) {
  const int64_t shard = 5 * kWholeBlock;
  for (const int ranks : {2, 3})
    for (const int64_t bucket : {int64_t{1}, 2 * kWholeBlock * ranks, int64_t{1'000'000'000}})
      comm::run_threads(ranks, [&, bucket = bucket](comm::World& world) {
        TransfersOfRank rank;
        Values whole = values_of(world.rank(), shard * ranks);
        reduce_quantized(view_of(whole), {world.group()}, *rank.stream, *rank.kernels, rank.buffers,
                         {.reduce_bucket_elements = bucket}, rank.in_flight);
        rank.finish();
        EXPECT_EQ(world.group().traffic().bytes_sent, kernels::quantized_bytes(shard, 4) * (ranks - 1));
        const int64_t first = world.rank() * shard;
        Values expected = rounded(values_of(0, shard * ranks), first, shard, 4);
        for (int from = 1; from < ranks; ++from) add(rounded(values_of(from, shard * ranks), first, shard, 4), expected);
        EXPECT_EQ(Values(whole.begin() + first, whole.begin() + first + shard), expected);
      });
}

// Ranks 0 and 1 are a run, 2 and 3, and so on. Rank 1 sums what ranks 1, 3 and 5 own over its run; each of these sums is then
// rounded and sent to its owner.
TEST(ReduceQuantized, SumsInRunsAndThenBetweenThem) {
  const int64_t shard = 3 * kWholeBlock;
  for (const auto& [run, runs] : {std::pair{2, 2}, {2, 3}, {3, 2}})
    for (const int64_t bucket : {kWholeBlock * run * runs, int64_t{1'000'000'000}})
      comm::run_threads(run * runs, [&, run = run, runs = runs, bucket = bucket](comm::World& world) {
        const int ranks = run * runs, place = world.rank() % run;
        std::vector<std::vector<int>> runs_of_ranks(runs), across_runs(run);
        for (int of = 0; of < ranks; ++of) runs_of_ranks[of / run].push_back(of), across_runs[of % run].push_back(of);
        const auto near = own_group(world, runs_of_ranks), far = own_group(world, across_runs);
        TransfersOfRank rank;
        Values whole = values_of(world.rank(), shard * ranks);
        reduce_quantized(view_of(whole), {world.group(), near.get(), far.get()}, *rank.stream, *rank.kernels, rank.buffers,
                         {.reduce_bucket_elements = bucket}, rank.in_flight);
        rank.finish();
        EXPECT_EQ(near->traffic().bytes_sent, kernels::quantized_bytes(shard, 4) * runs * (run - 1));
        EXPECT_EQ(far->traffic().bytes_sent, kernels::quantized_bytes(shard, 4) * (runs - 1));
        const int64_t first = (world.rank() / run * run + place) * shard;
        Values expected;
        for (int of = 0; of < runs; ++of) {
          Values in_run = rounded(values_of(of * run, shard * ranks), first, shard, 4);
          for (int i = 1; i < run; ++i) add(rounded(values_of(of * run + i, shard * ranks), first, shard, 4), in_run);
          in_run = rounded(in_run, 0, shard, 4);
          of == 0 ? void(expected = in_run) : add(in_run, expected);
        }
        EXPECT_EQ(Values(whole.begin() + first, whole.begin() + first + shard), expected)
            << fmt::format("{} runs of {}, rank {}", runs, run, world.rank());
      });
}

}  // namespace
}  // namespace trivet::zero
