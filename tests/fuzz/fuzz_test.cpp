// Runs every seed once, with the same compiler and in the same build as all other tests. To reproduce a failure: test_fuzz
// --gtest_filter='*NAME*'.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/fuzz/targets.h"

namespace trivet::fuzz {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class FuzzTarget : public testing::TestWithParam<Target> {};

TEST_P(FuzzTarget, AcceptsOrRefusesEverySeedAsItPromises) {
  const fs::path folder = fs::path(TRIVET_SOURCE_DIR) / "tests/fuzz/seeds" / GetParam().name;
  int seeds = 0;
  for (const fs::directory_entry& seed : fs::directory_iterator(folder)) {
    SCOPED_TRACE(seed.path());
    EXPECT_NO_THROW(GetParam().run(content_of(seed.path())));
    ++seeds;
  }
  EXPECT_GE(seeds, 2) << folder << ": give at least one example that is accepted and one that is refused";
}

// Cheap inputs that every reader meets sooner or later.
TEST_P(FuzzTarget, RefusesOrAcceptsNothingAndBytesWithoutMeaning) {
  EXPECT_NO_THROW(GetParam().run(""));
  EXPECT_NO_THROW(GetParam().run(std::string(1000, '\0')));
  EXPECT_NO_THROW(GetParam().run(std::string(1000, '\xff')));
  EXPECT_NO_THROW(GetParam().run(std::string(100'000, '[')));
  EXPECT_NO_THROW(GetParam().run(std::string(100'000, 'a')));
}

INSTANTIATE_TEST_SUITE_P(Parsers, FuzzTarget, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace trivet::fuzz
