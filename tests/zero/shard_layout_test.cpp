#include "zero/shard_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/kernels.h"

namespace trivet::zero {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Fixture {
  std::vector<ParameterSpec> embedding{{.name = "table", .shape = {97, 33}}};
  std::vector<ParameterSpec> block{{.name = "weight", .shape = {40, 40}},
                                   {.name = "gain", .shape = {7}},
                                   {.name = "frozen", .shape = {5}, .trainable = false}};
  std::vector<ParameterSpec> head{{.name = "weight", .shape = {97, 33}, .tied_to = "embedding.table"}};
  std::vector<NamedParameters> layers() const { return {{"embedding", embedding}, {"block", block}, {"head", head}}; }
};

TEST(ShardLayout, EveryElementHasExactlyOneOwnerAndShardsAreAligned) {
  const Fixture model;
  for (int ranks : {1, 2, 3, 4, 7, 64}) {
    const ShardLayout layout = make_shard_layout(model.layers(), {.shards = ShardCounts(ranks)});
    for (const BlockLayout& block : layout.blocks)
      for (const FlatGroup& group : block.groups) {
        EXPECT_EQ(group.whole_elements, group.shard_elements * ranks);
        EXPECT_EQ(group.shard_elements % kernels::kSumBlock, 0);
        for (const FlatParameter& parameter : group.parameters) {
          EXPECT_EQ(parameter.offset % kernels::kSumBlock, 0);
          int64_t next = 0;  // shards cover the parameter in order, without gap or overlap
          for (int rank = 0; rank < ranks; ++rank) {
            const Intersection part = intersection(parameter, rank * group.shard_elements, group.shard_elements);
            if (part.count == 0) continue;
            EXPECT_EQ(part.first_in_parameter, next);
            EXPECT_EQ(part.first_in_range + rank * group.shard_elements, parameter.offset + part.first_in_parameter);
            next += part.count;
          }
          EXPECT_EQ(next, parameter.elements());
        }
      }
  }
}

TEST(ShardLayout, TiedParametersPointToTheirOwner) {
  const Fixture model;
  const ShardLayout layout = make_shard_layout(model.layers(), {.shards = ShardCounts(2)});
  EXPECT_TRUE(layout.blocks[2].groups.empty());
  EXPECT_EQ(layout.blocks[2].weight_blocks, (std::vector<int>{2, 0}));
  EXPECT_EQ(layout.blocks[2].weights[0].block, 0);
}

TEST(ShardLayout, SmallParametersPersistAndFrozenOnesStandApart) {
  const Fixture model;
  const ShardLayout layout =
      make_shard_layout(model.layers(), {.shards = ShardCounts(2), .persistence_threshold = 100, .persistence_limit = 1000});
  ASSERT_EQ(layout.blocks[1].groups.size(), 3u);
  EXPECT_FALSE(layout.blocks[1].groups[0].persistent);
  EXPECT_TRUE(layout.blocks[1].groups[1].persistent);
  EXPECT_FALSE(layout.blocks[1].groups[2].trainable);
}

TEST(ShardLayout, ParametersThatStayFloat32StandApartAndAreNotQuantized) {
  const std::vector<ParameterSpec> two{{.name = "frozen", .shape = {5}, .trainable = false},
                                       {.name = "bias", .shape = {5}, .trainable = false, .keeps_float32 = true}};
  const ShardLayout layout = make_shard_layout({{"block", two}}, {.shards = ShardCounts(2), .quantized_frozen = true});
  ASSERT_EQ(layout.blocks[0].groups.size(), 2U);
  EXPECT_TRUE(layout.blocks[0].groups[0].quantized && !layout.blocks[0].groups[0].keeps_float32);
  EXPECT_TRUE(layout.blocks[0].groups[1].keeps_float32 && !layout.blocks[0].groups[1].quantized);
}

// As in DeepSpeed, a parameter persists if it has fewer elements than the threshold, and the total may reach the limit.
TEST(ShardLayout, PersistsBelowTheThresholdAndUpToTheLimit) {
  const std::vector<ParameterSpec> seven{{.name = "gain", .shape = {7}}};
  const auto persists = [&](int64_t threshold, int64_t limit) {
    const ShardLayout layout = make_shard_layout(
        {{"layer", seven}}, {.shards = ShardCounts(2), .persistence_threshold = threshold, .persistence_limit = limit});
    return layout.blocks.at(0).groups.at(0).persistent;
  };
  EXPECT_FALSE(persists(7, 1000));
  EXPECT_TRUE(persists(8, 1000));
  EXPECT_FALSE(persists(8, 6));
  EXPECT_TRUE(persists(8, 7));
}

// There is one limit for the whole model: the first two layers leave 2 of 10, too few for the third and enough for the last.
// Ranks that share experts are fewer than those that share dense parameters, so the two have groups of different shards.
TEST(ShardLayout, ExpertsHaveGroupsOfTheirOwn) {
  const std::vector<ParameterSpec> specs{{.name = "router", .shape = {300}},
                                         {.name = "expert", .shape = {600}, .sharing = Sharing::Expert, .matrices = 2},
                                         {.name = "norm", .shape = {8}}};
  const ShardLayout layout = make_shard_layout({{"block", specs}}, {.shards = ShardCounts(4, 2), .expert_size = 2});
  ASSERT_EQ(layout.blocks[0].groups.size(), 2u);
  const FlatGroup &dense = layout.blocks[0].groups[0], &experts = layout.blocks[0].groups[1];
  EXPECT_EQ(dense.sharing, Sharing::Dense);
  EXPECT_EQ(dense.parameters.size(), 2u);
  EXPECT_EQ(dense.shards, 4);
  EXPECT_EQ(dense.whole_elements, 4 * dense.shard_elements);
  EXPECT_EQ(experts.sharing, Sharing::Expert);
  EXPECT_EQ(experts.parameters[0].name, "block.expert");
  EXPECT_EQ(experts.shards, 2);
  EXPECT_EQ(experts.shard_elements, kernels::kSumBlock);
  EXPECT_EQ(experts.whole_elements, 2 * kernels::kSumBlock);
  EXPECT_TRUE(layout.is_divided());
  EXPECT_FALSE(make_shard_layout({{"block", specs}}, {}).is_divided());
}

// Four experts of 6 x 4 elements, one below the other; expert ranks have two each, and tensor ranks the halves of these.
TEST(ShardLayout, ExpertRanksHaveExpertsAndTensorRanksPartsOfThem) {
  const std::vector<ParameterSpec> specs{
      {.name = "rows", .shape = {24, 4}, .split = {0, {6, 6, 6, 6}, {}}, .sharing = Sharing::Expert, .matrices = 4},
      {.name = "columns", .shape = {24, 4}, .split = {1, {4}, {}}, .sharing = Sharing::Expert, .matrices = 4},
      {.name = "dense", .shape = {24, 4}, .split = {1, {4}, {}}}};
  const auto boxes_of = [&](int expert, int tensor) {
    const ShardLayout layout = make_shard_layout(
        {{"block", specs}},
        {.shards = ShardCounts(4, 2), .tensor_rank = tensor, .tensor_size = 2, .expert_rank = expert, .expert_size = 2});
    std::vector<std::pair<Shape, Shape>> boxes;
    for (const FlatGroup& group : layout.blocks[0].groups)
      for (const FlatParameter& parameter : group.parameters)
        for (const tensor_parallel::LocalBox& box : parameter.part.boxes) {
          EXPECT_TRUE(box.counted);
          boxes.emplace_back(box.start, box.shape);
        }
    return boxes;
  };
  using Boxes = std::vector<std::pair<Shape, Shape>>;
  EXPECT_EQ(boxes_of(0, 0), (Boxes{{{0, 0}, {3, 4}}, {{6, 0}, {3, 4}}, {{0, 0}, {12, 2}}, {{0, 0}, {24, 2}}}));
  EXPECT_EQ(boxes_of(1, 1), (Boxes{{{15, 0}, {3, 4}}, {{21, 0}, {3, 4}}, {{12, 2}, {12, 2}}, {{0, 2}, {24, 2}}}));
}

TEST(ShardLayout, ExpertsThatRanksCannotDivideAreRefused) {
  const std::vector<ParameterSpec> specs{{.name = "three", .shape = {6, 4}, .sharing = Sharing::Expert, .matrices = 3}};
  EXPECT_THROW(make_shard_layout({{"block", specs}}, {.expert_size = 2}), ConfigError);
}

TEST(ShardLayout, CountsWhatPersistsOverAllLayers) {
  const std::vector<ParameterSpec> four{{.name = "gain", .shape = {4}}}, two{{.name = "gain", .shape = {2}}};
  const ShardLayout layout =
      make_shard_layout({{"first", four}, {"second", four}, {"third", four}, {"last", two}},
                        {.shards = ShardCounts(2), .persistence_threshold = 100, .persistence_limit = 10});
  std::vector<bool> persistent;
  for (const BlockLayout& block : layout.blocks) persistent.push_back(block.groups.at(0).persistent);
  EXPECT_EQ(persistent, (std::vector<bool>{true, true, false, true}));
}

// The elements of the whole parameter that the ranks of a tensor size count, grouped by block of a norm and sorted.
std::vector<std::vector<int64_t>> norm_blocks(const ParameterSpec& spec, int size) {
  std::vector<std::vector<int64_t>> blocks;
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<ParameterSpec> specs{spec};
    const ShardLayout layout =
        make_shard_layout({{"layer", specs}}, {.shards = ShardCounts(1), .tensor_rank = rank, .tensor_size = size});
    const FlatParameter& parameter = layout.blocks[0].groups[0].parameters[0];
    const int64_t width = spec.shape.dims() > 1 ? spec.shape[1] : 1;
    for (const tensor_parallel::LocalBox& box : parameter.part.boxes) {
      if (!box.counted) continue;
      const int64_t box_width = spec.shape.dims() > 1 ? box.shape[1] : 1, first_col = spec.shape.dims() > 1 ? box.start[1] : 0;
      for (int64_t e = 0; e < box.shape.elements(); ++e) {
        if (e % parameter.sum_block == 0) blocks.emplace_back();
        blocks.back().push_back((box.start[0] + e / box_width) * width + first_col + e % box_width);
      }
    }
  }
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

TEST(ShardLayout, NoTensorSizeCutsABlockOfANorm) {
  for (const ParameterSpec& spec :
       {ParameterSpec{.name = "qkv", .shape = {96, 10}, .split = {0, {48, 24, 24}, {8, 8, 8}}},
        ParameterSpec{.name = "down", .shape = {6, 200}, .split = {1, {200}, {}}},
        ParameterSpec{.name = "out", .shape = {64, 64}, .split = {1, {64}, {8}}},
        ParameterSpec{.name = "table", .shape = {61, 64}, .split = {0, {61}, {}}},
        ParameterSpec{.name = "bias", .shape = {512}, .split = {0, {512}, {}}}, ParameterSpec{.name = "gain", .shape = {300}}})
    for (int size : {2, 4, 8}) EXPECT_EQ(norm_blocks(spec, size), norm_blocks(spec, 1)) << spec.name << " on " << size;
}

// The table is on pipeline rank 0, the head on rank 2.
TEST(ShardLayout, AWeightThatPipelineRanksShareIsAloneInItsGroupAndATieOfTheirs) {
  for (const bool comes_first : {true, false}) {
    Fixture model;
    const auto other = comes_first ? model.embedding.end() : model.embedding.begin();
    model.embedding.insert(other, {.name = "positions", .shape = {10, 33}});
    const auto layout_of = [&](int rank) {
      return make_shard_layout(model.layers(),
                               {.shards = ShardCounts(2), .pipeline_rank_of_block = {0, 1, 2}, .pipeline_rank = rank});
    };
    const ShardLayout first = layout_of(0), middle = layout_of(1), last = layout_of(2);
    ASSERT_EQ(first.blocks[0].groups.size(), 2u);
    for (const FlatGroup& group : first.blocks[0].groups) EXPECT_EQ(group.parameters.size(), 1u);
    const FlatGroup& shared = first.blocks[0].groups[comes_first ? 0 : 1];
    EXPECT_TRUE(shared.shared);
    EXPECT_EQ(last.blocks[2].groups[0].role, GroupRole::Replica);
    EXPECT_EQ(last.blocks[2].groups[0].whole_elements, shared.whole_elements);
    EXPECT_EQ(first.ties.size(), 1u);
    EXPECT_EQ(middle.ties.size(), 0u);
    EXPECT_EQ(last.ties.size(), 1u);
  }
}

TEST(ShardLayout, RefusesTiesThatCannotBe) {
  Fixture model;
  model.head[0].tied_to = "nowhere.table";
  EXPECT_THAT([&] { make_shard_layout(model.layers(), {}); },
              ThrowsMessage<ConfigError>(HasSubstr("head.weight is tied to \"nowhere.table\", which no layer owns")));
  model.head[0].tied_to = "block.weight";
  EXPECT_THAT([&] { make_shard_layout(model.layers(), {}); },
              ThrowsMessage<ConfigError>(
                  HasSubstr("head.weight has shape [97, 33] but is tied to \"block.weight\" of shape [40, 40]")));
  model.head[0].tied_to = "";
  model.head.push_back(model.head[0]);
  EXPECT_THAT([&] { make_shard_layout(model.layers(), {}); },
              ThrowsMessage<ConfigError>(HasSubstr("two parameters are named \"head.weight\"")));
}

}  // namespace
}  // namespace trivet::zero
