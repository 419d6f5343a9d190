// Tests the arithmetic of fixed chunks: which elements each chunk has, on any number of ranks.
#include "tensor_parallel/cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tensor_parallel/split.h"

namespace trivet::tensor_parallel {
namespace {

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

// Heads have two elements.
const Split kQkv{0, {24, 12, 12}, {12, 6, 6}}, kManyHeads{0, {32, 16, 16}, {16, 8, 8}}, kTwelveHeads{0, {24}, {12}};
const Split kVocabulary{0, {61}, {}}, kFew{0, {5}, {}}, kGateAndUp{0, {20, 20}, {}}, kColumns{1, {26}, {}};

Pairs pairs_of(const std::vector<kernels::ProductCuts::Range>& ranges) {
  Pairs pairs;
  for (const auto& range : ranges) pairs.emplace_back(range.begin, range.end);
  return pairs;
}

// The places in the whole parameter of the rank's elements along the dim.
std::vector<int64_t> places_of(const Split& split, int rank, int size) {
  ParameterSpec spec;
  spec.name = "w";
  spec.split = split;
  const int64_t length = std::accumulate(split.segments.begin(), split.segments.end(), int64_t{0});
  spec.shape = split.dim == 0 ? Shape{length, 1} : Shape{1, length};
  std::vector<int64_t> places;
  for (const LocalBox& box : local_part(spec, rank, size).boxes)
    for (int64_t i = 0; i < box.shape[split.dim]; ++i) places.push_back(box.start[split.dim] + i);
  return places;
}

// Returns, for the chunks of all ranks in order, the places in the whole parameter of the elements that each chunk sums over.
// Also checks that each rank's `ends` cut its part into the ranges of its leaves, segment by segment.
std::vector<std::vector<int64_t>> chunks_of_all_ranks(const Split& split, int size) {
  std::vector<std::vector<int64_t>> chunks;
  for (int rank = 0; rank < size; ++rank) {
    const SplitCuts cuts = cuts_of(split, rank, size);
    const std::vector<int64_t> places = places_of(split, rank, size);
    std::vector<int64_t> ends;
    int64_t end = 0;
    for (size_t segment = 0; segment < split.segments.size(); ++segment)
      for (const auto& leaf : cuts.sums.leaves) {
        EXPECT_EQ(leaf.at(segment).begin, end);
        ends.push_back(end = leaf.at(segment).end);
      }
    EXPECT_EQ(cuts.ends, ends);
    EXPECT_EQ(ends.back(), static_cast<int64_t>(places.size()));
    for (const auto& leaf : cuts.sums.leaves) {
      std::vector<int64_t>& chunk = chunks.emplace_back();
      for (const auto& range : leaf) chunk.insert(chunk.end(), places.begin() + range.begin, places.begin() + range.end);
    }
  }
  return chunks;
}

TEST(CutsOf, DealsUnevenHeadsOfEachSegmentToTheChunks) {
  // floor(12 c / 8) = 0 1 3 4 | 6 7 9 10 12 and floor(6 c / 8) = 0 0 1 2 | 3 3 4 5 6; rank 1 begins after the bar.
  const SplitCuts cuts = cuts_of(kQkv, 1, 2);
  EXPECT_THAT(cuts.ends, testing::ElementsAre(2, 6, 8, 12, 12, 14, 16, 18, 18, 20, 22, 24));
  ASSERT_EQ(cuts.sums.leaves.size(), 4u);
  EXPECT_EQ(pairs_of(cuts.sums.leaves[0]), (Pairs{{0, 2}, {12, 12}, {18, 18}}));
  EXPECT_EQ(pairs_of(cuts.sums.leaves[1]), (Pairs{{2, 6}, {12, 14}, {18, 20}}));
  EXPECT_EQ(pairs_of(cuts.sums.leaves[2]), (Pairs{{6, 8}, {14, 16}, {20, 22}}));
  EXPECT_EQ(pairs_of(cuts.sums.leaves[3]), (Pairs{{8, 12}, {16, 18}, {22, 24}}));
}

TEST(CutsOf, CutsAnUnevenVocabularyAnywhere) {
  EXPECT_THAT(cuts_of(kVocabulary, 0, 1).ends, testing::ElementsAre(7, 15, 22, 30, 38, 45, 53, 61));
  EXPECT_THAT(cuts_of(kVocabulary, 3, 4).ends, testing::ElementsAre(8, 16));
}

TEST(CutsOf, LeavesChunksEmptyWhereThereAreFewerElements) {
  const SplitCuts cuts = cuts_of(kFew, 0, 1);
  EXPECT_THAT(cuts.ends, testing::ElementsAre(0, 1, 1, 2, 3, 3, 4, 5));
  ASSERT_EQ(cuts.sums.leaves.size(), 8u);
  EXPECT_EQ(pairs_of(cuts.sums.leaves[0]), (Pairs{{0, 0}}));
  EXPECT_EQ(pairs_of(cuts.sums.leaves[2]), (Pairs{{1, 1}}));
  EXPECT_EQ(pairs_of(cuts.sums.leaves[7]), (Pairs{{4, 5}}));
}

TEST(CutsOf, CutsRowsColumnsAndSumsAtTheSamePlaces) {
  const SplitCuts cuts = cuts_of(kQkv, 0, 4);
  EXPECT_EQ(cuts.rows.row_ends, cuts.ends);
  EXPECT_THAT(cuts.rows.col_ends, testing::IsEmpty());
  EXPECT_THAT(cuts.rows.leaves, testing::IsEmpty());
  EXPECT_EQ(cuts.cols.col_ends, cuts.ends);
  EXPECT_THAT(cuts.cols.row_ends, testing::IsEmpty());
  EXPECT_THAT(cuts.cols.leaves, testing::IsEmpty());
  EXPECT_THAT(cuts.sums.row_ends, testing::IsEmpty());
  EXPECT_THAT(cuts.sums.col_ends, testing::IsEmpty());
}

// Layout mode relies on this: ranks divide the chunks of one rank among them, and each chunk's elements are on the rank that
// has it.
TEST(CutsOf, ChunksOfAllRanksAreThoseOfOneRankInOrder) {
  const std::vector<std::pair<Split, int>> most_ranks{{kQkv, 4}, {kManyHeads, 8}, {kTwelveHeads, 8}, {kVocabulary, 8},
                                                      {kFew, 4}, {kGateAndUp, 8}, {kColumns, 8}};
  for (const auto& [split, most] : most_ranks) {
    const auto one = chunks_of_all_ranks(split, 1);
    EXPECT_EQ(one.size(), static_cast<size_t>(kSumChunks));
    for (int size = 2; size <= most; size *= 2)
      EXPECT_EQ(chunks_of_all_ranks(split, size), one) << split.segments[0] << " elements on " << size << " ranks";
  }
}

TEST(CanCut, AsksForADivisorOfTheChunksAndAUnitForEachRank) {
  for (int size : {1, 2, 4, 8}) {
    EXPECT_TRUE(can_cut(kManyHeads, size)) << size;
    EXPECT_TRUE(can_cut(kTwelveHeads, size)) << size;
    EXPECT_TRUE(can_cut(kVocabulary, size)) << size;
  }
  for (int size : {3, 5, 6, 7, 16}) EXPECT_FALSE(can_cut(kVocabulary, size)) << size;
  EXPECT_TRUE(can_cut(kQkv, 4));
  EXPECT_FALSE(can_cut(kQkv, 8));  // 6 heads of keys
  EXPECT_TRUE(can_cut({0, {8, 4, 2}, {4, 2, 1}}, 1));
  EXPECT_FALSE(can_cut({0, {8, 4, 2}, {4, 2, 1}}, 2));
}

TEST(CutsOf, ThrowsWhereItCannotCut) {
  EXPECT_THROW(cuts_of(kVocabulary, 0, 3), std::logic_error);
  EXPECT_THROW(cuts_of(kQkv, 0, 8), std::logic_error);
}

}  // namespace
}  // namespace trivet::tensor_parallel
