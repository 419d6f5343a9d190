// Checkpoints on disk and, more often, in the memory of the hosts: what a job finds after it has lost some of them.
#include "engine/checkpoint/tiers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>

#include "engine/checkpoint/memory_room.h"
#include "engine/checkpoint/stored_pieces.h"
#include "tests/checkpoint/pretend_hosts.h"
#include "tests/checkpoint/sample_tensors.h"
#include "tests/support/faulty_file_system.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::support;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kOnDisk = "/shared/checkpoints";
constexpr const char* kInMemory = "/dev/shm/run";
constexpr int64_t kNoStep = -1;
const std::vector<SampleTensor> kTwoTensors{{"weight", DType::BFloat16, {64, 96}, 0}, {"bias", DType::Float32, {5}, -1}};

// Where a step is saved.
struct Save {
  int64_t step = 0;
  bool memory = true, disk = false;
};

// Hosts with a memory each, and a disk that they share.
class TwoTiers {
 public:
  explicit TwoTiers(int hosts, int ranks_per_host = 1) : ranks_per_host_(ranks_per_host) {
    for (int host = 0; host < hosts; ++host) lose_memory(host);
  }
  void lose_memory(int host) { memories_[host] = std::make_unique<MemoryFileSystem>(); }
  MemoryFileSystem& memory(int host) { return *memories_.at(host); }
  FileSystem& disk() { return *disk_; }
  void replace_disk() { disk_ = std::make_unique<MemoryFileSystem>(); }
  void save_on_disk_in(const std::string& directory) { directory_on_disk_ = directory; }
  // The directory in memory was removed, and another user has put one in its place.
  void take_place_in_memory() { in_place_ = false; }
  void set_faults(int host, FaultyFileSystem* files) { faulty_[host] = files; }

  using Body = std::function<void(const Tier& disk, const Tier& memory)>;
  // Each is a start with --resume, but for the first of a run.
  void run(const std::vector<int>& hosts, const Body& body, const std::string& run_id = "run", bool resumes = true) {
    std::vector<PretendHost> job;
    for (int host : hosts) {
      job.push_back({host, ranks_per_host_});
      create_directories(memory(host), kInMemory);
    }
    run_on_hosts(job, [&](const Participants& ranks, const JobHosts& of_job, int number) {
      const Log log(ranks.rank, LogLevel::Error);
      CheckpointStore disk_store(*disk_, {.directory = directory_on_disk_, .run_id = run_id, .hosts = of_job, .log = log});
      FileSystem& memory_files = faulty_[number] ? static_cast<FileSystem&>(*faulty_[number]) : memory(number);
      CheckpointStore memory_store(memory_files, {.directory = kInMemory,
                                                  .run_id = run_id,
                                                  .section = "checkpoint.memory",
                                                  .medium = Medium::Memory,
                                                  .replicas = std::min(1, of_job.count() - 1),
                                                  .hosts = of_job,
                                                  .is_in_place = [this] { return in_place_.load(); },
                                                  .log = log});
      const Tier on_disk{disk_store, ranks}, in_memory{memory_store, ranks};
      acquire(on_disk, in_memory, resumes);
      body(on_disk, in_memory);
    });
  }

  static std::optional<LoadedStep> open(const Tier& disk, const Tier& memory) {
    const RankPieces mine = make_pieces({.data = disk.ranks.size}, disk.ranks.rank, 0, false, kTwoTensors);
    return open_newest(disk, memory, [&](const Manifest& manifest) { return files_with(manifest, mine.pieces); });
  }
  static void save_to(const Tier& tier, int64_t step) {
    const RankPieces mine = make_pieces({.data = tier.ranks.size}, tier.ranks.rank, step, true, kTwoTensors);
    tier.store.save({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = ""}, tier.ranks);
  }

  void save(const std::vector<int>& hosts, const std::vector<Save>& saves, const std::string& run_id = "run") {
    run(
        hosts,
        [&](const Tier& disk, const Tier& memory) {
          open(disk, memory);
          for (const Save& one : saves) {
            if (one.memory) save_to(memory, one.step);
            if (one.disk) save_to(disk, one.step);
          }
        },
        run_id);
  }

