// The directory: its lock, retention, steps that are broken, leftovers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/checkpoint/ranks.h"
#include "tests/checkpoint/sample.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StoreTest : public ::testing::Test {
 protected:
  Store make_store(const std::string& run_id = "run-1", int64_t keep = 0) {
    return Store(real_file_system(),
                 {.directory = directory_.path(), .run_id = run_id, .keep = keep, .log = Log(0, LogLevel::Error)});
  }
  void save(Store& store, int64_t step) {
    const RankPieces mine = make_pieces({}, 0, step, true);
    store.save({.step = step, .pieces = mine.pieces, .state = "", .config = ""}, {});
  }
  std::vector<int64_t> steps() {
    std::vector<int64_t> result;
    for (const StepDirectory& step : list_steps(real_file_system(), directory_.path())) result.push_back(step.step);
    return result;
  }
  std::string shard_of(int64_t step) const {
    return directory_.path() + "/" + step_directory_name(step) + "/rank-00000.safetensors";
  }
  void flip_last_bit(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const char last = static_cast<char>(file.get() ^ 1);
    file.seekp(-1, std::ios::end);
    file.put(last);
  }
  template <typename Work>
  std::string error_of(ExitCode code, Work&& work) {
    try {
      work();
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.exit_code(), code);
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }

  TemporaryDirectory directory_;
};

TEST_F(StoreTest, ASecondJobIsRefusedAndToldWhoHoldsTheDirectory) {
  Store first = make_store("run-1");
  first.acquire({});
  Store second = make_store("run-2");
  EXPECT_THAT(error_of(ExitCode::CheckpointNotWritten, [&] { second.acquire({}); }),
              AllOf(HasSubstr(directory_.path()), HasSubstr("run run-1 (process " + std::to_string(::getpid())),
                    HasSubstr("choose another checkpoint.directory")));
}

TEST_F(StoreTest, TheLockOfAJobThatEndedIsTaken) {
  { make_store("run-1").acquire({}); }
  Store second = make_store("run-2");
  EXPECT_NO_THROW(second.acquire({}));
}

TEST_F(StoreTest, AllRanksAreToldOfTheLock) {
  Store first = make_store("run-1");
  first.acquire({});
  std::atomic<int> refused = 0;
  run_ranks(3, [&](const Participants& ranks) {
    Store second = make_store("run-2");
    EXPECT_THROW(second.acquire(ranks), CheckpointError);
    ++refused;
  });
  EXPECT_EQ(refused, 3);
}

TEST_F(StoreTest, RetentionKeepsTheNewestAndNeverLaterSteps) {
  Store store = make_store("run-1", 2);
  for (int64_t step : {10, 20, 30, 40}) save(store, step);
  EXPECT_THAT(steps(), ElementsAre(30, 40));
  save(store, 35);
  EXPECT_THAT(steps(), ElementsAre(30, 35, 40));
  EXPECT_THAT(store.warnings(), ElementsAre(HasSubstr("step-00000040 is later than step 35, which was just saved")));
}

TEST_F(StoreTest, ABrokenNewestStepFallsBackToTheOneBeforeAndSaysSo) {
  Store store = make_store();
  for (int64_t step : {10, 20}) save(store, step);
  flip_last_bit(shard_of(20));
  const auto step = store.open_latest({});
  ASSERT_TRUE(step);
  EXPECT_EQ(step->step(), 10);
  expect_values(*step);
  EXPECT_THAT(store.warnings(), ElementsAre(AllOf(HasSubstr("step-00000020/rank-00000.safetensors: block 0 (tensor \""),
                                                  HasSubstr("crc32c "), HasSubstr("; taking the step before"))));
}

TEST_F(StoreTest, TheNextSaveSetsABrokenStepAside) {
  Store store = make_store("run-1", 1);
  for (int64_t step : {10, 20}) save(store, step);
  save(store, 30);
  flip_last_bit(shard_of(30));
  EXPECT_THAT(error_of(ExitCode::CheckpointCorrupt, [&] { store.open_latest({}); }), HasSubstr("no step is valid"));
  save(store, 15);
  EXPECT_THAT(steps(), ElementsAre(15));
  EXPECT_TRUE(std::filesystem::exists(directory_.path() + "/broken-step-00000030"));
}

