// Compares the schedules of the generators with the files in tests/golden/schedules. After an intended change, write the files
// again and read the difference:
//
//   TRIVET_WRITE_GOLDENS=1 build/cpu-release/tests/test_pipeline --gtest_filter='Schedules/Golden.*' && git diff tests/golden
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "pipeline/schedules/schedules.h"

namespace trivet::pipeline {
namespace {

namespace fs = std::filesystem;

std::string text_of(const Schedule& schedule) {
  std::string text;
  for (const Program& program : schedule) text += to_string(program) + "\n";
  return text;
}

std::string content(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class Golden : public testing::TestWithParam<std::tuple<ScheduleKind, std::pair<int, int>>> {};

TEST_P(Golden, IsItsFile) {
  const auto [kind, sizes] = GetParam();
  const auto [ranks, microbatches] = sizes;
  const int chunks = traits_of(kind).chunks;
  const std::string name = fmt::format("{}_p{}_m{}{}.txt", name_of(kind), ranks, microbatches, chunks > 1 ? "_v2" : "");
  const fs::path path = fs::path(TRIVET_SOURCE_DIR) / "tests/golden/schedules" / name;
  const Schedule schedule = generate(kind, {ranks, microbatches, chunks});
  if (std::getenv("TRIVET_WRITE_GOLDENS")) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text_of(schedule);
  }
  ASSERT_TRUE(fs::exists(path)) << path;
  EXPECT_EQ(text_of(schedule), content(path)) << path;
  EXPECT_EQ(read_schedule(path.string()), schedule);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Golden,
                         testing::Combine(testing::ValuesIn(all_values<ScheduleKind>()),
                                          testing::Values(std::pair(1, 1), std::pair(2, 3), std::pair(4, 4), std::pair(4, 8),
                                                          std::pair(4, 6), std::pair(8, 32))),
                         [](const auto& of) {
                           std::string name(name_of(std::get<0>(of.param)));
                           std::erase(name, '-');
                           return fmt::format("{}_{}_{}", name, std::get<1>(of.param).first, std::get<1>(of.param).second);
                         });

}  // namespace
}  // namespace trivet::pipeline