  struct Found {
    int64_t step = kNoStep;
    bool in_memory = false;
    std::string warnings;  // of all ranks and both stores
    bool operator==(const Found& other) const { return step == other.step && in_memory == other.in_memory; }
  };
  // What a job opens. Every rank has compared the values that it reads.
  Found load(const std::vector<int>& hosts, const std::string& run_id = "run") {
    Found found;
    std::mutex mutex;
    run(
        hosts,
        [&](const Tier& disk, const Tier& memory) {
          const auto step = open(disk, memory);
          if (step) expect_mine(*step, disk.ranks);
          const std::scoped_lock lock(mutex);
          if (step) found.step = step->step(), found.in_memory = step->directory().starts_with(kInMemory);
          for (const CheckpointStore* store : {&disk.store, &memory.store})
            for (const std::string& warning : store->warnings()) found.warnings += warning + "\n";
        },
        run_id);
    return found;
  }
  std::string refusal(const std::vector<int>& hosts, const std::string& run_id) {
    try {
      load(hosts, run_id);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }

  // Gives a host's memory room for this many times what is in it now.
  void limit_memory(int host, double times) {
    memory(host).set_limit(static_cast<int64_t>(times * static_cast<double>(memory(host).used_bytes())));
  }

  std::vector<std::string> names(int host, const std::string& in = "") {
    std::vector<std::string> names;
    for (const DirectoryEntry& entry : memory(host).list(kInMemory + in))
      if (entry.name != ".disk") names.push_back(entry.name);
    return names;
  }
  // The file of a rank, in its last byte or in its header.
  enum class Where { Data, Header };
  void damage(FileSystem& files, const std::string& place, int64_t step, int rank, Where where = Where::Data) {
    const std::string path = fmt::format("{}/{}/rank-{:05}.safetensors", place, step_directory_name(step), rank);
    std::string bytes = read_text(files, path, 1 << 20);
    char& damaged = where == Where::Data ? bytes.back() : bytes[20];
    damaged = static_cast<char>(damaged ^ 1);
    write_text(files, path, bytes);
  }

 private:
  static void expect_mine(const LoadedStep& step, const Participants& ranks) {
    const RankPieces expected = make_pieces({.data = ranks.size}, ranks.rank, step.step(), true, kTwoTensors);
    const RankPieces read = make_pieces({.data = ranks.size}, ranks.rank, step.step(), false, kTwoTensors);
    step.read(read.pieces);
    EXPECT_EQ(read.memory, expected.memory) << "rank " << ranks.rank;
  }

  const int ranks_per_host_;
  std::string directory_on_disk_ = kOnDisk;
  std::atomic<bool> in_place_{true};
  std::unique_ptr<MemoryFileSystem> disk_ = std::make_unique<MemoryFileSystem>();
  std::map<int, std::unique_ptr<MemoryFileSystem>> memories_;
  std::array<FaultyFileSystem*, 8> faulty_{};
};

using Found = TwoTiers::Found;
const std::vector<Save> kThreeSteps{{1}, {2, true, true}, {3}};

TEST(Tiers, TheNewestStepOfEitherIsTaken) {
  TwoTiers tiers(3);
  tiers.save({0, 1, 2}, kThreeSteps);
  EXPECT_EQ(tiers.load({0, 1, 2}), (Found{3, true}));
  tiers.save({0, 1, 2}, {{4, false, true}});
  EXPECT_EQ(tiers.load({0, 1, 2}), (Found{4, false}));
}

TEST(Tiers, AStepInBothIsReadFromDisk) {
  TwoTiers tiers(2);
  tiers.save({0, 1}, {{1}, {2, true, true}});
  EXPECT_EQ(tiers.load({0, 1}), (Found{2, false}));
}

TEST(Tiers, MemoryHoldsTheNewestStepAlone) {
  TwoTiers tiers(2);
  tiers.save({0, 1}, kThreeSteps);
  for (const int host : {0, 1}) EXPECT_THAT(tiers.names(host), ElementsAre(".lock", "step-00000003"));
}

TEST(Tiers, TheMemoryOfAnyHostCanBeLost) {
  for (const int lost : {0, 1, 2}) {
    SCOPED_TRACE(lost);
    TwoTiers tiers(3);
    tiers.save({0, 1, 2}, kThreeSteps);
    tiers.lose_memory(lost);
    EXPECT_EQ(tiers.load({0, 1, 2}), (Found{3, true})) << "the host is back with nothing";
    std::vector<int> left{0, 1, 2};
    std::erase(left, lost);
    EXPECT_EQ(tiers.load(left), (Found{3, true})) << "the host is gone";
  }
}

TEST(Tiers, WhenAllMemoryIsLostThereIsTheDisk) {
  TwoTiers tiers(2);
  tiers.save({0, 1}, kThreeSteps);
  for (const int host : {0, 1}) tiers.lose_memory(host);
  EXPECT_EQ(tiers.load({0, 1}), (Found{2, false}));
}

TEST(Tiers, WhenTwoNeighboursAreLostThereIsTheDisk) {
  TwoTiers tiers(3);
  tiers.save({0, 1, 2}, kThreeSteps);
  for (const int host : {0, 1}) tiers.lose_memory(host);
  const Found found = tiers.load({0, 1, 2});
  EXPECT_EQ(found, (Found{2, false}));
  EXPECT_THAT(found.warnings, AllOf(HasSubstr("1 of 3 files of step 3 cannot be had"),
                                    HasSubstr("rank-00000.safetensors is on none of them"), HasSubstr("trying an older step")));
}

TEST(Tiers, BeforeAnythingIsOnDiskThereIsTheMemory) {
  TwoTiers tiers(2);
  tiers.save({0, 1}, {{1}}, "first");
  EXPECT_EQ(tiers.load({0, 1}, "second"), (Found{1, true}));
  tiers.save({0, 1}, {{2}, {3, true, true}}, "second");
  EXPECT_EQ(tiers.load({0, 1}, "third"), (Found{3, false}));
}

TEST(Tiers, MemoryIsTakenWhenTheNewestStepOnDiskIsDamaged) {
  TwoTiers tiers(2);
  tiers.save({0, 1}, {{1, false, true}, {2}, {3, false, true}});
  tiers.damage(tiers.disk(), kOnDisk, 3, 0);
  EXPECT_EQ(tiers.load({0, 1}), (Found{2, true}));
  tiers.damage(tiers.disk(), kOnDisk, 1, 0);
  EXPECT_EQ(tiers.load({0, 1}), (Found{2, true})) << "no step on disk is valid";
  for (const int host : {0, 1}) tiers.lose_memory(host);
  EXPECT_THROW(tiers.load({0, 1}), CheckpointError);
}

TEST(Tiers, ADamagedFileInMemoryIsReplacedByItsCopy) {
  TwoTiers tiers(3);
  tiers.save({0, 1, 2}, kThreeSteps);
  tiers.damage(tiers.memory(1), kInMemory, 3, 1);
  EXPECT_EQ(tiers.load({0, 1, 2}), (Found{3, true}));
  tiers.damage(tiers.memory(1), kInMemory, 3, 1);
  tiers.damage(tiers.memory(2), kInMemory, 3, 1);
  EXPECT_EQ(tiers.load({0, 1, 2}), (Found{2, false}));
}

TEST(Tiers, TheRanksOfAHostShareItsMemory) {
  for (const int lost : {0, 1, 2}) {
    SCOPED_TRACE(lost);
    TwoTiers tiers(3, 2);
    tiers.save({0, 1, 2}, kThreeSteps);
    EXPECT_THAT(tiers.names(1, "/step-00000003"),
                ElementsAre("manifest.json", "rank-00000.safetensors", "rank-00001.safetensors", "rank-00002.safetensors",
                            "rank-00003.safetensors"));
    tiers.lose_memory(lost);
    EXPECT_EQ(tiers.load({0, 1, 2}), (Found{3, true})) << "the host is back with nothing";
    std::vector<int> left{0, 1, 2};
    std::erase(left, lost);
    ASSERT_NO_THROW(tiers.save(left, {{4}}));
    EXPECT_EQ(tiers.load({0, 1, 2}), (Found{4, true}));
    for (const int host : {0, 1, 2}) EXPECT_THAT(tiers.names(host), ElementsAre(".lock", "step-00000004")) << "host " << host;
  }
}

// Host 2 cannot open the step with it.
TEST(Tiers, ADamagedCopyThatNoRankOfTheHostReadsIsReplacedToo) {
  TwoTiers tiers(3);
  tiers.save({0, 1, 2}, kThreeSteps);
  tiers.damage(tiers.memory(2), kInMemory, 3, 1, TwoTiers::Where::Header);
  EXPECT_EQ(tiers.load({0, 1, 2}), (Found{3, true}));
}

// Not the whole step: a large model does not fit into the memory of one host.
TEST(Tiers, AHostGetsOnlyTheFilesThatItsRanksRead) {
  TwoTiers tiers(4);
  tiers.save({0, 1, 2, 3}, kThreeSteps);
  tiers.lose_memory(3);
  EXPECT_EQ(tiers.load({0, 1, 2, 3}), (Found{3, true}));
  EXPECT_THAT(tiers.names(3, "/step-00000003"), ElementsAre("manifest.json", "rank-00003.safetensors"));
  EXPECT_THAT(tiers.names(2, "/step-00000003"),
              ElementsAre("manifest.json", "rank-00001.safetensors", "rank-00002.safetensors"));
}

// Host 1 has all files of step 9. The job has gone on from step 2 without them, so that steps 3 and 4 are of a later start.
TEST(Tiers, AHostThatComesBackDoesNotBringBackAnAbandonedStep) {
  TwoTiers tiers(2);
  tiers.save({0, 1}, {{2, true, true}, {9}});
  tiers.lose_memory(0);
  tiers.save({0}, {{3}, {4, false, true}});
  EXPECT_EQ(tiers.load({0, 1}), (Found{4, false}));
  tiers.save({0, 1}, {{5}});
  for (const int host : {0, 1}) EXPECT_THAT(tiers.names(host), ElementsAre(".lock", "step-00000005")) << "host " << host;
}

// Step 5 is in the memory of two hosts, and the third has a step from before: what counts is that all files of step 5 are
// there.
TEST(Tiers, TheNewestStepThatIsCompleteOnSomeHostsIsTaken) {
  for (const int absent : {0, 1, 2}) {
    SCOPED_TRACE(absent);
    TwoTiers tiers(3);
    tiers.save({0, 1, 2}, kThreeSteps);
    std::vector<int> others{0, 1, 2};
    std::erase(others, absent);
    tiers.save(others, {{5}});
    EXPECT_THAT(tiers.names(absent), Contains("step-00000003"));
    EXPECT_EQ(tiers.load({0, 1, 2}), (Found{5, true}));
    tiers.lose_memory(others[0]);
    EXPECT_EQ(tiers.load({0, 1, 2}), (Found{5, true})) << "the other host has the copies of its files";
  }
}

// The two hosts that have step 5 are lost. Step 3 is on the third, without the file of one rank.
TEST(Tiers, AStepThatIsNotCompleteOnTheHostsThatAreLeftIsPassedOver) {
  TwoTiers tiers(3);
  tiers.save({0, 1, 2}, kThreeSteps);
  tiers.save({0, 1}, {{5}});
  tiers.lose_memory(0);
  tiers.lose_memory(1);
  const Found found = tiers.load({0, 1, 2});
  EXPECT_EQ(found, (Found{2, false}));
  EXPECT_THAT(found.warnings, AllOf(HasSubstr("files of step 3 cannot be had"), HasSubstr("trying an older step")));
}

TEST(Tiers, AMemoryThatAnotherJobUsesIsNamed) {
  TwoTiers tiers(1);
  create_directories(tiers.memory(0), kInMemory);
  const LockAttempt lock = tiers.memory(0).lock(std::string(kInMemory) + "/.lock", "another job");
  try {
    tiers.load({0});
    FAIL() << "accepted";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::CheckpointNotWritten);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/dev/shm/run: checkpoints of another job are being written here"),
                                    HasSubstr("choose another checkpoint.memory.directory or end that run")));
  }
}

