#include <gtest/gtest.h>

#include "tests/checkpoint/participant_threads.h"
#include "tests/checkpoint/sample_tensors.h"
#include "tests/support/temporary_folder.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::support;

void save_by(const Layout& layout, const std::string& directory, int64_t step, const std::string& run_id = "run-1") {
  run_ranks(layout.size(), [&](const Participants& ranks) {
    CheckpointStore store(real_file_system(), {.directory = directory, .run_id = run_id});
    const RankPieces mine = make_pieces(layout, ranks.rank, step, true);
    store.save({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = "{}"}, ranks);
  });
}

TEST(Checkpoint, OneRankReadsBackWhatItWrote) {
  const test::TemporaryFolder directory;
  save_by({}, directory.path(), 200);
  CheckpointStore store(real_file_system(), {.directory = directory.path(), .run_id = "run-2"});
  const auto step = store.open_latest({});
  ASSERT_TRUE(step);
  EXPECT_EQ(step->step(), 200);
  EXPECT_EQ(step->run_id(), "run-1");
  EXPECT_EQ(step->state(), sample_state(200));
  EXPECT_EQ(step->config(), "{}");
  ASSERT_TRUE(step->find("blocks.0.cube"));
  EXPECT_EQ(step->find("blocks.0.cube")->shape, (Shape{3, 12, 5}));
  expect_values(*step);
  EXPECT_EQ(read_text(real_file_system(), directory.at("latest"), 100), "step-00000200\n");
}

class AnyLayout : public ::testing::TestWithParam<std::tuple<int, int>> {};

const std::vector<Layout> kLayouts{{1, 1}, {2, 1}, {3, 1}, {1, 2}, {2, 2}, {1, 3}, {4, 3}};

TEST_P(AnyLayout, ReadsWhatAnyOtherWrote) {
  const auto [writer, reader] = GetParam();
  const test::TemporaryFolder directory;
  save_by(kLayouts[writer], directory.path(), 5);
  expect_values(open_newest(real_file_system(), directory.path()), kLayouts[reader]);
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, AnyLayout, ::testing::Combine(::testing::Range(0, 7), ::testing::Range(0, 7)));

}  // namespace
}  // namespace trivet::checkpoint
