#include "zero/shard_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    const ShardLayout layout = make_shard_layout(model.layers(), {.ranks = ranks});
    for (const BlockLayout& block : layout.blocks)
      for (const FlatGroup& group : block.groups) {
        EXPECT_EQ(group.whole_elements, group.shard_elements * ranks);
        EXPECT_EQ(group.shard_elements % kernels::kSumBlock, 0);
        for (const FlatParameter& parameter : group.parameters) {
          EXPECT_EQ(parameter.offset % kernels::kSumBlock, 0);
          int64_t next = 0;  // shards cover the parameter in order, without gap or overlap
          for (int rank = 0; rank < ranks; ++rank) {
            const Overlap part = overlap(parameter, rank * group.shard_elements, group.shard_elements);
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
  const ShardLayout layout = make_shard_layout(model.layers(), {.ranks = 2});
  EXPECT_TRUE(layout.blocks[2].groups.empty());
  EXPECT_EQ(layout.blocks[2].weight_blocks, (std::vector<int>{2, 0}));
  EXPECT_EQ(layout.blocks[2].weights[0].block, 0);
}

TEST(ShardLayout, SmallParametersPersistUpToALimitAndFrozenOnesStandApart) {
  const Fixture model;
  const ShardLayout layout =
      make_shard_layout(model.layers(), {.ranks = 2, .persistence_threshold = 100, .persistence_limit = 1000});
  ASSERT_EQ(layout.blocks[1].groups.size(), 3u);
  EXPECT_FALSE(layout.blocks[1].groups[0].persistent);
  EXPECT_TRUE(layout.blocks[1].groups[1].persistent);
  EXPECT_FALSE(layout.blocks[1].groups[2].trainable);
  const ShardLayout none =
      make_shard_layout(model.layers(), {.ranks = 2, .persistence_threshold = 100, .persistence_limit = 6});
  EXPECT_FALSE(none.blocks[1].groups[0].persistent);  // 7 elements are more than the limit
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
