// Tests of the checkpoint directory: its lock, retention, broken steps and leftovers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "tests/checkpoint/participant_threads.h"
#include "tests/checkpoint/sample_tensors.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temporary_folder.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::support;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStore make_store(const std::string& run_id = "run-1", int64_t keep = 0) {
    return CheckpointStore(real_file_system(),
                           {.directory = directory_.path(), .run_id = run_id, .keep = keep, .log = Log(0, LogLevel::Error)});
  }
  void save(CheckpointStore& store, int64_t step) {
    const RankPieces mine = make_pieces({}, 0, step, true);
    store.save({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = ""}, {});
  }
  // Saves a step that was skipped, like all steps before it since `updates`.
  void save_skipped(CheckpointStore& store, int64_t step, int64_t updates) {
    const RankPieces mine = make_pieces({}, 0, updates, true);
    const RunState state{.steps = step, .updates = updates, .skipped_in_a_row = step - updates};
    store.save({.step = step, .pieces = mine.pieces, .state = to_text(state), .config = ""}, {});
  }
  // Saves a step of a run whose best step so far is `best`.
  void save_with_best(CheckpointStore& store, int64_t step, int64_t best) {
    const RankPieces mine = make_pieces({}, 0, step, true);
    RunState state{.steps = step, .updates = step};
    state.evaluations = EvaluationState{.step = step, .best_step = best, .best_loss = 2.5};
    store.save({.step = step, .pieces = mine.pieces, .state = to_text(state), .config = ""}, {});
  }
  std::string best() const {
    std::ifstream file(directory_.at("best"));
    std::string name;
    return std::getline(file, name) ? name : "none";
  }
  std::vector<int64_t> steps() {
    std::vector<int64_t> result;
    for (const StepDirectory& step : list_steps(real_file_system(), directory_.path())) result.push_back(step.step);
    return result;
  }
  std::string shard_of(int64_t step) const { return directory_.at(step_directory_name(step) + "/rank-00000.safetensors"); }
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

  test::TemporaryFolder directory_;
};

TEST_F(CheckpointStoreTest, ASecondJobIsRefusedAndToldWhoHoldsTheDirectory) {
  CheckpointStore first = make_store("run-1");
  first.acquire({});
  CheckpointStore second = make_store("run-2");
  EXPECT_THAT(error_of(ExitCode::CheckpointNotWritten, [&] { second.acquire({}); }),
              AllOf(HasSubstr(directory_.path()), HasSubstr("run run-1 (process " + std::to_string(::getpid())),
                    HasSubstr("choose another checkpoint.directory")));
}

TEST_F(CheckpointStoreTest, TheLockOfAJobThatEndedIsTaken) {
  { make_store("run-1").acquire({}); }
  CheckpointStore second = make_store("run-2");
  EXPECT_NO_THROW(second.acquire({}));
}

// Time passes only in sleep(), and an event happens at a given moment.
class EventfulClock final : public Clock {
 public:
  EventfulClock(milliseconds moment, std::function<void()> event) : moment_(moment), event_(std::move(event)) {}
  nanoseconds now() const override { return now_; }
  int64_t unix_seconds() const override { return 0; }
  void sleep(nanoseconds duration) const override {
    if (now_ < moment_ && now_ + duration >= moment_) event_();
    now_ += duration;
  }

 private:
  nanoseconds moment_;
  std::function<void()> event_;
  mutable nanoseconds now_{0};
};

// The job that a restart replaces may still be dying.
TEST_F(CheckpointStoreTest, TheLockOfAJobThatEndsInTimeIsWaitedFor) {
  std::unique_ptr<CheckpointStore> first(new CheckpointStore(make_store("run-1")));
  first->acquire({});
  const EventfulClock clock(milliseconds(1900), [&] { first.reset(); });
  CheckpointStore second(real_file_system(), {.directory = directory_.path(),
                                              .run_id = "run-2",
                                              .lock_patience = milliseconds(2000),
                                              .log = Log(0, LogLevel::Error),
                                              .clock = &clock});
  EXPECT_NO_THROW(second.acquire({}));
  EXPECT_THAT(second.warnings(), ElementsAre(AllOf(HasSubstr("checkpoints of run run-1 (process "),
                                                   HasSubstr("are being written here; waiting up to 2 s for it to end"))));
  EXPECT_LT(clock.now(), milliseconds(2000));
}

