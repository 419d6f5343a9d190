#include "engine/checkpoint/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace trivet::checkpoint {
namespace {

TEST(Jobs, EachRunsOnceAndTheFirstErrorIsThrown) {
  std::vector<std::atomic<int>> runs(100);
  run_jobs(runs.size(), 4, [&](size_t job) { ++runs[job]; });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
  EXPECT_THROW(run_jobs(100, 4,
                        [](size_t job) {
                          if (job == 50) throw std::runtime_error("50");
                        }),
               std::runtime_error);
  run_jobs(0, 0, [](size_t) { FAIL(); });
}

}  // namespace
}  // namespace trivet::checkpoint
