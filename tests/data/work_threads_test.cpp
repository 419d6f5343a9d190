#include "data/work_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>

namespace trivet::data {
namespace {

TEST(WorkThreads, DoAllWork) {
  for (const int threads : {1, 2, 7}) {
    std::atomic<int64_t> sum = 0;
    WorkThreads workers(threads);
    for (int64_t i = 1; i <= 100; ++i) workers.add([&sum, i] { sum += i; });
    workers.finish();
    EXPECT_EQ(sum, 5050);
    EXPECT_FALSE(workers.has_failed());
    workers.finish();
  }
}

TEST(WorkThreads, ReportTheErrorOfTheEarliestWork) {
  std::atomic<bool> second_failed = false;
  WorkThreads workers(2);
  workers.add([&] {  // fails after the work that was added after it
    while (!second_failed) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    throw std::runtime_error("first");
  });
  workers.add([&] {
    second_failed = true;
    throw std::runtime_error("second");
  });
  try {
    workers.finish();
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  bool done = false;
  workers.add([&done] { done = true; });
  EXPECT_TRUE(workers.has_failed());
  EXPECT_THROW(workers.finish(), std::runtime_error);
  EXPECT_FALSE(done) << "what is added after an error is dropped";
}

TEST(WorkThreads, EndWithoutDoingWhatHasNotBegun) {
  std::atomic<int> done = 0;
  {
    WorkThreads workers(1);
    for (int i = 0; i < 2; ++i)
      workers.add([&done] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ++done;
      });
  }
  EXPECT_LE(done, 2);
}

}  // namespace
}  // namespace trivet::data