TEST_F(CheckpointStoreTest, TheLockOfAJobThatGoesOnIsWaitedForNoLongerThanItsTime) {
  CheckpointStore first = make_store("run-1");
  first.acquire({});
  const EventfulClock clock(milliseconds(0), [] {});
  CheckpointStore second(real_file_system(), {.directory = directory_.path(),
                                              .run_id = "run-2",
                                              .lock_patience = milliseconds(2000),
                                              .log = Log(0, LogLevel::Error),
                                              .clock = &clock});
  EXPECT_THROW(second.acquire({}), CheckpointError);
  EXPECT_GE(clock.now(), milliseconds(2000));
  EXPECT_LT(clock.now(), milliseconds(2200));
}

// The second start of a job takes the directory from the first, which was stopped and then goes on. A start of another job, and
// one that is not later, may not; nor may anybody while the holder shows that it lives.
TEST_F(CheckpointStoreTest, ALaterStartOfTheJobTakesOverALockWhoseLeaseHasLapsed) {
  const auto start_of = [&](const std::string& job, int64_t number) {
    return CheckpointStore(real_file_system(), {.directory = directory_.path(),
                                                .run_id = fmt::format("run-{}-{}", job, number),
                                                .job = job,
                                                .start_of_job = number,
                                                .log = Log(0, LogLevel::Error)});
  };
  const auto stop_holder = [&] {  // until it marks the file again, at most a second later
    const std::string lock = directory_.at(".lock");
    std::filesystem::last_write_time(lock, std::filesystem::last_write_time(lock) - 2 * kLockLease);
  };
  CheckpointStore first = start_of("a", 0), second = start_of("a", 1);
  const auto refusal_of = [&](CheckpointStore&& start) {
    try {
      start.acquire({});
    } catch (const CheckpointError& error) {
      return error.exit_code();
    }
    return ExitCode::Done;
  };
  save(first, 10);
  // A launcher starts a job again after Rendezvous, and not after CheckpointNotWritten: what holds the lock ends by itself only
  // if it is the start before.
  for (const auto& [job, number, code] :
       {std::tuple("a", 1, ExitCode::Rendezvous), std::tuple("a", 9, ExitCode::Rendezvous),
        std::tuple("a", 0, ExitCode::CheckpointNotWritten), std::tuple("b", 1, ExitCode::CheckpointNotWritten),
        std::tuple("", 1, ExitCode::CheckpointNotWritten)})
    EXPECT_EQ(refusal_of(start_of(job, number)), code) << job << number;
  std::filesystem::create_directory(directory_.at(".tmp-step-00000020-run-a-0"));  // which the first was about to commit
  for (const auto& [job, number] : {std::pair("b", 1), std::pair("a", 0), std::pair("", 1)}) {
    stop_holder();
    EXPECT_THROW(start_of(job, number).acquire({}), CheckpointError) << job << number;
  }
  stop_holder();
  second.acquire({});
  EXPECT_THAT(second.warnings(), ElementsAre(AllOf(HasSubstr("run run-a-0 (process "), HasSubstr("takes the directory over"))));
  EXPECT_FALSE(std::filesystem::exists(directory_.at(".tmp-step-00000020-run-a-0")));
  save(second, 20);
  try {
    save(first, 30);
    ADD_FAILURE() << "the first start has written";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("a later start of this job has taken the directory over; this one writes nothing more"));
  }
  EXPECT_THAT(steps(), ElementsAre(10, 20));
}

