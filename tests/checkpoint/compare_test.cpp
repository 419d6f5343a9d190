#include "engine/checkpoint/compare.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/checkpoint/sample_tensors.h"
#include "tests/support/memory_file_system.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::support;

class Compare : public ::testing::Test {
 protected:
  LoadedStep save(const std::string& directory, std::vector<float> values, const std::string& further = "") {
    CheckpointStore store(files_, {.directory = directory, .run_id = "run"});
    std::vector<Piece> pieces{whole_box_piece("weight", {2, 2}, 0, {values.data(), DType::Float32, {4}})};
    if (!further.empty()) pieces.push_back(whole_box_piece(further, {4}, 0, {values.data(), DType::Float32, {4}}));
    store.save({.step = 1, .pieces = pieces, .state = sample_state(1), .config = ""}, {});
    return LoadedStep(files_, directory + "/step-00000001");
  }
  MemoryFileSystem files_;
};

TEST_F(Compare, SaysHowTensorsDiffer) {
  const LoadedStep first = save("/a", {1, 2, 3, 4}, "old"), second = save("/b", {1, 2.5, 3, 4.25}, "new");
  const auto differences = compare(first, second);
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].kind, Difference::OnlyInSecond);
  EXPECT_EQ(differences[1].kind, Difference::OnlyInFirst);
  EXPECT_EQ(differences[2].kind, Difference::Values);
  EXPECT_EQ(differences[2].different_elements, 2);
  EXPECT_EQ(differences[2].largest, 0.5);
}

TEST_F(Compare, ComparesBits) {
  const auto equal = compare(save("/a", {1, 2, 3, 4}), save("/b", {1, 2, 3, 4}));
  ASSERT_EQ(equal.size(), 1u);
  EXPECT_EQ(equal[0].kind, Difference::None);
  const LoadedStep zero = save("/c", {0, 2, 3, 4}), minus = save("/d", {-0.0f, 2, 3, 4});
  EXPECT_EQ(compare(zero, minus)[0].kind, Difference::Values);
  EXPECT_EQ(compare(zero, minus)[0].different_elements, 1);
}

}  // namespace
}  // namespace trivet::checkpoint