// Run "first" is lost before it has saved on disk. Its step is left on host 1, which the second run gets only when it resumes.
TEST(Tiers, StepsThatAnotherRunHasLeftInMemoryAreRefused) {
  TwoTiers tiers(3);
  const auto nothing = [](const Tier&, const Tier&) {};
  tiers.run(
      {0, 1}, [](const Tier&, const Tier& memory) { TwoTiers::save_to(memory, 4); }, "first", false);
  tiers.lose_memory(0);
  tiers.run({0, 2}, nothing, "second", false);
  EXPECT_THAT(tiers.refusal({0, 1}, "third"),
              AllOf(HasSubstr("checkpoint.memory.directory: \"/dev/shm/run\" holds steps of run first on h1, but"),
                    HasSubstr("checkpoint.directory are of run second"), HasSubstr("remove that directory on these hosts")));
  tiers.run(
      {0, 2}, [](const Tier&, const Tier& memory) { TwoTiers::save_to(memory, 1); }, "third");
  EXPECT_THAT(tiers.refusal({0, 1, 2}, "fourth"), HasSubstr("holds steps of run first on h1, but the steps"));
  tiers.lose_memory(1);
  EXPECT_EQ(tiers.load({0, 1, 2}, "fourth"), (Found{1, true}));
}