TEST_F(CheckpointStoreTest, AllRanksAreToldOfTheLock) {
  CheckpointStore first = make_store("run-1");
  first.acquire({});
  std::atomic<int> refused = 0;
  run_ranks(3, [&](const Participants& ranks) {
    CheckpointStore second = make_store("run-2");
    EXPECT_THROW(second.acquire(ranks), CheckpointError);
    ++refused;
  });
  EXPECT_EQ(refused, 3);
}

TEST_F(CheckpointStoreTest, RetentionKeepsTheNewestAndNeverLaterSteps) {
  CheckpointStore store = make_store("run-1", 2);
  for (int64_t step : {10, 20, 30, 40}) save(store, step);
  EXPECT_THAT(steps(), ElementsAre(30, 40));
  save(store, 35);
  EXPECT_THAT(steps(), ElementsAre(30, 35, 40));
  EXPECT_THAT(store.warnings(), ElementsAre(HasSubstr("step-00000040 is later than step 35, which was just saved")));
}

TEST_F(CheckpointStoreTest, StepsSavedWhileSkippingNeverDisplaceCleanOnes) {
  CheckpointStore store = make_store("run-1", 2);
  for (int64_t step : {10, 20}) save(store, step);
  for (int64_t step : {21, 22, 23, 24}) save_skipped(store, step, 20);
  EXPECT_THAT(steps(), ElementsAre(10, 20, 24));
}

TEST_F(CheckpointStoreTest, RetentionKnowsTheStepsOfEarlierRuns) {
  {
    CheckpointStore store = make_store("run-1", 2);
    for (int64_t step : {10, 20}) save(store, step);
    save_skipped(store, 21, 20);
  }
  CheckpointStore store = make_store("run-2", 1);
  save_skipped(store, 22, 20);
  EXPECT_THAT(steps(), ElementsAre(10, 20, 22)) << "20 is clean, and 10 is what it was trained from";
  save(store, 30);
  EXPECT_THAT(steps(), ElementsAre(20, 30));
}

TEST_F(CheckpointStoreTest, ADamagedStepDoesNotCountAsOneThatIsKept) {
  {
    CheckpointStore store = make_store("run-1", 2);
    for (int64_t step : {10, 20}) save(store, step);
  }
  std::filesystem::resize_file(directory_.at("step-00000020/manifest.json"), 100);
  CheckpointStore store = make_store("run-2", 2);
  save(store, 30);
  EXPECT_THAT(steps(), ElementsAre(10, 20, 30));
}

// All ranks throw the same text, not only the rank that holds the value, and nothing of the step is left.
TEST_F(CheckpointStoreTest, WeightsThatAreNotFiniteAreNotSavedAndEveryRankSaysWhich) {
  {
    CheckpointStore store = make_store();
    save(store, 10);
  }
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF})
    run_ranks(3, [&](const Participants& ranks) {
      CheckpointStore store = make_store();
      RankPieces mine = make_pieces({.data = 3}, ranks.rank, 20, true);
      Piece& norm = mine.pieces[3];
      ASSERT_EQ(norm.name, "blocks.0.norm");
      if (ranks.rank > 0) norm.data.as<float>()[0] = bad;
      try {
        store.save({.step = 20, .pieces = mine.pieces, .state = sample_state(20), .config = ""}, ranks);
        FAIL() << "rank " << ranks.rank;
      } catch (const NumericsError& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::Numerics);
        EXPECT_EQ(error.what(), fmt::format("step 20 is not saved: blocks.0.norm on rank 1 is no longer finite: element 3 "
                                            "is {}; resume from an earlier step with a lower optimizer.params.lr",
                                            bad));
      }
    });
  EXPECT_THAT(steps(), ElementsAre(10));
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp")) << entry.path();
}

