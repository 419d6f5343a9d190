#include "zero/parameter_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/world.h"
#include "core/fixed_point.h"
#include "tests/zero/own_group.h"

namespace trivet::zero {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// A group on one rank, without shards.
struct Group {
  std::vector<ParameterSpec> specs;
  ShardLayout layout = make_shard_layout({{"net", specs}}, {.shards = ShardCounts(1)});
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  std::unique_ptr<Stream> stream = make_inline_stream();
  std::unique_ptr<comm::ProcessGroup> single = comm::make_single_group("single");
  MemoryMeter meter;
  int64_t refused = 0;
  Arena buffers{"buffers", host_allocator(), meter, MemoryCategory::Buffers, 1 << 16};
  ParameterGroup group;

  Group(std::vector<ParameterSpec> parameters, const GroupOptions& options)
      : specs(std::move(parameters)),
        group(layout.blocks[0].groups[0], options,
              {.kernels = *kernels,
               .allocator = host_allocator(),
               .meter = meter,
               .buffers = buffers,
               .axes = {{*single, *stream, *single, *stream}},
               .collectives = {},
               .refused = {&refused, DType::Int64, {1}}}) {}
};

// Its gradients are summed as integers.
struct IntegerGroup : Group {
  explicit IntegerGroup(int contributions)
      : Group({{.name = "weight", .shape = {3, 5}}},
              {.fixed_point = true, .fixed_point_terms = 4, .contributions = contributions}) {
    group.begin_step();
  }
  void contribute(float value) {
    const TensorView gradient = group.gradient(0).view;
    for (int e = 0; e < 15; ++e) gradient.as<float>()[e] = value * static_cast<float>(e);
    group.end_contribution(0.5);
  }
  double element(int64_t e) {
    group.reduce();
    group.retire();
    const ConstTensorView stored = group.owned().gradient;
    return stored.dtype == DType::Int64 ? static_cast<double>(stored.as<int64_t>()[e]) * 0x1p-44
                                        : static_cast<double>(stored.as<float>()[e]);
  }
};

TEST(ParameterGroup, AGradientOfOneContributionIsFloat32OfTheSameValue) {
  IntegerGroup one(1), any(0);
  one.contribute(3.0f);
  any.contribute(3.0f);
  EXPECT_EQ(one.element(7), 10.5);
  EXPECT_EQ(any.element(7), 10.5);
  EXPECT_EQ(one.group.owned().gradient.dtype, DType::Float32);
  EXPECT_EQ(any.group.owned().gradient.dtype, DType::Int64);
  EXPECT_LT(one.meter.now().total(), any.meter.now().total());
  EXPECT_EQ(one.refused + any.refused, 0);
}

TEST(ParameterGroup, CountsContributionsThatDoNotFitOnTheGrid) {
  for (const int contributions : {0, 1}) {
    IntegerGroup group(contributions);
    group.contribute(1e30f);
    EXPECT_EQ(group.refused, 14);  // element 0 is 0
  }
}

TEST(ParameterGroup, TheLimitOfTheGridLeavesRoomForAllTerms) {
  IntegerGroup group(0);
  group.contribute(0x1p18f);  // element 1 is 2^17, more than 2^18 / 4 terms
  EXPECT_EQ(group.refused, 14);
  IntegerGroup small(0);
  small.contribute(0x1p12f);
  EXPECT_EQ(small.refused, 0);
}

TEST(ParameterGroup, AnyNumberOfContributionsIsSummed) {
  IntegerGroup any(0);
  for (const float value : {1.0f, 2.0f, 4.0f}) any.contribute(value);
  EXPECT_EQ(any.element(14), 49.0);
}

TEST(ParameterGroup, MoreContributionsThanWereSaidAreRefused) {
  IntegerGroup one(1);
  one.contribute(1.0f);
  EXPECT_THAT([&] { one.contribute(1.0f); },
              ThrowsMessage<std::logic_error>(HasSubstr("net.weight gets a second contribution")));
}

// One of several ranks, which are threads. Gathers and reductions have streams of their own, as with `overlap_comm`.
struct RankOfGroup {
  RankOfGroup(comm::ProcessGroup& shards, const GroupOptions& options, const LayoutOptions& layout_options,
              comm::ProcessGroup* replicas = nullptr, comm::ProcessGroup* secondary = nullptr)
      : layout(make_shard_layout({{"net", specs}}, layout_options)),
        group(layout.blocks[0].groups[0], options,
              {.kernels = *kernels,
               .allocator = host_allocator(),
               .meter = meter,
               .buffers = buffers,
               .axes = {{shards, *gather_stream, shards, *reduce_stream, replicas, secondary}},
               .collectives = {},
               .refused = {&refused, DType::Int64, {1}}}) {}
  void contribute(float value) {
    const Gradient gradient = group.gradient(0);
    for (int64_t e = 0; e < gradient.view.elements(); ++e) {
      float& element = gradient.view.as<float>()[e];
      element = (gradient.accumulate ? element : 0.0f) + value;
    }
    group.end_contribution(1);
    group.reduce();
  }
  std::vector<float> weight() {
    const ConstTensorView view = group.weight(0);
    return {view.as<float>(), view.as<float>() + view.elements()};
  }