// Whoever has started without --resume by mistake adds it.
TEST(Tiers, AStartThatIsRefusedChangesNothingOnDisk) {
  TwoTiers tiers(1);
  tiers.run(
      {0}, [](const Tier&, const Tier& memory) { TwoTiers::save_to(memory, 4); }, "first", false);
  const std::string remembered = std::string(kOnDisk) + "/.origin", before = read_text(tiers.disk(), remembered, 100);
  EXPECT_EQ(before, "first 1\n");
  tiers.run(
      {0}, [](const Tier&, const Tier& memory) { EXPECT_EQ(memory.store.newest_step(), 4); }, "second", false);
  EXPECT_EQ(read_text(tiers.disk(), remembered, 100), before);
  EXPECT_EQ(tiers.load({0}, "third"), (Found{4, true}));
}

TEST(Tiers, ADiskThatKnowsOfNoRunTakesOverTheStepsInMemory) {
  TwoTiers tiers(2);
  tiers.save({0, 1}, kThreeSteps, "first");
  tiers.replace_disk();
  const Found taken_over = tiers.load({0, 1}, "second");
  EXPECT_EQ(taken_over, (Found{3, true}));
  EXPECT_THAT(taken_over.warnings,
              HasSubstr("\"/shared/checkpoints\" tells of no run; the one whose steps are in \"/dev/shm/run\" goes on"));
  tiers.save({0, 1}, {{4, false, true}}, "third");
  for (const int host : {0, 1}) tiers.lose_memory(host);
  tiers.run(
      {0, 1}, [](const Tier& disk, const Tier&) { EXPECT_EQ(disk.store.lineage().origin, "first"); }, "fourth");
}

// The start that has saved step 110 is lost with its host. What the next start saves is newer, although no step told it of that
// one.
TEST(Tiers, AStepOfAStartThatLeftNoOtherTraceIsOlderThanThoseOfTheNextStart) {
  TwoTiers tiers(3);
  tiers.save({0, 1, 2}, {{2, true, true}});
  tiers.save({0}, {{110}});
  tiers.save({1, 2}, {{105}});
  EXPECT_EQ(tiers.load({0, 1, 2}), (Found{105, true}));
}