// A rank that cannot write is forgiven, lost weights are not. All ranks report the worse of the two.
TEST_F(CheckpointStoreTest, LostWeightsOnOneRankAreReportedThoughAnotherCannotWrite) {
  std::filesystem::create_directories(directory_.path());
  run_ranks(2, [&](const Participants& ranks) {
    FaultyFileSystem full(real_file_system(), ranks.rank == 0 ? Fault::None : Fault::DiskFull, 1);
    CheckpointStore store(ranks.rank == 0 ? real_file_system() : full,
                          {.directory = directory_.path(), .run_id = "run", .log = Log(0, LogLevel::Error)});
    RankPieces mine = make_pieces({.data = 2}, ranks.rank, 20, true);
    if (ranks.rank == 0) mine.pieces[0].data.as<float>()[1] = std::nanf("");
    EXPECT_THROW(store.save({.step = 20, .pieces = mine.pieces, .state = sample_state(20), .config = ""}, ranks),
                 NumericsError);
  });
}

TEST_F(CheckpointStoreTest, AStateOrConfigThatCouldNotBeReadBackIsADefectOfTheCaller) {
  CheckpointStore store = make_store();
  const RankPieces mine = make_pieces({}, 0, 1, true);
  for (const std::string& state : {std::string("{}"), sample_state(2)})
    EXPECT_THROW(store.save({.step = 1, .pieces = mine.pieces, .state = state, .config = ""}, {}), std::logic_error);
  for (const std::string config : {"[]", "{", "steps: 8"})
    EXPECT_THROW(store.save({.step = 1, .pieces = mine.pieces, .state = sample_state(1), .config = config}, {}),
                 std::logic_error);
  EXPECT_TRUE(steps().empty());
}

// A restarted job that took a renamed step for a later one would resume from it each time.
TEST_F(CheckpointStoreTest, ARenamedStepIsPassedOverAndSetAside) {
  CheckpointStore store = make_store();
  for (int64_t step : {8, 9}) save(store, step);
  std::filesystem::rename(directory_.at("step-00000009"), directory_.at("step-00000999"));
  EXPECT_EQ(store.open_latest({})->step(), 8);
  EXPECT_THAT(store.warnings(), ElementsAre(HasSubstr("step-00000999/manifest.json: it is the manifest of step 9, but the "
                                                      "directory is named step 999; rename the directory back to "
                                                      "step-00000009; trying the step before it")));
  std::filesystem::copy(directory_.at("step-00000008"), directory_.at("step-00000888"));
  EXPECT_THAT(error_of(ExitCode::CheckpointCorrupt, [&] { LoadedStep(real_file_system(), directory_.at("step-00000888")); }),
              HasSubstr("step-00000008 is there, too, so this is a copy: take it away"));
  std::filesystem::remove_all(directory_.at("step-00000888"));
  save(store, 9);
  EXPECT_THAT(steps(), ElementsAre(8, 9));
  EXPECT_EQ(store.open_latest({})->step(), 9);
}

TEST_F(CheckpointStoreTest, ADirectoryThatCannotBeListedIsNamedToWhoSavesAndToWhoReads) {
  {
    CheckpointStore store = make_store();
    save(store, 10);
  }
  int saving = 0, reading = 0;
  for (int64_t call = 1; call < 20; ++call) {
    FaultyFileSystem faulty(real_file_system(), Fault::IoError, call);
    CheckpointStore store(faulty, {.directory = directory_.path(), .run_id = "run", .log = Log(0, LogLevel::Error)});
    try {
      store.acquire({});
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::CheckpointNotWritten);
      EXPECT_THAT(error.what(), HasSubstr(directory_.path()));
      saving += std::string_view(error.what()).starts_with("list ");
    }
    FaultyFileSystem unreadable(real_file_system(), Fault::IoError, call);
    try {
      open_newest(unreadable, directory_.path());
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::CheckpointCorrupt);
      EXPECT_THAT(error.what(), HasSubstr(directory_.path()));
      reading += std::string_view(error.what()).find("cannot be listed") != std::string_view::npos;
    }
  }
  EXPECT_GE(saving, 1);
  EXPECT_GE(reading, 1);
}

