#include "comm/process_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace trivet::comm {
namespace {

constexpr const char* kUsual = "4711 (trivet) S 1 4711 4711 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 9 0 123456 1000 10 more";

TEST(ProcessState, IsReadFromTheKernelsText) {
  const auto found = parse_process_state(kUsual);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state, 'S');
  EXPECT_EQ(found->started, 123456);
}

TEST(ProcessState, IsNotMisledByTheNameOfTheProgram) {
  const auto found = parse_process_state("4711 (a) T 1 (b) R 1 4711 4711 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 9 0 77 1000");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state, 'R');
  EXPECT_EQ(found->started, 77);
}

TEST(ProcessState, OfTextThatIsCutShortOrNoneIsNothing) {
  const std::string_view text = kUsual;
  EXPECT_FALSE(parse_process_state(""));
  EXPECT_FALSE(parse_process_state("no brackets at all"));
  EXPECT_FALSE(parse_process_state("4711 (a)"));
  EXPECT_FALSE(parse_process_state("4711 (a) "));
  for (size_t length = 0; length < text.find("123456"); ++length) EXPECT_FALSE(parse_process_state(text.substr(0, length)));
}

TEST(ProcessState, OfThisProcessIsRunningOrSleeping) {
  const auto found = state_of_process(::getpid());
  ASSERT_TRUE(found);
  EXPECT_GT(found->started, 0);
  EXPECT_FALSE(is_stopped(::getpid(), found->started));
}

// Waits until the kernel has acted on a signal; false if that takes longer than 5 s.
bool becomes(bool stopped, pid_t pid, int64_t started) {
  for (int i = 0; i < 5000; ++i) {
    if (is_stopped(pid, started) == stopped) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(ProcessState, IsStoppedBetweenTheSignalsAndOnlyForThatProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  const int64_t started = state_of_process(child).value().started;
  EXPECT_FALSE(is_stopped(child, started));
  ::kill(child, SIGSTOP);
  EXPECT_TRUE(becomes(true, child, started));
  EXPECT_FALSE(is_stopped(child, started + 1)) << "this is the start time of another process that had this pid";
  ::kill(child, SIGCONT);
  EXPECT_TRUE(becomes(false, child, started));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_stopped(child, started));
  EXPECT_FALSE(state_of_process(child));
}

}  // namespace
}  // namespace trivet::comm