// Step 9 on disk is damaged, so that the next start goes on from step 4. It saves step 5 in memory alone.
TEST(Tiers, ALaterStepOnDiskIsSetAsideWhenTheRunGoesOnFromMemory) {
  TwoTiers tiers(2);
  tiers.save({0, 1}, {{4, false, true}, {9, false, true}});
  tiers.damage(tiers.disk(), kOnDisk, 9, 0);
  tiers.save({0, 1}, {{5}});
  tiers.save({0, 1}, {{6, false, true}});
  const std::string nine = std::string(kOnDisk) + "/step-00000009", broken = std::string(kOnDisk) + "/broken-step-00000009";
  EXPECT_EQ(tiers.disk().kind(nine), EntryKind::Missing);
  EXPECT_EQ(tiers.disk().kind(broken), EntryKind::Directory);
  tiers.disk().rename(broken, nine);
  tiers.run({0, 1}, [](const Tier& disk, const Tier&) {
    EXPECT_EQ(disk.store.newest_found(), (StepAge{3, 6})) << "not the one with the greatest number";
  });
}

TEST(Tiers, HostsThatShareADirectoryInMemoryAreRefused) {
  MemoryFileSystem shared;
  create_directories(shared, kInMemory);
  const auto start = [&] {
    run_on_hosts({{0}, {1}}, [&](const Participants& ranks, const JobHosts& hosts, int) {
      CheckpointStore store(shared, {.directory = kInMemory,
                                     .run_id = "run",
                                     .section = "checkpoint.memory",
                                     .medium = Medium::Memory,
                                     .hosts = hosts,
                                     .log = Log(ranks.rank, LogLevel::Error)});
      store.acquire(ranks);
    });
  };
  try {
    start();
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("checkpoint.memory.directory: \"/dev/shm/run\" is the same directory on hosts h0 and h1"));
  }
}

// It would get another mode.
TEST(Tiers, ADirectoryInMemoryThatHasVanishedIsNotMadeAgain) {
  MemoryFileSystem memory;
  CheckpointStore store(memory, {.directory = kInMemory, .run_id = "run", .section = "memory", .medium = Medium::Memory});
  EXPECT_THROW(store.acquire({}), CheckpointError);
  EXPECT_EQ(memory.kind(kInMemory), EntryKind::Missing);
}

TEST(Tiers, NothingIsLeftInMemoryAtTheEnd) {
  TwoTiers tiers(2);
  tiers.run({0, 1}, [](const Tier&, const Tier& memory) {
    TwoTiers::save_to(memory, 1);
    memory.store.remove_everything(memory.ranks);
  });
  for (const int host : {0, 1}) EXPECT_EQ(tiers.memory(host).kind(kInMemory), EntryKind::Missing) << "host " << host;
  write_text(tiers.memory(0), "/note", "");
  tiers.run({0, 1}, [&](const Tier&, const Tier& memory) {
    TwoTiers::save_to(memory, 1);
    if (memory.ranks.rank == 0) write_text(tiers.memory(0), std::string(kInMemory) + "/mine", "");
    memory.store.remove_everything(memory.ranks);
  });
  EXPECT_THAT(tiers.names(0), ElementsAre("mine")) << "what is not of the store stays";
  EXPECT_EQ(tiers.memory(0).kind(std::string(kInMemory) + "/.disk"), EntryKind::Missing);
}

TEST(Tiers, NothingIsDoneInADirectoryThatHasTakenThePlaceOfTheRunsOwn) {
  TwoTiers tiers(1);
  tiers.run({0}, [&](const Tier&, const Tier& memory) {
    TwoTiers::save_to(memory, 1);
    tiers.take_place_in_memory();
    try {
      TwoTiers::save_to(memory, 2);
      FAIL() << "saved";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("find the directory that this run has made, /dev/shm/run: No such file"));
    }
    EXPECT_THAT(memory.store.warnings(), IsEmpty()) << "the error says it, in every step";
    memory.store.remove_everything(memory.ranks);
  });
  EXPECT_THAT(tiers.names(0), ElementsAre(".lock", "step-00000001"));
}

// Somebody removes it just after the run has asked whether it is there, for the `call`-th time.
TEST(Tiers, OnlyASaveSaysThatADirectoryInMemoryHasVanished) {
  for (int call = 1; call <= 4; ++call) {
    SCOPED_TRACE(call);
    MemoryFileSystem memory;
    create_directories(memory, kInMemory);
    int calls = 0;
    const auto vanishes = [&] {
      const bool is_there = memory.kind(kInMemory) != EntryKind::Missing;
      if (++calls == call) remove_tree(memory, kInMemory);
      return is_there;
    };
    CheckpointStore store(memory, {.directory = kInMemory,
                                   .run_id = "run",
                                   .section = "memory",
                                   .medium = Medium::Memory,
                                   .is_in_place = vanishes,
                                   .log = Log(0, LogLevel::Error)});
    EXPECT_THROW(for (const int64_t step : {1, 2}) TwoTiers::save_to({store, {}}, step), CheckpointError);
    EXPECT_THAT(store.warnings(), IsEmpty());
  }
}