TEST_F(CheckpointStoreTest, AResumeFromADirectoryThatCannotBeListedIsExitCode15) {
  {
    CheckpointStore store = make_store();
    save(store, 10);
  }
  FaultyFileSystem faulty(real_file_system(), Fault::IoError, 2);  // the first call asks whether the directory exists
  CheckpointStore store(faulty, {.directory = directory_.path(), .run_id = "run", .log = Log(0, LogLevel::Error)});
  EXPECT_EQ(error_of(ExitCode::CheckpointCorrupt, [&] { store.open_latest({}); }),
            fmt::format("the checkpoints of \"{0}\" cannot be listed: list {0}: Input/output error", directory_.path()));
}

// The message says what is true of the previous step at that moment.
TEST_F(CheckpointStoreTest, AFailedSaveSaysWhetherTheStepBeforeIsStillThere) {
  CheckpointStore store = make_store();
  save(store, 10);
  RankPieces mine = make_pieces({}, 0, 20, true);
  mine.pieces.pop_back();
  mine.pieces.push_back(mine.pieces[0]);  // "embedding" twice: cannot be committed
  const auto error_of_save = [&] {
    return error_of(ExitCode::CheckpointNotWritten,
                    [&] { store.save({.step = 20, .pieces = mine.pieces, .state = sample_state(20), .config = ""}, {}); });
  };
  EXPECT_THAT(error_of_save(), EndsWith("; step 10 is intact"));
  std::filesystem::remove(shard_of(10));
  EXPECT_THAT(error_of_save(), HasSubstr("; step 10, which was saved before, cannot be read any more: open "));
  std::filesystem::remove_all(directory_.path());
  EXPECT_THAT(error_of_save(),
              AllOf(Not(HasSubstr("intact")), HasSubstr("cannot be read any more: "), HasSubstr("there is no step 10")));
}

TEST_F(CheckpointStoreTest, ABrokenNewestStepFallsBackToTheOneBeforeAndSaysSo) {
  CheckpointStore store = make_store();
  for (int64_t step : {10, 20}) save(store, step);
  flip_last_bit(shard_of(20));
  const auto step = store.open_latest({});
  ASSERT_TRUE(step);
  EXPECT_EQ(step->step(), 10);
  expect_values(*step);
  EXPECT_THAT(store.warnings(), ElementsAre(AllOf(HasSubstr("step-00000020/rank-00000.safetensors: block 0 (tensor \""),
                                                  HasSubstr("crc32c "), HasSubstr("; trying the step before it"))));
}

TEST_F(CheckpointStoreTest, TheNextSaveSetsABrokenStepAside) {
  CheckpointStore store = make_store("run-1", 1);
  for (int64_t step : {10, 20}) save(store, step);
  save(store, 30);
  std::filesystem::remove_all(directory_.at("step-00000020"));
  flip_last_bit(shard_of(30));
  EXPECT_THAT(error_of(ExitCode::CheckpointCorrupt, [&] { store.open_latest({}); }), HasSubstr("no step is valid"));
  save(store, 15);
  EXPECT_THAT(steps(), ElementsAre(15));
  EXPECT_TRUE(std::filesystem::exists(directory_.at("broken-step-00000030")));
}

TEST_F(CheckpointStoreTest, ABrokenStepIsKeptWhenItsNumberIsSavedAgain) {
  CheckpointStore store = make_store();
  for (int64_t step : {10, 20}) save(store, step);
  flip_last_bit(shard_of(20));
  EXPECT_EQ(store.open_latest({})->step(), 10);
  save(store, 20);
  EXPECT_EQ(store.open_latest({})->step(), 20);
  EXPECT_TRUE(std::filesystem::exists(directory_.at("broken-step-00000020")));
}

TEST_F(CheckpointStoreTest, NoStepAtAllIsNotAnError) {
  CheckpointStore store = make_store();
  EXPECT_FALSE(store.open_latest({}));
  EXPECT_THAT(error_of(ExitCode::Usage, [&] { open_newest(real_file_system(), directory_.path()); }),
              HasSubstr("there is no checkpoint here"));
}

