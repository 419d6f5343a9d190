// Real processes that save to a real disk are killed with SIGKILL at a random moment.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>

#include "tests/checkpoint/sample_tensors.h"
#include "tests/support/temporary_folder.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::support;

const std::vector<SampleTensor> kManyElements{{"weight", DType::Float32, {64, 96}, 0}, {"bias", DType::Float32, {50}, -1}};

CheckpointStoreOptions options(const std::string& directory, const std::string& run_id) {
  return {.directory = directory, .run_id = run_id, .keep = 2, .log = Log(0, LogLevel::Error)};
}

// Continues from the newest step in the directory, and writes each step that was saved to `acknowledge`. Never returns.
[[noreturn]] void save_for_ever(const std::string& directory, int acknowledge) {
  try {
    CheckpointStore store(real_file_system(), options(directory, "child"));
    store.acquire({});
    const auto last = store.open_latest({});
    for (int64_t step = last ? last->step() : 0;; ++step) {  // the first save replaces the existing step
      const RankPieces mine = make_pieces({}, 0, step, true, kManyElements);
      store.save({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = ""}, {});
      if (::write(acknowledge, &step, sizeof step) != sizeof step) ::_exit(3);
    }
  } catch (...) {
    ::_exit(2);
  }
}

// Kills a saver `delay` after it has acknowledged `saves` steps. Returns the last step it acknowledged, or -1.
int64_t run_and_kill(const std::string& directory, int saves, std::chrono::microseconds delay) {
  int pipe[2];
  if (::pipe(pipe) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) save_for_ever(directory, pipe[1]);
  ::close(pipe[1]);
  int64_t last = -1, step = 0;
  const auto next = [&] { return ::read(pipe[0], &step, sizeof step) == sizeof step; };
  while (saves-- > 0 && next()) last = step;
  ::usleep(static_cast<useconds_t>(delay.count()));
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the saver ended by itself: " << WEXITSTATUS(status);
  while (next()) last = step;
  ::close(pipe[0]);
  return last;
}

TEST(Kill, FiftyTimesAtARandomMomentLosesNoStepAndNeverBlocksTheNextRun) {
  const test::TemporaryFolder directory;
  std::mt19937_64 random(7);
  int64_t newest = -1;
  for (int trial = 0; trial < 50; ++trial) {
    const int64_t acknowledged =
        run_and_kill(directory.path(), static_cast<int>(random() % 3), std::chrono::microseconds(random() % 30000));
    newest = std::max(newest, acknowledged);
    CheckpointStore store(real_file_system(), options(directory.path(), "parent"));
    ASSERT_NO_THROW(store.acquire({}));
    const auto step = store.open_latest({});
    ASSERT_TRUE(step || newest < 0);
    if (!step) continue;
    ASSERT_GE(step->step(), newest) << "trial " << trial;
    expect_values(*step, {}, kManyElements);
    EXPECT_TRUE(store.warnings().empty());
    newest = step->step();
  }
  EXPECT_GT(newest, 5) << "the savers made too little progress to show anything";
}

}  // namespace
}  // namespace trivet::checkpoint
