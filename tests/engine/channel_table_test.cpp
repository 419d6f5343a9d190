// The table of channels, written out by hand: which of them run in parallel with the program, and which add floats.
#include "engine/channel_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet {
namespace {

using testing::ElementsAre;

struct Table {
  explicit Table(const Config& config) {
    const Mesh mesh(config.parallel, 4);
    for (const ChannelSpec& channel : channel_table(config, mesh, {{0, 1, 2}, {0, 1}}, {})) {
      if (channel.overlaps) overlapping.push_back(channel.name);
      if (channel.sums_floats) summing.push_back(channel.name);
    }
  }
  std::vector<std::string> overlapping, summing;
};

TEST(ChannelTable, GathersAndReductionsRunInParallelIfOverlapCommIsTrue) {
  Config config;
  config.parallel = {.tensor = 2, .pipeline = 2};
  config.zero.overlap_comm = true;
  EXPECT_THAT(Table(config).overlapping,
              ElementsAre("data.gather", "data.reduce", "tensor", "tensor.reduce", "pipeline.forward", "pipeline.backward"));
  config.zero.overlap_comm = false;
  EXPECT_THAT(Table(config).overlapping, ElementsAre("tensor", "pipeline.forward", "pipeline.backward"));
  config.parallel.tensor = 1;
  EXPECT_THAT(Table(config).overlapping, ElementsAre("pipeline.forward", "pipeline.backward"));
}

// 8 ranks of which 4 divide the parameters, 2 keep the second copy of gathered weights.
TEST(ChannelTable, ShardsMayHaveReplicasAndWeightsASecondCopy) {
  Config config;
  config.reproducible = Reproducible::Run;
  config.zero = {
      .stage = 3, .overlap_comm = true, .mics_shard_size = 4, .zero_hpz_partition_size = 2, .zero_quantized_gradients = true};
  std::vector<std::string> rows;
  for (const ChannelSpec& channel : channel_table(config, Mesh(config.parallel, 8), {{0, 1}, {0}}, {}))
    if (channel.name.starts_with("data"))
      rows.push_back(fmt::format("{} {} {}{} {}{}{}", channel.name, channel.within,
                                 channel.members == Members::Run          ? "run "
                                 : channel.members == Members::AcrossRuns ? "across "
                                                                          : "all ",
                                 channel.run, static_cast<int>(channel.queue), channel.overlaps ? " overlaps" : "",
                                 channel.sums_floats ? " sums" : ""));
  const int meet = static_cast<int>(pipeline::Queue::Meet), gather = static_cast<int>(pipeline::Queue::Gather),
            reduce = static_cast<int>(pipeline::Queue::Reduce);
  EXPECT_THAT(rows, ElementsAre(fmt::format("data 4 all 0 {}", meet), fmt::format("data.gather 4 all 0 {} overlaps", gather),
                                fmt::format("data.reduce 4 all 0 {} overlaps sums", reduce),
                                fmt::format("data.replicas 0 across 4 {} overlaps sums", reduce),
                                fmt::format("data.secondary 4 run 2 {} overlaps", gather),
                                fmt::format("data.near 4 run 2 {} overlaps", reduce),
                                fmt::format("data.far 4 across 2 {} overlaps", reduce)));
}

// 8 ranks, of which 2 are tensor ranks, and 2 x 2 context ranks.
TEST(ChannelTable, RunsOfContextRanksExchangeHeadsAndFormRings) {
  Config config;
  config.parallel = {.tensor = 2, .context = 4, .context_kind = ContextKind::UlyssesRing, .context_ulysses = 2};
  config.reproducible = Reproducible::Run;
  std::vector<std::string> rows;
  for (const ChannelSpec& channel : channel_table(config, Mesh(config.parallel, 8), {{0}, {0}}, {}))
    if (channel.traffic == "context")
      rows.push_back(fmt::format("{} members {} of runs of {}{}{}", channel.name, static_cast<int>(channel.members),
                                 channel.run,
                                 channel.queue == pipeline::queue_of(Axis::Context) && channel.overlaps ? "" : " alone",
                                 channel.axes == AxisSet(Axis::Context) ? "" : " on other axes"));
  EXPECT_THAT(rows, ElementsAre("context members 0 of runs of 0", "context.heads members 1 of runs of 2",
                                "context.ring members 2 of runs of 2"));
}

TEST(ChannelTable, LayoutModeSumsIntegersInsteadOfGradients) {
  Config config;
  config.parallel = {.tensor = 2, .sequence_parallel = true};
  config.reproducible = Reproducible::Run;
  EXPECT_THAT(Table(config).summing, ElementsAre("data.reduce", "tensor", "tensor.reduce"));
  config.parallel.sequence_parallel = false;
  EXPECT_THAT(Table(config).summing, ElementsAre("data.reduce", "tensor"));
  config.reproducible = Reproducible::Layout;
  EXPECT_THAT(Table(config).summing, ElementsAre("tensor"));
  config.parallel = {.context = 2, .context_grain = 4};  // context ranks add their parts of a tree
  EXPECT_THAT(Table(config).summing, ElementsAre("tensor", "context"));
}

}  // namespace
}  // namespace trivet
