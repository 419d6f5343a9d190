#include "engine/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "engine/sharing.h"

namespace trivet {
namespace {

using Ranks = std::vector<int>;
using testing::ThrowsMessage;

Coordinates at(int pipeline, int data, int tensor = 0) { return {pipeline, data, 0, 0, tensor}; }

// The last axis of the order counts fastest. By default that is the tensor axis, and the pipeline is the slowest; with these
// orders meshes are DeepSpeed's PipeDataParallelTopology and PipeModelDataParallelTopology.
TEST(Mesh, RanksCountTheAxesInTheirOrder) {
  std::vector<Axis> order{Axis::Pipeline, Axis::Data, Axis::Tensor};
  do {
    for (const int pipeline : {1, 2, 3, 4})
      for (const int tensor : {1, 2, 3, 8})
        for (const int data : {1, 2, 5}) {
          const Coordinates sizes = at(pipeline, data, tensor);
          const int world = pipeline * data * tensor;
          const Mesh mesh({.tensor = tensor, .pipeline = pipeline, .rank_order = order}, world);
          SCOPED_TRACE(to_string(mesh));
          int step = 1;  // between neighbours in a group of the axis
          for (const Axis axis : {order[2], order[1], order[0]}) {
            EXPECT_EQ(mesh.size(axis), sizes[axis]);
            for (int rank = 0; rank < world; ++rank) {
              const int place = rank / step % sizes[axis];
              EXPECT_EQ(mesh.coordinates_of(rank)[axis], place) << rank;
              Ranks group;
              for (int i = 0; i < sizes[axis]; ++i) group.push_back(rank + (i - place) * step);
              EXPECT_EQ(mesh.group_of(rank, axis), group);
            }
            step *= sizes[axis];
          }
          for (int rank = 0; rank < world; ++rank) EXPECT_EQ(mesh.rank_at(mesh.coordinates_of(rank)), rank);
        }
  } while (std::ranges::next_permutation(order).found);
}

TEST(Mesh, TheTensorAxisIsFastestByDefault) {
  const Mesh mesh({.tensor = 2, .pipeline = 2}, 12);
  EXPECT_EQ(to_string(mesh), "pipeline 2 x data 3 x tensor 2");
  EXPECT_EQ(mesh.group_of(0, Axis::Tensor), (Ranks{0, 1}));
  EXPECT_EQ(mesh.group_of(1, Axis::Data), (Ranks{1, 3, 5}));
  EXPECT_EQ(mesh.groups(Axis::Pipeline), (std::vector<Ranks>{{0, 6}, {1, 7}, {2, 8}, {3, 9}, {4, 10}, {5, 11}}));
  EXPECT_EQ(mesh.ranks_at({{Axis::Data, 2}}), (Ranks{4, 5, 10, 11}));
  EXPECT_EQ(mesh.ranks_at({{Axis::Pipeline, 1}, {Axis::Data, 0}}), (Ranks{6, 7}));
}

// The example of engine/sharing.h. The ranks that share experts are other ones than those that share dense parameters.
TEST(Mesh, ExpertsHaveAViewOfTheirOwn) {
  const Mesh mesh({.tensor = 2, .expert = 2}, 8);
  EXPECT_EQ(mesh.size(), 8);
  EXPECT_EQ(mesh.size(Axis::Data), 4);
  EXPECT_EQ(mesh.groups(equal_over(Sharing::Dense)), (std::vector<Ranks>{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  const Mesh experts = mesh.view(Sharing::Expert);
  EXPECT_EQ(experts.groups(equal_over(Sharing::Expert)), (std::vector<Ranks>{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(experts.groups(Axis::Expert), (std::vector<Ranks>{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(experts.groups(Axis::Tensor), mesh.groups(Axis::Tensor));
  EXPECT_EQ(to_string(mesh), "data 4 x tensor 2, each 2 ranks share the experts");
  EXPECT_EQ(mesh.view(Sharing::Dense).groups(Axis::Tensor), mesh.groups(Axis::Tensor));
}

TEST(Mesh, StagesKeepTheirRanksInTheViewOfExperts) {
  const Mesh mesh({.tensor = 2, .pipeline = 2, .expert = 2}, 8);
  for (int rank = 0; rank < 8; ++rank)
    EXPECT_EQ(mesh.view(Sharing::Expert).coordinate_of(rank, Axis::Pipeline), mesh.coordinate_of(rank, Axis::Pipeline)) << rank;
}

// Context ranks have different tokens of the same samples, and may have different experts, too.
TEST(Mesh, ContextRanksMayHaveDifferentExperts) {
  const Mesh experts = Mesh({.context = 2, .expert = 4}, 8).view(Sharing::Expert);
  EXPECT_EQ(experts.groups(Axis::Expert), (std::vector<Ranks>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(experts.groups(equal_over(Sharing::Expert)), (std::vector<Ranks>{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

// Whatever the order of ranks, an expert's copies are on ranks of one stage and tensor coordinate, and consecutive ones of
// these have different experts.
TEST(Mesh, ExpertsStayWithinTheirStageInEveryOrder) {
  std::vector<Axis> order{Axis::Pipeline, Axis::Data, Axis::Tensor};
  do {
    const Mesh mesh({.tensor = 2, .pipeline = 2, .expert = 4, .rank_order = order}, 16);
    const Mesh experts = mesh.view(Sharing::Expert);
    for (int rank = 0; rank < 16; ++rank) {
      EXPECT_EQ(experts.coordinate_of(rank, Axis::Pipeline), mesh.coordinate_of(rank, Axis::Pipeline)) << rank;
      EXPECT_EQ(experts.coordinate_of(rank, Axis::Tensor), mesh.coordinate_of(rank, Axis::Tensor)) << rank;
      EXPECT_EQ(experts.rank_at(experts.coordinates_of(rank)), rank);
    }
    for (int part = 0; part < 4; ++part) {
      const Ranks ranks = mesh.ranks_at({{Axis::Pipeline, part / 2}, {Axis::Tensor, part % 2}});
      for (size_t place = 0; place < ranks.size(); ++place)
        EXPECT_EQ(experts.coordinate_of(ranks[place], Axis::Expert), static_cast<int>(place % 4));
    }
    EXPECT_EQ(experts.groups(equal_over(Sharing::Expert)).size(), 16U);
  } while (std::ranges::next_permutation(order).found);
}

TEST(Mesh, TheExpertAxisDividesTheDataAndContextRanks) {
  EXPECT_THAT(
      [] { Mesh({.tensor = 2, .expert = 3}, 8); },
      ThrowsMessage<ConfigError>("mesh: parallel.expert 3 does not divide the 4 data and context ranks; use a divisor"));
}

TEST(Mesh, GroupsAreCutIntoRunsAndAcrossThem) {
  const std::vector<Ranks> groups{{0, 2, 4, 6}, {1, 3, 5, 7}};
  EXPECT_EQ(runs_of(groups, 2), (std::vector<Ranks>{{0, 2}, {4, 6}, {1, 3}, {5, 7}}));
  EXPECT_EQ(across_runs_of(groups, 2), (std::vector<Ranks>{{0, 4}, {2, 6}, {1, 5}, {3, 7}}));
  EXPECT_EQ(runs_of(groups, 4), groups);
  EXPECT_EQ(across_runs_of(groups, 1), groups);
}

// Context ranks hold the same elements but read the same samples.
TEST(Mesh, RanksThatHoldTheSameElementsMayReadTheSameSamples) {
  const Mesh mesh({.tensor = 2, .context = 2}, 8);
  EXPECT_EQ(mesh.size(equal_over(Sharing::Dense)), 4);
  EXPECT_EQ(mesh.size(batch_axes()), 2);
  std::vector<int> index;
  for (int rank = 0; rank < 8; ++rank) index.push_back(mesh.index_of(rank, batch_axes()));
  EXPECT_EQ(index, (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
}

// Whatever the order, the groups of an axis split the world, and a rank's place in its group is its coordinate.
TEST(Mesh, GroupsSplitTheWorldInEveryOrder) {
  std::vector<Axis> order{Axis::Pipeline, Axis::Data, Axis::Context, Axis::Expert, Axis::Tensor};
  do {
    const Mesh mesh({.tensor = 2, .pipeline = 3, .context = 2, .expert = 1, .rank_order = order}, 24);
    for (const auto& [name, axis] : EnumNames<Axis>::table) {
      std::vector<int> seen(24, 0);
      for (const Ranks& group : mesh.groups(axis)) {
        EXPECT_TRUE(std::ranges::is_sorted(group)) << name;
        for (size_t i = 0; i < group.size(); ++i) {
          ++seen[group[i]];
          EXPECT_EQ(mesh.coordinate_of(group[i], axis), static_cast<int>(i)) << name;
        }
      }
      EXPECT_EQ(seen, std::vector<int>(24, 1)) << name;
    }
    for (int rank = 0; rank < 24; ++rank) EXPECT_EQ(mesh.rank_at(mesh.coordinates_of(rank)), rank);
  } while (std::ranges::next_permutation(order).found);
}

TEST(Mesh, AGroupOfSeveralAxesIsTheirProduct) {
  const Mesh mesh({.tensor = 2, .pipeline = 2}, 12);
  EXPECT_EQ(mesh.group_of(3, {Axis::Data, Axis::Tensor}), (Ranks{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(mesh.group_of(9, {Axis::Pipeline, Axis::Tensor}), (Ranks{2, 3, 8, 9}));
  EXPECT_EQ(mesh.group_of(9, {Axis::Pipeline, Axis::Data}), (Ranks{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(mesh.group_of(9, {Axis::Data}), mesh.group_of(9, Axis::Data));
  EXPECT_EQ(mesh.group_of(9, {}), (Ranks{9}));
  EXPECT_EQ(mesh.group_of(9, {Axis::Pipeline, Axis::Data, Axis::Tensor}).size(), 12u);
}

TEST(Mesh, SaysHowManyRanksToStart) {
  const auto refused = [](const ParallelConfig& parallel, int world, const std::string& message) {
    EXPECT_THAT(([&] { Mesh(parallel, world); }), ThrowsMessage<ConfigError>(message));
  };
  refused({.tensor = 2, .pipeline = 2}, 10,
          "mesh: pipeline 2 x tensor 2 needs a multiple of 4 ranks, but the job has 10; start 8 or 12 ranks or make an axis "
          "smaller");
  refused({.tensor = 4, .pipeline = 8}, 16,
          "mesh: pipeline 8 x tensor 4 needs 32 ranks, but the job has 16; start 32 ranks or make an axis smaller");
  refused({.tensor = 3}, 4,
          "mesh: tensor 3 needs a multiple of 3 ranks, but the job has 4; start 3 or 6 ranks or make an axis smaller");
  refused({.tensor = int64_t{1} << 40, .pipeline = int64_t{1} << 40}, 4,
          "mesh: pipeline 1099511627776 x tensor 1099511627776 is not a grid of ranks; make each axis at least 1 and "
          "their product less than 2^63");
  refused({.tensor = 2, .rank_order = {Axis::Data}}, 4,
          "mesh: parallel.rank_order leaves out \"tensor\", which has 2 ranks; name it");
  refused({.rank_order = {Axis::Data, Axis::Data}}, 4, "mesh: parallel.rank_order names an axis twice");
}

TEST(MeshGrid, HasARowForEachStageAndTheTensorRanksInACell) {
  EXPECT_EQ(to_grid(Mesh({.tensor = 2, .pipeline = 2}, 12)),
            "data    |   0   |   1   |   2\n"
            "stage 0 |  0  1 |  2  3 |  4  5\n"
            "stage 1 |  6  7 |  8  9 | 10 11\n");
  EXPECT_EQ(to_grid(Mesh({}, 1)), "data    | 0\nstage 0 | 0\n");
}

TEST(MeshGrid, NamesTheStagesOfARank) {
  const std::vector<std::string> rows{"stages 0, 3", "stages 1, 2"};
  EXPECT_EQ(to_grid(Mesh({.pipeline = 2}, 4), rows),
            "data        | 0 | 1\n"
            "stages 0, 3 | 0 | 1\n"
            "stages 1, 2 | 2 | 3\n");
}

TEST(MeshGrid, ShowsEveryOneOf64RanksInLinesThatFit) {
  for (const ParallelConfig& parallel :
       {ParallelConfig{}, ParallelConfig{.pipeline = 64}, ParallelConfig{.tensor = 64},
        ParallelConfig{.tensor = 4, .pipeline = 4}, ParallelConfig{.tensor = 8, .pipeline = 2}}) {
    const std::string grid = to_grid(Mesh(parallel, 64));
    EXPECT_EQ(grid.find(".."), std::string::npos);
    for (int rank = 0; rank < 64; ++rank) EXPECT_NE(grid.find(std::to_string(rank)), std::string::npos) << rank;
    if (parallel.tensor == 64) continue;  // one cell
    for (size_t begin = 0, end = 0; (end = grid.find('\n', begin)) != std::string::npos; begin = end + 1)
      EXPECT_LE(end - begin, 120u);
  }
}

TEST(MeshGrid, LeavesOutTheMiddleOfMoreThan64Ranks) {
  EXPECT_EQ(to_grid(Mesh({.tensor = 8, .pipeline = 8}, 1024)),
            "data    |          0          |          1          |         ..          |         15\n"
            "stage 0 |    0    1   ..    7 |    8    9   ..   15 |         ..          |  120  121   ..  127\n"
            "stage 1 |  128  129   ..  135 |  136  137   ..  143 |         ..          |  248  249   ..  255\n"
            "..      |         ..          |         ..          |         ..          |         ..\n"
            "stage 7 |  896  897   ..  903 |  904  905   ..  911 |         ..          | 1016 1017   .. 1023\n");
}

}  // namespace
}  // namespace trivet