// As after `cp -r checkpoints others` and --resume with a config in which only checkpoint.directory differs.
TEST(Tiers, StepsOfTheRunOfAnotherDirectoryAreRefused) {
  TwoTiers tiers(2);
  tiers.save({0, 1}, kThreeSteps);
  create_directories(tiers.disk(), "/shared/others");
  write_text(tiers.disk(), "/shared/others/.origin", read_text(tiers.disk(), std::string(kOnDisk) + "/.origin", 100));
  tiers.save_on_disk_in("/shared/others");
  tiers.lose_memory(0);
  EXPECT_THAT(tiers.refusal({0, 1}, "copy"),
              HasSubstr("checkpoint.memory.directory: \"/dev/shm/run\" holds steps of the run whose checkpoint.directory is "
                        "\"/shared/checkpoints\", and this one's is \"/shared/others\"; give each run a directory of its own"));
  remove_tree(tiers.disk(), kOnDisk);
  const Found found = tiers.load({0, 1}, "moved");
  EXPECT_EQ(found, (Found{3, true}));
  EXPECT_THAT(found.warnings, HasSubstr("\"/shared/checkpoints\" is not there any more; the run whose steps are in "
                                        "\"/dev/shm/run\" goes on in \"/shared/others\""));
  tiers.save({0, 1}, {{4}}, "moved");
  tiers.save_on_disk_in(kOnDisk);
  EXPECT_THAT(tiers.refusal({0, 1}, "back"), HasSubstr("checkpoint.directory is \"/shared/others\""));
}

// One host has a disk that was used by another run.
TEST(Tiers, AStartHasANumberOfItsOwnRun) {
  std::array<MemoryFileSystem, 3> disks;
  for (const auto& [host, text] : {std::pair{0, "other 9\n"}, {1, "run 4\n"}, {2, "run 5\n"}}) {
    create_directories(disks[host], kOnDisk);
    write_text(disks[host], std::string(kOnDisk) + "/.origin", text);
  }
  run_on_hosts({{0}, {1}, {2}}, [&](const Participants& ranks, const JobHosts& hosts, int number) {
    const StoreDirectory place(
        disks[number],
        {.directory = kOnDisk, .run_id = "new", .replicas = 1, .hosts = hosts, .log = Log(ranks.rank, LogLevel::Error)});
    EXPECT_EQ(remembered_lineage(place, ranks, "run").start, 5);
    EXPECT_EQ(remembered_lineage(place, ranks, "").start, 9) << "of the first host's run";
  });
}

TEST(Tiers, WithoutRoomForACopyTheStepOnDiskIsTaken) {
  TwoTiers tiers(2);
  tiers.save({0, 1}, kThreeSteps);
  tiers.lose_memory(1);
  tiers.memory(1).set_limit(6000);
  const Found found = tiers.load({0, 1});
  EXPECT_EQ(found, (Found{2, false}));
  EXPECT_THAT(found.warnings, HasSubstr("trying an older step"));
  EXPECT_THAT(tiers.names(0), ElementsAre(".lock", "step-00000003")) << "a later start may find the room";
  EXPECT_THAT(tiers.names(1), ElementsAre(".lock")) << "nothing is left half copied";
}

// It has room for two steps: the one that is kept, and the one that is being written.
TEST(Tiers, AHostThatComesBackWithAnOldStepHasRoomForNewOnes) {
  TwoTiers tiers(3);
  tiers.save({0, 1, 2}, kThreeSteps);
  tiers.limit_memory(2, 2.5);
  tiers.save({0, 1}, {{5}});
  ASSERT_NO_THROW(tiers.save({0, 1, 2}, {{6}, {7}}));
  for (const int host : {0, 1, 2}) EXPECT_THAT(tiers.names(host), ElementsAre(".lock", "step-00000007")) << "host " << host;
}

TEST(Tiers, AnOldStepGivesWayToTheFilesOfTheOneThatIsOpened) {
  TwoTiers tiers(3);
  tiers.save({0, 1, 2}, kThreeSteps);
  tiers.limit_memory(2, 1.5);
  tiers.save({0, 1}, {{5}});
  EXPECT_EQ(tiers.load({0, 1, 2}), (Found{5, true}));
  EXPECT_THAT(tiers.names(2), ElementsAre(".lock", "step-00000005"));
}

// If no step in memory can be opened after all, there is nothing that could give way.
TEST(Tiers, AnOldStepStaysIfANewerOneIsDamaged) {
  TwoTiers tiers(3);
  tiers.save({0, 1, 2}, {{1, false, true}, {3}});
  tiers.save({0, 1}, {{5}});
  for (const int host : {0, 1}) tiers.damage(tiers.memory(host), kInMemory, 5, 0);
  EXPECT_EQ(tiers.load({0, 1, 2}), (Found{1, false})) << "step 3 is on host 2 alone, which has no file of rank 0";
  EXPECT_THAT(tiers.names(2), Contains("step-00000003")) << "another host may bring the rest of it";
}