TEST_F(StoreTest, NoStepAtAllIsNotAnError) {
  Store store = make_store();
  EXPECT_FALSE(store.open_latest({}));
  EXPECT_THAT(error_of(ExitCode::Usage, [&] { open_newest(real_file_system(), directory_.path()); }),
              HasSubstr("there is no checkpoint here"));
}

TEST_F(StoreTest, AMissingStepNamesThoseThereAre) {
  Store store = make_store();
  for (int64_t step : {10, 20}) save(store, step);
  EXPECT_EQ(store.open(10).step(), 10);
  EXPECT_THAT(error_of(ExitCode::Usage, [&] { store.open(15); }), HasSubstr("there is no step 15; there are: 10, 20"));
}

TEST_F(StoreTest, LeftoversOfAKilledJobAreRemovedAndADisplacedStepIsAdopted) {
  {
    Store store = make_store();
    for (int64_t step : {10, 20}) save(store, step);
  }
  const std::filesystem::path root = directory_.path();
  std::filesystem::create_directories(root / ".tmp-step-00000030-run-0" / "deep");
  std::filesystem::create_directory(root / ".trash-step-00000001");
  std::ofstream(root / ".tmp-latest") << "x";
  std::filesystem::rename(root / "step-00000020", root / ".old-step-00000020");
  EXPECT_EQ(open_newest(real_file_system(), directory_.path()).step(), 20);  // already before somebody tidies up

  Store store = make_store("run-2");
  store.acquire({});
  EXPECT_THAT(steps(), ElementsAre(10, 20));
  for (const auto& entry : std::filesystem::directory_iterator(root))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".t") || entry.path().filename().string().starts_with(".old"));
}

TEST_F(StoreTest, ADamagedStepOnOneRankIsPassedOverByAll) {
  for (int64_t step : {10, 20})
    run_ranks(2, [&](const Participants& ranks) {
      Store store = make_store();
      const RankPieces mine = make_pieces({.data = 2}, ranks.rank, step, true);
      store.save({.step = step, .pieces = mine.pieces, .state = "", .config = ""}, ranks);
    });
  flip_last_bit(directory_.path() + "/step-00000020/rank-00001.safetensors");
  run_ranks(3, [&](const Participants& ranks) {
    Store store = make_store("run-2");
    EXPECT_EQ(store.open_latest(ranks)->step(), 10) << "rank " << ranks.rank;
  });
}

TEST_F(StoreTest, ARankThatCannotWriteFailsTheSaveOnAllRanks) {
  std::filesystem::create_directories(directory_.path());
  run_ranks(2, [&](const Participants& ranks) {
    Store store = make_store();
    RankPieces mine = make_pieces({.data = 2}, ranks.rank, 10, true);
    if (ranks.rank == 1) mine.pieces.erase(mine.pieces.begin());  // its part of "embedding"
    EXPECT_THAT(
        error_of(ExitCode::CheckpointNotWritten,
                 [&] { store.save({.step = 10, .pieces = mine.pieces, .state = "", .config = ""}, ranks); }),
        AllOf(HasSubstr("checkpoint of step 10 was not written"), HasSubstr("tensor \"embedding\": 60 of its 120 elements")));
  });
  EXPECT_TRUE(steps().empty());
}

TEST_F(StoreTest, AnElementStoredTwiceIsRefused) {
  run_ranks(2, [&](const Participants& ranks) {
    Store store = make_store();
    const RankPieces all = make_pieces({}, 0, 10, true);
    EXPECT_THAT(error_of(ExitCode::CheckpointNotWritten,
                         [&] { store.save({.step = 10, .pieces = all.pieces, .state = "", .config = ""}, ranks); }),
                HasSubstr("elements are stored twice, in rank-00000.safetensors and rank-00001.safetensors"));
  });
}

TEST_F(StoreTest, ARunIdThatCouldLeaveTheDirectoryIsRefused) {
  for (const char* run_id : {"", "..", "a/b", "a b"}) EXPECT_THROW(make_store(run_id), ConfigError) << run_id;
}

}  // namespace
}  // namespace trivet::checkpoint