TEST_F(CheckpointStoreTest, AMissingStepNamesThoseThereAre) {
  CheckpointStore store = make_store();
  for (int64_t step : {10, 20}) save(store, step);
  EXPECT_EQ(store.open(10).step(), 10);
  EXPECT_THAT(error_of(ExitCode::Usage, [&] { store.open(15); }), HasSubstr("there is no step 15; there are: 10, 20"));
}

TEST_F(CheckpointStoreTest, WhoeverReadsTheNewestStepHearsWhichDamagedOnesWerePassedOver) {
  CheckpointStore store = make_store();
  for (int64_t step : {10, 20, 30}) save(store, step);
  FileSystem& files = real_file_system();
  std::vector<std::string> passed_over;
  EXPECT_EQ(open_path(files, directory_.path(), StepFiles::All, &passed_over).step(), 30);
  EXPECT_THAT(passed_over, ElementsAre());
  const std::filesystem::path root = directory_.path();
  std::ofstream(root / "step-00000030" / kManifestName) << "{";
  std::filesystem::resize_file(root / "step-00000020" / kManifestName, 100);
  EXPECT_EQ(open_path(files, directory_.path(), StepFiles::All, &passed_over).step(), 10);
  EXPECT_THAT(passed_over, ElementsAre(testing::StartsWith("step-00000030 is damaged, so the step before it is used"),
                                       testing::StartsWith("step-00000020 is damaged")));
}

TEST_F(CheckpointStoreTest, LeftoversOfAKilledJobAreRemovedAndADisplacedStepIsAdopted) {
  {
    CheckpointStore store = make_store();
    for (int64_t step : {10, 20}) save(store, step);
  }
  const std::filesystem::path root = directory_.path();
  std::filesystem::create_directories(root / ".tmp-step-00000030-run-0" / "deep");
  std::filesystem::create_directory(root / ".trash-step-00000001");
  std::ofstream(root / ".tmp-latest") << "x";
  for (const char* name : {".tmp-work", ".trash-list", ".tmp-step-one"}) std::ofstream(root / name) << "of another program";
  std::filesystem::rename(root / "step-00000020", root / ".old-step-00000020");
  EXPECT_EQ(open_newest(real_file_system(), directory_.path()).step(), 20);  // even before anything is tidied up

  CheckpointStore store = make_store("run-2");
  store.acquire({});
  EXPECT_THAT(steps(), ElementsAre(10, 20));
  std::set<std::string> hidden;
  for (const auto& entry : std::filesystem::directory_iterator(root))
    if (const std::string name = entry.path().filename(); name.starts_with(".t") || name.starts_with(".old"))
      hidden.insert(name);
  EXPECT_THAT(hidden, ElementsAre(".tmp-step-one", ".tmp-work", ".trash-list"));
}

TEST_F(CheckpointStoreTest, ADamagedStepOnOneRankIsPassedOverByAll) {
  for (int64_t step : {10, 20})
    run_ranks(2, [&](const Participants& ranks) {
      CheckpointStore store = make_store();
      const RankPieces mine = make_pieces({.data = 2}, ranks.rank, step, true);
      store.save({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = ""}, ranks);
    });
  flip_last_bit(directory_.at("step-00000020/rank-00001.safetensors"));
  run_ranks(3, [&](const Participants& ranks) {
    CheckpointStore store = make_store("run-2");
    EXPECT_EQ(store.open_latest(ranks)->step(), 10) << "rank " << ranks.rank;
  });
}

TEST_F(CheckpointStoreTest, ARankThatCannotWriteFailsTheSaveOnAllRanks) {
  std::filesystem::create_directories(directory_.path());
  run_ranks(2, [&](const Participants& ranks) {
    CheckpointStore store = make_store();
    RankPieces mine = make_pieces({.data = 2}, ranks.rank, 10, true);
    if (ranks.rank == 1) mine.pieces.erase(mine.pieces.begin());  // its part of "embedding"
    EXPECT_THAT(
        error_of(ExitCode::CheckpointNotWritten,
                 [&] { store.save({.step = 10, .pieces = mine.pieces, .state = sample_state(10), .config = ""}, ranks); }),
        AllOf(HasSubstr("checkpoint of step 10 was not written"), HasSubstr("tensor \"embedding\": 60 of its 120 elements")));
  });
  EXPECT_TRUE(steps().empty());
}

