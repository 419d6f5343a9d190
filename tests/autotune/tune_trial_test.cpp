#include "autotune/tune/trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <new>

#include "core/error.h"
#include "engine/make_plan.h"
#include "tests/engine/small_plan.h"
#include "tests/support/faulty_file_system.h"

namespace trivet::autotune {
namespace {

using testing::HasSubstr;

// Refuses the engine's offload files: creating one calls `refuse`, which throws.
class RefusingFiles final : public support::FaultyFileSystem {
 public:
  explicit RefusingFiles(std::function<void(const std::string&)> refuse)
      : FaultyFileSystem(real_file_system()), refuse_(std::move(refuse)) {}
  std::unique_ptr<ScratchFile> create_scratch(const std::string& path, int64_t, bool) override {
    refuse_(path);
    return nullptr;
  }

 private:
  std::function<void(const std::string&)> refuse_;
};

Config offloading() {
  Config config = small_config();
  config.zero.stage = 1;
  config.zero.offload_optimizer.device = OffloadDevice::Nvme;
  config.zero.offload_optimizer.nvme_path = std::filesystem::temp_directory_path();
  return config;
}

TrialResult trial(const Config& config, comm::World& world, FileSystem& files = real_file_system()) {
  return run_trial(config, model::with_vocabulary(config.model, 97), world, {.first_measured = 2, .steps = 4, .files = &files});
}

// Runs a trial on two ranks, of which `rank` cannot create its file, then one with files in the same world.
TrialResult refused_on(int rank, const std::function<void(const std::string&)>& refuse) {
  std::mutex mutex;
  std::vector<TrialResult> results;
  comm::run_threads(2, [&](comm::World& world) {
    RefusingFiles files(refuse);
    const TrialResult result = trial(offloading(), world, world.rank() == rank ? files : real_file_system());
    const TrialResult next = trial(offloading(), world);
    EXPECT_EQ(next.status, TrialStatus::Ok) << next.message;
    EXPECT_GT(next.seconds, 0);
    const std::lock_guard lock(mutex);
    results.push_back(result);
  });
  EXPECT_EQ(results[0], results[1]);
  return results[0];
}

TEST(Trial, EveryRankGetsTheSameTime) {
  std::mutex mutex;
  std::vector<TrialResult> results;
  comm::run_threads(3, [&](comm::World& world) {
    const TrialResult result = trial(small_config(), world);
    const std::lock_guard lock(mutex);
    results.push_back(result);
  });
  EXPECT_EQ(results[0].status, TrialStatus::Ok);
  EXPECT_GT(results[0].seconds, 0);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(Trial, TheFirstMeasuredStepCounts) {
  comm::run_threads(1, [](comm::World& world) {
    const Config config = small_config();
    const TrialResult result =
        run_trial(config, model::with_vocabulary(config.model, 97), world, {.first_measured = 2, .steps = 2});
    EXPECT_GT(result.seconds, 0);
    EXPECT_LT(result.seconds, 60);
  });
}

TEST(Trial, NoMemoryOnOneRankIsTheResultOfAllAndTheNextTrialRuns) {
  for (const int rank : {0, 1}) {
    const TrialResult result =
        refused_on(rank, [](const std::string&) { throw OutOfMemoryError("host memory: 5.0 MiB were refused"); });
    EXPECT_EQ(result.status, TrialStatus::OutOfMemory);
    EXPECT_EQ(result.message, "rank " + std::to_string(rank) + ": host memory: 5.0 MiB were refused");
    EXPECT_EQ(refused_on(rank, [](const std::string&) { throw std::bad_alloc(); }).status, TrialStatus::OutOfMemory);
  }
}

TEST(Trial, AnotherErrorWhileTheEngineIsBuiltFailsTheTrialAlone) {
  const TrialResult result = refused_on(1, [](const std::string& path) { throw FileError("create", path, ENOSPC); });
  EXPECT_EQ(result.status, TrialStatus::Failed);
  EXPECT_THAT(result.message, HasSubstr("rank 1: "));
  EXPECT_THAT(result.message, HasSubstr("No space left on device"));
}

// The model is larger than any address space, so the system itself refuses the memory.
TEST(Trial, AModelThatNoMachineHoldsIsOutOfMemory) {
  Config config = small_config();
  config.model.hidden_size = int64_t{1} << 21;
  comm::run_threads(1, [&](comm::World& world) {
    const TrialResult result = trial(config, world);
    EXPECT_EQ(result.status, TrialStatus::OutOfMemory) << result.message;
    EXPECT_THAT(result.message, HasSubstr("rank 0: host memory: "));
  });
}

int threads_of_this_process() {
  int threads = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++threads;
  return threads;
}

int64_t mapped_kibibytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6));
  return 0;
}

TEST(Trial, NothingOfItRemains) {
  Config config = small_config();
  config.zero.stage = 3;
  config.zero.overlap_comm = true;  // threads that communicate
  comm::run_threads(1, [&](comm::World& world) {
    trial(config, world);
    const int threads = threads_of_this_process();
    [[maybe_unused]] const int64_t before = mapped_kibibytes();
    for (int i = 0; i < 10; ++i) trial(config, world);
    EXPECT_EQ(threads_of_this_process(), threads);
#ifndef __SANITIZE_ADDRESS__  // it keeps freed memory for a while, and finds leaks itself
    const int64_t one = make_plan(config, model_of(config), 1).heaviest().memory.total() / 1024;
    EXPECT_LT(mapped_kibibytes(), before + 3 * one);  // ten leaked trials would take ten times `one`
#endif
  });
}

}  // namespace
}  // namespace trivet::autotune
