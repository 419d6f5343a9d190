// The table of channels, written out by hand: which of them run in parallel with the program, and which add floats.
#include "engine/channel_table.h"

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

TEST(ChannelTable, LayoutModeSumsIntegersInsteadOfGradients) {
  Config config;
  config.parallel = {.tensor = 2, .sequence_parallel = true};
  config.reproducible = Reproducible::Run;
  EXPECT_THAT(Table(config).summing, ElementsAre("data.reduce", "tensor", "tensor.reduce"));
  config.parallel.sequence_parallel = false;
  EXPECT_THAT(Table(config).summing, ElementsAre("data.reduce", "tensor"));
  config.reproducible = Reproducible::Layout;
  EXPECT_THAT(Table(config).summing, ElementsAre("tensor"));
}

}  // namespace
}  // namespace trivet