  std::vector<ParameterSpec> specs{{.name = "weight", .shape = {20, 30}, .split = {1, {30}, {}}}};
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  std::unique_ptr<Stream> gather_stream = make_thread_stream("gather"), reduce_stream = make_thread_stream("reduce");
  MemoryMeter meter;
  int64_t refused = 0;
  Arena buffers{"buffers", host_allocator(), meter, MemoryCategory::Buffers, 1 << 16};
  ShardLayout layout;
  ParameterGroup group;
};

void come_late(const comm::World& world) {
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

// Rank 1 begins late, so that weights that nobody waits for have not arrived.
std::vector<float> initial_weights(int ranks, int stage, const LayoutOptions& part = {}) {
  std::vector<float> weights;
  comm::run_threads(ranks, [&](comm::World& world) {
    LayoutOptions options = part;
    options.shards = ShardCounts(ranks);
    RankOfGroup rank(world.group(), {.lifetimes = ranks > 1 ? lifetimes_of(stage, false) : Lifetimes{}}, options);
    rank.group.initialize(11);
    come_late(world);
    rank.group.publish();
    rank.group.unshard();
    rank.group.wait();
    if (world.rank() == 0) weights = rank.weight();
    world.group().barrier(*rank.gather_stream);
    rank.gather_stream->synchronize();
    rank.group.reshard();
  });
  return weights;
}

TEST(ParameterGroup, InitialWeightsAreTheSameOnAnyNumberOfRanksAtAnyStage) {
  const std::vector<float> whole = initial_weights(1, 0);
  ASSERT_EQ(whole.size(), 600u);
  EXPECT_NE(whole[0], whole[300]);
  for (const int ranks : {2, 3})
    for (const int stage : {0, 1, 2, 3}) EXPECT_EQ(initial_weights(ranks, stage), whole) << ranks << " ranks, stage " << stage;
}

TEST(ParameterGroup, InitialWeightsOfARangeOfColumnsAreThoseOfTheWhole) {
  const std::vector<float> whole = initial_weights(1, 0);
  for (const int tensor_rank : {0, 1}) {
    const std::vector<float> part = initial_weights(1, 0, {.tensor_rank = tensor_rank, .tensor_size = 2});
    ASSERT_EQ(part.size(), 300u);
    for (size_t row = 0; row < 20; ++row)
      for (size_t col = 0; col < 15; ++col) ASSERT_EQ(part[row * 15 + col], whole[row * 30 + tensor_rank * 15 + col]);
  }
}

TEST(ParameterGroup, EachStepSumsItsOwnContributionsOfAllRanks) {
  for (const int stage : {0, 1, 2, 3})
    comm::run_threads(2, [&](comm::World& world) {
      RankOfGroup rank(world.group(), {.lifetimes = lifetimes_of(stage, false)}, {.shards = ShardCounts(2)});
      for (int step = 0; step < 2; ++step) {
        rank.group.begin_step();
        come_late(world);
        rank.contribute(world.rank() == 0 ? 1.0f : 3.0f);
        if (stage >= 2) rank.contribute(world.rank() == 0 ? 10.0f : 30.0f);
        rank.group.retire();
        const ConstTensorView gradient = rank.group.owned().gradient;
        const int64_t here =
            intersection(rank.layout.blocks[0].groups[0].parameters[0], rank.group.owned().first, rank.group.owned().count)
                .count;
        for (int64_t e = 0; e < here; ++e) ASSERT_EQ(gradient.as<float>()[e], stage >= 2 ? 44.0f : 4.0f);
      }
    });
}

// Four ranks hold the same elements, but only two divide them: {0 1} and {2 3}. Each shard is on two ranks.
TEST(ParameterGroup, ReplicasOfAShardSumTheirGradientsToo) {
  for (const int stage : {0, 1, 2, 3})
    comm::run_threads(4, [&](comm::World& world) {
      const auto shards = own_group(world, {{0, 1}, {2, 3}}), replicas = own_group(world, {{0, 2}, {1, 3}});
      RankOfGroup rank(*shards, {.lifetimes = lifetimes_of(stage, false)}, {.shards = ShardCounts(2)}, replicas.get());
      EXPECT_EQ(rank.group.axis().contributors(), 4);
      EXPECT_EQ(rank.group.axis().is_counted(), world.rank() < 2);
      rank.group.begin_step();
      rank.contribute(static_cast<float>(1 << world.rank()));
      rank.group.retire();
      const OwnedRange owned = rank.group.owned();
      const int64_t here = intersection(rank.layout.blocks[0].groups[0].parameters[0], owned.first, owned.count).count;
      EXPECT_GT(here, 0);
      for (int64_t e = 0; e < here; ++e) ASSERT_EQ(owned.gradient.as<float>()[e], 15.0f) << stage;
    });
}

// Four ranks, shards {0 1} {2 3}, two contributions of each rank. If gradients are sharded, each is reduced, but only the last
// reduction sums over the replicas. `reductions` 0 says that any number may come, so that each does.
TEST(ParameterGroup, ReplicasOfAShardAreSummedOnceAStepIfTheNumberOfReductionsIsKnown) {
  for (const bool integers : {false, true})
    for (const int reductions : {0, 2})
      comm::run_threads(4, [&](comm::World& world) {
        const auto shards = own_group(world, {{0, 1}, {2, 3}}), replicas = own_group(world, {{0, 2}, {1, 3}});
        RankOfGroup rank(*shards,
                         {.lifetimes = lifetimes_of(2, false),
                          .fixed_point = integers,
                          .fixed_point_terms = 8,
                          .contributions = 2,
                          .reductions = reductions},
                         {.shards = ShardCounts(2)}, replicas.get());
        for (int step = 0; step < 2; ++step) {
          rank.group.begin_step();
          rank.contribute(static_cast<float>(1 << world.rank()));
          rank.group.retire();
          EXPECT_EQ(replicas->traffic().operations, (reductions == 0 ? 2 : 1) * step + (reductions == 0 ? 1 : 0));
          rank.contribute(static_cast<float>(16 << world.rank()));
          rank.group.retire();
          EXPECT_EQ(replicas->traffic().operations, (reductions == 0 ? 2 : 1) * (step + 1));
          const ConstTensorView gradient = rank.group.owned().gradient;
          for (int64_t e = 0; e < 64; ++e)
            ASSERT_EQ(integers ? fixed_point::to_double(gradient.as<int64_t>()[e]) : gradient.as<float>()[e], 255.0);
        }
      });
}

// Four ranks divide the weights, and pairs of them keep the second copy. Only the first gather of a step is over all four.
TEST(ParameterGroup, GathersFromTheSecondCopyUntilTheStepEnds) {
  const std::vector<float> initial = initial_weights(1, 0);
  comm::run_threads(4, [&](comm::World& world) {
    const auto pair = own_group(world, {{0, 1}, {2, 3}});
    RankOfGroup rank(world.group(), {.lifetimes = lifetimes_of(3, false)}, {.shards = ShardCounts(4)}, nullptr, pair.get());
    rank.group.initialize(11);
    const auto gathers = [&] { return std::pair{world.group().traffic().operations, pair->traffic().operations}; };
    const auto [first_all, first_pair] = gathers();
    const auto gathered = [&] {
      come_late(world);
      rank.group.unshard();
      rank.group.wait();
      const std::vector<float> weight = rank.weight();
      rank.group.reshard();
      return weight;
    };
    for (int step = 0; step < 2; ++step) {
      rank.group.begin_step();
      for (int gather = 0; gather < 3; ++gather) {
        ASSERT_EQ(gathered(), initial);
        EXPECT_EQ(gathers(), std::pair(first_all + step + 1, first_pair + 2 * step + gather));
      }
    }
    // An update changes the shards, and with publish() the copy is no longer used.
    const OwnedRange owned = rank.group.owned();
    for (int64_t e = 0; e < owned.count; ++e) owned.master.as<float>()[e] = -1.0f;
    rank.group.publish();
    ASSERT_EQ(gathered(), std::vector<float>(600, -1.0f));
    // Every rank has a quarter of the weights and half of the copy.
    EXPECT_EQ(rank.meter.now()[MemoryCategory::Parameters],
              rank.layout.blocks[0].groups[0].whole_elements * 4 / 4 + rank.layout.blocks[0].groups[0].whole_elements * 4 / 2);
    world.group().barrier(*rank.gather_stream);
    rank.gather_stream->synchronize();
  });
}

// A group in run mode with two parameters, of which a step may write only one (it is another layer's turn, or a path is
// frozen).
struct TwoParameters : Group {
  TwoParameters() : Group({{.name = "first", .shape = {3, 5}}, {.name = "second", .shape = {7}}}, {}) {}

  // Does what a layer does: overwrites the gradient or adds to it, as it is told.
  void write(int index, float value) {
    const Gradient gradient = group.gradient(index);
    float* elements = gradient.view.as<float>();
    for (int64_t e = 0; e < gradient.view.elements(); ++e) elements[e] = value + (gradient.accumulate ? elements[e] : 0.0f);
  }
  // The sum of all elements of the group, padding included.
  float sum(ConstTensorView gradients) {
    float result = 0;
    for (int64_t e = 0; e < gradients.elements(); ++e) result += gradients.as<float>()[e];
    return result;
  }
};

TEST(ParameterGroup, AGradientThatAStepDoesNotWriteIsZeroAndNotThatOfTheStepBefore) {
  for (const int written : {0, 1}) {
    TwoParameters it;
    it.group.begin_step();
    it.write(0, 1.0f);
    it.write(0, 1.0f);
    it.write(1, 10.0f);
    it.group.reduce();
    it.group.retire();
    EXPECT_EQ(it.sum(it.group.owned().gradient), 15 * 2.0f + 7 * 10.0f);
    it.group.begin_step();
    it.write(written, 1.0f);
    it.group.reduce();
    it.group.retire();
    EXPECT_EQ(it.sum(it.group.owned().gradient), written == 0 ? 15.0f : 7.0f);
  }
}

TEST(ParameterGroup, WhatATieSendsIsZeroWhereNothingWasWritten) {
  TwoParameters it;
  it.group.begin_step();
  it.write(0, 1.0f);
  it.write(1, 1.0f);
  it.group.begin_step();
  it.write(1, 1.0f);
  EXPECT_EQ(it.sum(it.group.tied_gradients()), 7.0f);
}

}  // namespace
}  // namespace trivet::zero
