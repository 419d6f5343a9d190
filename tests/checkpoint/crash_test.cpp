// At each call of the file system in turn, a saver is stopped or an error is injected. Three things must hold each time: the
// newest step for which save() returned, or a later one, loads; every bit of it is right; and a restart commits another step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "tests/checkpoint/participant_threads.h"
#include "tests/checkpoint/sample_tensors.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/memory_file_system.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::support;

const std::vector<SampleTensor> kFewElements{{"weight", DType::BFloat16, {4, 6}, 0}, {"bias", DType::Float32, {5}, -1}};
constexpr const char* kRunDirectory = "/runs/checkpoints";
constexpr int64_t kNone = -1;

CheckpointStoreOptions options(const std::string& run_id) {
  return {.directory = kRunDirectory, .run_id = run_id, .keep = 2, .log = Log(0, LogLevel::Error)};
}

void save(CheckpointStore& store, int64_t step, const Participants& ranks, int size = 1) {
  const RankPieces mine = make_pieces({.data = size}, ranks.rank, step, true, kFewElements);
  store.save({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = ""}, ranks);
}

// Saves three steps with retention, then the last one again over itself. Returns the last step that was acknowledged before the
// job ended. A save that fails does not end the job.
int64_t run_job(FileSystem& files, int size, const std::string& run_id, std::vector<int64_t> steps = {1, 2, 3, 3}) {
  std::atomic<int64_t> acknowledged = kNone;
  try {
    run_ranks(size, [&](const Participants& ranks) {
      CheckpointStore store(files, options(run_id));
      for (int64_t step : steps) {
        try {
          save(store, step, ranks, size);
          acknowledged = std::max(acknowledged.load(), step);
        } catch (const CheckpointError& error) {
          EXPECT_EQ(error.exit_code(), ExitCode::CheckpointNotWritten) << error.what();
        }
      }
    });
  } catch (const Stopped&) {
  } catch (const CommError&) {
  }
  return acknowledged;
}

// How many faults a test has tried, printed for scripts/checkpoint_faults when TRIVET_COUNT_FAULTS is set.
class Tally {
 public:
  ~Tally() {
    if (std::getenv("TRIVET_COUNT_FAULTS")) fmt::print("faults injected: {}\n", faults_);
  }
  void add() { ++faults_; }

 private:
  int faults_ = 0;
};

void expect_survives(FileSystem& files, int64_t acknowledged, const std::string& what) {
  SCOPED_TRACE(what);
  CheckpointStore store(files, options("restart"));
  ASSERT_NO_THROW(store.acquire({}));
  const auto found = store.open_latest({});
  ASSERT_TRUE(found || acknowledged == kNone);
  const int64_t step = found ? found->step() : 0;
  ASSERT_GE(step, acknowledged);
  if (found) {
    expect_values(*found, {}, kFewElements);
    EXPECT_EQ(found->state(), sample_state(step));
  }
  ASSERT_NO_THROW(save(store, step + 1, {}));
  ASSERT_EQ(store.open_latest({})->step(), step + 1);
  for (const DirectoryEntry& entry : files.list(kRunDirectory))
    EXPECT_TRUE(entry.name.starts_with("step-") || entry.name == ".lock" || entry.name == "latest" ||
                entry.name.starts_with("broken-"))
        << entry.name << " was left";
}

int64_t calls_of_a_job(int size) {
  const auto disk = std::make_unique<MemoryFileSystem>();
  FaultyFileSystem files(*disk);
  EXPECT_EQ(run_job(files, size, "run"), 3);
  return files.calls();
}

class EveryCall : public ::testing::TestWithParam<Fault> {};

TEST_P(EveryCall, LeavesAStepThatLoadsAndARestartThatCommits) {
  Tally tally;
  for (int size : {1, 2}) {
    const int64_t calls = calls_of_a_job(size);
    ASSERT_GT(calls, 100);
    for (int64_t call = 1; call <= calls; ++call) {
      const auto disk = std::make_unique<MemoryFileSystem>();
      FaultyFileSystem files(*disk, GetParam(), call);
      const int64_t acknowledged = run_job(files, size, "run");
      expect_survives(*disk, acknowledged, fmt::format("{} ranks, call {}", size, call));
      tally.add();
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Crash, EveryCall,
                         ::testing::Values(Fault::Stop, Fault::StopMidWrite, Fault::NoSpace, Fault::DiskFull, Fault::IoError,
                                           Fault::ShortTransfer));

TEST(Crash, AShortWriteOrReadIsNoError) {
  const int64_t calls = calls_of_a_job(1);
  for (int64_t call = 1; call <= calls; ++call) {
    const auto disk = std::make_unique<MemoryFileSystem>();
    FaultyFileSystem files(*disk, Fault::ShortTransfer, call);
    EXPECT_EQ(run_job(files, 1, "run"), 3);
  }
}

TEST(Crash, ASecondKillDuringTheRestartLosesNothing) {
  Tally tally;
  const int64_t calls = calls_of_a_job(1);
  for (int64_t first = 1; first <= calls; first += 3)
    for (int64_t second = 1; second <= 60; ++second) {
      const auto disk = std::make_unique<MemoryFileSystem>();
      FaultyFileSystem before(*disk, Fault::Stop, first);
      int64_t acknowledged = run_job(before, 1, "run");
      FaultyFileSystem after(*disk, Fault::StopMidWrite, second);
      acknowledged = std::max(acknowledged, run_job(after, 1, "run", {3, 4}));
      expect_survives(*disk, acknowledged, fmt::format("killed at call {}, then at call {}", first, second));
      tally.add();
      if (HasFatalFailure()) return;
    }
}

class EveryLossOfPower : public ::testing::TestWithParam<PowerLoss> {};

TEST_P(EveryLossOfPower, LeavesAStepThatLoadsAndARestartThatCommits) {
  Tally tally;
  const int seeds = GetParam() == PowerLoss::Random ? 8 : 1;
  for (int size : {1, 2}) {
    const int64_t calls = calls_of_a_job(size);
    for (int64_t call = 1; call <= calls + 1; ++call)
      for (int seed = 0; seed < seeds; ++seed) {
        const auto disk = std::make_unique<MemoryFileSystem>();
        FaultyFileSystem files(*disk, Fault::Stop, call);
        const int64_t acknowledged = run_job(files, size, "run");
        disk->lose_power(GetParam(), static_cast<uint64_t>(call * 100 + seed));
        expect_survives(*disk, acknowledged, fmt::format("{} ranks, call {}, seed {}", size, call, seed));
        tally.add();
        if (HasFatalFailure()) return;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Crash, EveryLossOfPower,
                         ::testing::Values(PowerLoss::DropAll, PowerLoss::KeepEntries, PowerLoss::KeepBytes,
                                           PowerLoss::Random));

}  // namespace
}  // namespace trivet::checkpoint