TEST(Tiers, StepsOlderThanTheOneOnDiskGiveWay) {
  TwoTiers tiers(2);
  tiers.save({0, 1}, {{3}, {4, false, true}});
  EXPECT_EQ(tiers.load({0, 1}), (Found{4, false}));
  for (const int host : {0, 1}) EXPECT_THAT(tiers.names(host), ElementsAre(".lock")) << "host " << host;
}

// A job was killed after it had committed step 4, and before it had removed step 3.
TEST(Tiers, AStepThatWasNotRemovedGivesWay) {
  TwoTiers tiers(2);
  tiers.save({0, 1}, kThreeSteps);
  for (const int host : {0, 1}) tiers.limit_memory(host, 2.5);
  const std::string third = std::string(kInMemory) + "/step-00000003", aside = std::string(kInMemory) + "/aside";
  for (const int host : {0, 1}) tiers.memory(host).rename(third, aside);
  tiers.save({0, 1}, {{4}});
  for (const int host : {0, 1}) tiers.memory(host).rename(aside, third);
  ASSERT_NO_THROW(tiers.save({0, 1}, {{5}}));
  for (const int host : {0, 1}) EXPECT_THAT(tiers.names(host), ElementsAre(".lock", "step-00000005")) << "host " << host;
}

// Step 3 is newer than what the job goes on from, but cannot be opened. The save that lacks the room makes it.
TEST(Tiers, AStepThatIsNotCompleteMakesRoomForTheSaveAfterNext) {
  TwoTiers tiers(3);
  tiers.save({0, 1, 2}, kThreeSteps);
  tiers.limit_memory(2, 1.5);
  for (const int host : {0, 1}) tiers.lose_memory(host);
  tiers.run({0, 1, 2}, [](const Tier& disk, const Tier& memory) {
    EXPECT_EQ(TwoTiers::open(disk, memory)->step(), 2);
    EXPECT_THROW(TwoTiers::save_to(memory, 5), CheckpointError);
    EXPECT_NO_THROW(TwoTiers::save_to(memory, 6));
  });
  EXPECT_EQ(tiers.load({0, 1, 2}), (Found{6, true}));
}

// Step 3 has all its files, but one is damaged.
TEST(Tiers, AStepThatIsDamagedMakesRoomForTheSaveAfterNext) {
  TwoTiers tiers(1);
  tiers.save({0}, {{2, true, true}, {3}});
  tiers.damage(tiers.memory(0), kInMemory, 3, 0);
  tiers.limit_memory(0, 1.5);
  tiers.run({0}, [](const Tier& disk, const Tier& memory) {
    EXPECT_EQ(TwoTiers::open(disk, memory)->step(), 2);
    try {
      TwoTiers::save_to(memory, 4);
      FAIL() << "saved";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), Not(HasSubstr("step 3 is intact")));
    }
    EXPECT_NO_THROW(TwoTiers::save_to(memory, 5));
  });
  EXPECT_EQ(tiers.load({0}), (Found{5, true}));
}

// What makes room is never the last step that was saved.
TEST(Tiers, ASaveThatFailsLeavesTheOneBeforeItOnAllHosts) {
  TwoTiers tiers(3);
  tiers.save({0, 1, 2}, kThreeSteps);
  tiers.limit_memory(1, 1.5);
  tiers.run({0, 1, 2}, [](const Tier& disk, const Tier& memory) {
    TwoTiers::open(disk, memory);
    EXPECT_THROW(TwoTiers::save_to(memory, 4), CheckpointError);
  });
  for (const int host : {0, 1, 2}) EXPECT_THAT(tiers.names(host), ElementsAre(".lock", "step-00000003")) << "host " << host;
  EXPECT_EQ(tiers.load({0, 1, 2}), (Found{3, true}));
}

// Also when the other hosts have committed the step.
TEST(Tiers, AnErrorInAnyCallOfASaveLeavesTheOneBeforeItOnAllHosts) {
  int failures = 0;
  for (int64_t call = 1;; ++call) {
    SCOPED_TRACE(call);
    TwoTiers tiers(3);
    FaultyFileSystem files(tiers.memory(2), Fault::IoError, call);
    tiers.set_faults(2, &files);
    std::atomic<bool> failed = false;
    try {
      tiers.run({0, 1, 2}, [&](const Tier&, const Tier& memory) {
        TwoTiers::save_to(memory, 3);
        try {
          TwoTiers::save_to(memory, 4);
        } catch (const CheckpointError&) {
          failed = true;
        }
      });
    } catch (const CheckpointError&) {  // before step 3 was saved
    }
    tiers.set_faults(2, nullptr);
    if (files.calls() < call) break;
    if (!failed) continue;
    ++failures;
    for (const int host : {0, 1, 2}) ASSERT_THAT(tiers.names(host), Contains("step-00000003")) << "host " << host;
  }
  EXPECT_GT(failures, 10);
}

