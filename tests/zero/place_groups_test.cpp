#include "zero/place_groups.h"

#include <gtest/gtest.h>

#include <string>

namespace trivet::zero {
namespace {

FlatGroup group(int64_t shard_elements, bool trainable = true, bool persistent = false, GroupRole role = GroupRole::Own) {
  FlatGroup group;
  group.shard_elements = shard_elements;
  group.trainable = trainable;
  group.persistent = persistent;
  group.role = role;
  return group;
}

// Returns a letter for each group, first for states and then for weights: F if they are in a file, - if not.
std::string placed(const PlacementOptions& options) {
  ShardLayout layout;
  layout.blocks.resize(3);
  layout.blocks[0].groups = {group(100), group(10, true, true)};
  layout.blocks[1].groups = {group(50, false), group(100, true, false, GroupRole::Replica)};
  layout.blocks[2].groups = {group(100), group(100, true, false, GroupRole::TiedGradients)};
  place_groups(layout, options);
  std::string states, weights;
  for (const BlockLayout& block : layout.blocks)
    for (const FlatGroup& flat : block.groups) {
      states += flat.states == Placement::File ? 'F' : '-';
      weights += flat.weights == Placement::File ? 'F' : '-';
    }
  return states + " " + weights;
}

TEST(PlaceGroups, MovesStatesOfWhatIsUpdatedAndWeightsThatAreSharded) {
  EXPECT_EQ(placed({}), "------ ------");
  EXPECT_EQ(placed({.states = Placement::File}), "FF--F- ------");
  EXPECT_EQ(placed({.weights = Placement::File}), "------ F-FFF-");
}

TEST(PlaceGroups, MovesTheFirstStatesUpToTheRatio) {
  EXPECT_EQ(placed({.states = Placement::File, .states_ratio = 0}), "------ ------");
  EXPECT_EQ(placed({.states = Placement::File, .states_ratio = 0.5}), "F----- ------");  // 110 of 210 would be 0.52
  EXPECT_EQ(placed({.states = Placement::File, .states_ratio = 0.99}), "FF---- ------");
}

TEST(PlaceGroups, KeepsTheFirstWeightsUpToTheLimit) {
  EXPECT_EQ(placed({.weights = Placement::File, .weights_in_memory = 99}), "------ F--FF-");  // the 50 fit
  EXPECT_EQ(placed({.weights = Placement::File, .weights_in_memory = 150}), "------ ---FF-");
  EXPECT_EQ(placed({.weights = Placement::File, .weights_in_memory = 350}), "------ ------");
}

TEST(PlaceGroups, KeepsParametersThatStayFloat32OnTheDevice) {
  ShardLayout layout;
  layout.blocks.resize(1);
  layout.blocks[0].groups = {group(100, false), group(100, false)};
  layout.blocks[0].groups[0].keeps_float32 = true;
  place_groups(layout, {.weights = Placement::File});
  EXPECT_EQ(layout.blocks[0].groups[0].weights, Placement::Device);
  EXPECT_EQ(layout.blocks[0].groups[1].weights, Placement::File);
}

}  // namespace
}  // namespace trivet::zero
