#include "core/start_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "tests/support/no_more_threads.h"

namespace trivet {
namespace {

TEST(StartThreads, GivesEachItsNumber) {
  std::atomic<int> sum{0};
  for (std::thread& thread : start_threads(
           5, [&](int i) { sum += 1 << i; }, [](int) { FAIL(); }))
    thread.join();
  EXPECT_EQ(sum, 31);
}

// Exits with code 7 if the error is thrown after all threads that had been started have ended.
[[noreturn]] void start_more_than_there_can_be() {
  test::refuse_threads_soon();
  std::atomic<int> ended{0};
  std::atomic<int> refused{-1};
  const auto body = [&](int) {
    while (refused < 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ++ended;
  };
  try {
    start_threads(1000, body, [&](int i) { refused = i; });
  } catch (const std::system_error& error) {
    std::_Exit(error.code().value() == EAGAIN && refused > 0 && refused < 1000 && ended == refused ? 7 : 8);
  }
  std::_Exit(9);
}

TEST(StartThreads, EndsThoseThatRunIfOneIsRefused) {
  if (!test::threads_can_be_refused()) GTEST_SKIP() << "sanitizers need more address space than a limit would leave";
  EXPECT_EXIT(start_more_than_there_can_be(), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace trivet