TEST(MemoryRoom, CountsTwoStepsOfAHostsOwnFilesAndOfThoseThatItCopies) {
  run_on_hosts({{0, 2}, {1, 1}, {2, 1}}, [&](const Participants& ranks, const JobHosts& hosts, int number) {
    const auto rooms = gather_room(100 * (ranks.rank + 1), hosts.leads() ? 1000 + number : 0, ranks, hosts, 1);
    ASSERT_EQ(rooms.size(), 3u);
    EXPECT_EQ(rooms[0].needed, 2 * (100 + 200 + 400));
    EXPECT_EQ(rooms[1].needed, 2 * (300 + 100 + 200));
    EXPECT_EQ(rooms[2].needed, 2 * (400 + 300));
    for (int host = 0; host < 3; ++host) EXPECT_EQ(rooms[host].available, 1000 + host);
  });
}

TEST(MemoryRoom, IsWhatTheFileSystemAndTheHostHaveAndWhatGivesWay) {
  MemoryFileSystem files;
  create_directories(files, "/dev/shm/run");
  write_text(files, "/dev/shm/run/old", "12345");
  files.set_limit(100);
  EXPECT_EQ(room_for_steps(files, "/dev/shm/run", 1000), 95 + 5);
  EXPECT_EQ(room_for_steps(files, "/dev/shm/run", 40), 40 + 5);
}

// Saves steps 1 to 4 into memory and step 2 to disk. A save into memory that fails does not end the job. Returns the last step
// for which save() returned on some rank.
int64_t run_saves(TwoTiers& tiers, const std::vector<int>& hosts) {
  std::atomic<int64_t> acknowledged = kNoStep;
  const auto acknowledge = [&](int64_t step) {
    for (int64_t known = acknowledged; known < step && !acknowledged.compare_exchange_weak(known, step);) {
    }
  };
  try {
    tiers.run(hosts, [&](const Tier& disk, const Tier& memory) {
      for (int64_t step = 1; step <= 4; ++step) {
        try {
          TwoTiers::save_to(memory, step);
          acknowledge(step);
        } catch (const CheckpointError& error) {
          EXPECT_EQ(error.exit_code(), ExitCode::CheckpointNotWritten) << error.what();
        }
        if (step != 2) continue;
        TwoTiers::save_to(disk, step);
        acknowledge(step);
      }
    });
  } catch (const Stopped&) {
  } catch (const CommError&) {
  } catch (const CheckpointError& error) {
    EXPECT_EQ(acknowledged, kNoStep) << error.what();
  }
  return acknowledged;
}

void expect_nothing_lost(TwoTiers& tiers, const std::vector<int>& hosts, int64_t acknowledged) {
  const Found found = tiers.load(hosts);
  ASSERT_GE(found.step, acknowledged) << found.warnings;
  ASSERT_NO_THROW(tiers.save(hosts, {{found.step + 2}}));
  ASSERT_EQ(tiers.load(hosts), (Found{found.step + 2, true}));
  for (int host : hosts) ASSERT_EQ(tiers.names(host).size(), 2u) << "host " << host << " has more than the newest step";
}

class EveryMomentInMemory : public ::testing::TestWithParam<std::tuple<int, Fault>> {};

// A host whose memory has a fault is then gone, or back with what it had, or with nothing.
TEST_P(EveryMomentInMemory, LeavesAllThatWasAcknowledged) {
  const auto [victim, fault] = GetParam();
  const auto run_with_fault = [&, host = victim](TwoTiers& tiers, Fault one, int64_t call, int64_t& acknowledged) {
    FaultyFileSystem files(tiers.memory(host), one, call);
    tiers.set_faults(host, &files);
    acknowledged = run_saves(tiers, {0, 1, 2});
    tiers.set_faults(host, nullptr);
    return files.calls();
  };
  TwoTiers undisturbed(3);
  int64_t acknowledged = 0;
  const int64_t calls = run_with_fault(undisturbed, Fault::None, 0, acknowledged);
  ASSERT_EQ(acknowledged, 4);
  ASSERT_GT(calls, 100);
  std::vector<int> left{0, 1, 2};
  std::erase(left, victim);
  std::vector<std::string> continuations{"back"};
  if (fault == Fault::Stop) continuations.insert(continuations.end(), {"gone", "empty"});
  for (int64_t call = 1; call <= calls; ++call)
    for (const std::string& then : continuations) {
      SCOPED_TRACE(fmt::format("call {}, then {}", call, then));
      TwoTiers tiers(3);
      run_with_fault(tiers, fault, call, acknowledged);
      if (then == "empty") tiers.lose_memory(victim);
      expect_nothing_lost(tiers, then == "gone" ? left : std::vector<int>{0, 1, 2}, acknowledged);
      if (HasFatalFailure()) return;
    }
  if (std::getenv("TRIVET_COUNT_FAULTS"))
    fmt::print("faults injected: {}\n", calls * static_cast<int64_t>(continuations.size()));
}

INSTANTIATE_TEST_SUITE_P(Tiers, EveryMomentInMemory,
                         ::testing::Combine(::testing::Values(0, 2), ::testing::Values(Fault::Stop, Fault::StopMidWrite,
                                                                                       Fault::DiskFull, Fault::IoError)));

}  // namespace
}  // namespace trivet::checkpoint