TEST_F(CheckpointStoreTest, AnElementStoredTwiceIsRefused) {
  run_ranks(2, [&](const Participants& ranks) {
    CheckpointStore store = make_store();
    const RankPieces all = make_pieces({}, 0, 10, true);
    EXPECT_THAT(
        error_of(ExitCode::CheckpointNotWritten,
                 [&] { store.save({.step = 10, .pieces = all.pieces, .state = sample_state(10), .config = ""}, ranks); }),
        HasSubstr("elements are stored twice, in rank-00000.safetensors and rank-00001.safetensors"));
  });
}

TEST_F(CheckpointStoreTest, ARunIdThatCouldLeaveTheDirectoryIsRefused) {
  for (const char* run_id : {"", "..", "a/b", "a b"}) EXPECT_THROW(make_store(run_id), ConfigError) << run_id;
}

TEST_F(CheckpointStoreTest, TheBestStepIsNamedAndNeverRemoved) {
  CheckpointStore store = make_store("run-1", 1);
  save_with_best(store, 10, 10);
  EXPECT_EQ(best(), "step-00000010");
  for (const int64_t step : {20, 30, 40}) save_with_best(store, step, 10);
  EXPECT_THAT(steps(), ElementsAre(10, 30, 40));
  EXPECT_EQ(best(), "step-00000010");
  save_with_best(store, 50, 50);
  EXPECT_THAT(steps(), ElementsAre(40, 50));
  EXPECT_EQ(best(), "step-00000050");
}

// As it is when the disk was full for some time.
TEST_F(CheckpointStoreTest, TheBestStepStaysUntilABetterOneIsSaved) {
  CheckpointStore store = make_store("run-1", 1);
  save_with_best(store, 10, 10);
  for (const int64_t step : {20, 30, 40}) save_with_best(store, step, 15);
  EXPECT_THAT(steps(), ElementsAre(10, 30, 40));
  EXPECT_EQ(best(), "step-00000010");
  save_with_best(store, 50, 50);
  EXPECT_THAT(steps(), ElementsAre(40, 50));
  EXPECT_EQ(best(), "step-00000050");
}

// As it is after a resume from an earlier step, and when the run does not look for the best step any more.
TEST_F(CheckpointStoreTest, TheNameOfABestStepThatIsGoneGoesToo) {
  CheckpointStore store = make_store("run-1");
  save_with_best(store, 10, 10);
  save_with_best(store, 20, 5);
  EXPECT_EQ(best(), "none");
  save_with_best(store, 30, 10);
  EXPECT_EQ(best(), "step-00000010");
  save(store, 40);
  EXPECT_EQ(best(), "none");
}

TEST_F(CheckpointStoreTest, WhatOthersNamedBestStays) {
  CheckpointStore store = make_store("run-1");
  const std::filesystem::path place = directory_.at("best");
  std::filesystem::create_directories(place / "step-00000007");
  save(store, 10);
  EXPECT_TRUE(std::filesystem::exists(place / "step-00000007"));
  std::filesystem::remove_all(place);
  std::ofstream(place) << "my notes";
  save(store, 20);
  EXPECT_EQ(best(), "my notes");
}

TEST_F(CheckpointStoreTest, ANameOpensTheStepThatItNames) {
  CheckpointStore store = make_store("run-1");
  for (const int64_t step : {10, 20}) save_with_best(store, step, 10);
  FileSystem& files = real_file_system();
  EXPECT_EQ(open_path(files, directory_.at("best")).step(), 10);
  EXPECT_EQ(open_path(files, directory_.at("latest")).step(), 20);
  EXPECT_EQ(open_path(files, directory_.path()).step(), 20);
  EXPECT_EQ(open_path(files, directory_.at("step-00000010")).step(), 10);
}

}  // namespace
}  // namespace trivet::checkpoint
