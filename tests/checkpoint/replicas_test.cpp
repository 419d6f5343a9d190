// Checkpoints of hosts that have no directory in common: each host keeps its own files and those of its neighbours.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <random>

#include "tests/checkpoint/pretend_hosts.h"
#include "tests/checkpoint/sample_tensors.h"
#include "tests/support/faulty_file_system.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::support;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kPlace = "/local/checkpoints";
constexpr int64_t kNothing = -1;
const std::vector<SampleTensor> kSmall{{"weight", DType::BFloat16, {4, 6}, 0}, {"bias", DType::Float32, {5}, -1}};

// Hosts and their disks, and the jobs that they run.
class Cluster {
 public:
  explicit Cluster(int hosts) {
    for (int host = 0; host < hosts; ++host) replace_disk(host);
  }
  void replace_disk(int host) { disks_[host] = std::make_unique<MemoryFileSystem>(); }
  MemoryFileSystem& disk(int host) { return *disks_.at(host); }
  // While set, this host's calls go through it.
  void set_faults(int host, FaultyFileSystem* files) { faulty_[host] = files; }
  FileSystem& files(int host) {
    if (FaultyFileSystem* const faulty = faulty_[host]) return *faulty;
    return disk(host);
  }

  using Body = std::function<void(CheckpointStore& store, const Participants& ranks)>;
  void run(const std::vector<PretendHost>& job, const Body& body, int replicas = 1, int64_t keep = 0) {
    run_on_hosts(job, [&](const Participants& ranks, const JobHosts& hosts, int number) {
      CheckpointStore store(files(number), {.directory = kPlace,
                                            .run_id = "run",
                                            .keep = keep,
                                            .replicas = replicas,
                                            .hosts = hosts,
                                            .log = Log(ranks.rank, LogLevel::Error)});
      store.acquire(ranks);
      body(store, ranks);
    });
  }
  void save(const std::vector<PretendHost>& job, const std::vector<int64_t>& steps, int replicas = 1, int64_t keep = 0) {
    run(
        job,
        [&](CheckpointStore& store, const Participants& ranks) {
          store.open_latest(ranks);
          for (int64_t step : steps) save_step(store, step, ranks);
        },
        replicas, keep);
  }
  static void save_step(CheckpointStore& store, int64_t step, const Participants& ranks) {
    const RankPieces mine = make_pieces({.data = ranks.size}, ranks.rank, step, true, kSmall);
    store.save({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = ""}, ranks);
  }
  // What a job opens, whose values every rank has compared; kNothing: there is no step. `warnings`: of all leaders.
  int64_t load(const std::vector<PretendHost>& job, int replicas = 1, std::vector<std::string>* warnings = nullptr) {
    std::atomic<int64_t> found = kNothing;
    std::mutex mutex;
    run(
        job,
        [&](CheckpointStore& store, const Participants& ranks) {
          const auto step = store.open_latest(ranks);
          if (step) {
            expect_values(*step, {}, kSmall);
            found = step->step();
          }
          const std::scoped_lock lock(mutex);
          if (warnings) warnings->insert(warnings->end(), store.warnings().begin(), store.warnings().end());
        },
        replicas);
    return found;
  }
  std::string error_of_load(const std::vector<PretendHost>& job) {
    try {
      load(job);
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::CheckpointCorrupt);
      return error.what();
    }
    return "";
  }
  std::vector<std::string> names(int host, const std::string& in = "") {
    std::vector<std::string> names;
    for (const DirectoryEntry& entry : disk(host).list(kPlace + in)) names.push_back(entry.name);
    return names;
  }
  void damage(int host, int64_t step, int rank) {
    const std::string path = fmt::format("{}/{}/rank-{:05}.safetensors", kPlace, step_directory_name(step), rank);
    std::string bytes = read_text(disk(host), path, 1 << 20);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_text(disk(host), path, bytes);
  }

 private:
  std::map<int, std::unique_ptr<MemoryFileSystem>> disks_;
  std::array<FaultyFileSystem*, 8> faulty_{};
};

std::vector<PretendHost> each_with(int ranks, const std::vector<int>& numbers) {
  std::vector<PretendHost> job;
  for (int number : numbers) job.push_back({number, ranks});
  return job;
}

TEST(Replicas, AHostKeepsItsOwnFilesAndThoseOfTheHostBeforeIt) {
  Cluster cluster(3);
  cluster.save(each_with(2, {0, 1, 2}), {7});
  const auto files = [&](int host) { return cluster.names(host, "/step-00000007"); };
  const auto file = [](int rank) { return fmt::format("rank-{:05}.safetensors", rank); };
  EXPECT_THAT(files(0), ElementsAre("manifest.json", file(0), file(1), file(4), file(5)));
  EXPECT_THAT(files(1), ElementsAre("manifest.json", file(0), file(1), file(2), file(3)));
  EXPECT_THAT(files(2), ElementsAre("manifest.json", file(2), file(3), file(4), file(5)));
  const std::string manifest = "/step-00000007/manifest.json";
  EXPECT_EQ(read_text(cluster.disk(0), kPlace + manifest, 1 << 20), read_text(cluster.disk(2), kPlace + manifest, 1 << 20));
}

TEST(Replicas, AnyHostCanBeLost) {
  for (const int lost : {0, 1, 2}) {
    Cluster cluster(3);
    cluster.save(each_with(2, {0, 1, 2}), {1, 2});
    std::vector<int> left{0, 1, 2};
    std::erase(left, lost);
    EXPECT_EQ(cluster.load(each_with(2, left)), 2) << "without host " << lost;
    cluster.replace_disk(lost);
    EXPECT_EQ(cluster.load(each_with(2, {0, 1, 2})), 2) << "host " << lost << " with an empty disk";
  }
}

TEST(Replicas, HostsMayHaveDifferentNumbersOfRanks) {
  Cluster cluster(5);
  cluster.save({{0, 2}, {1, 1}, {2, 4}, {3, 1}}, {3}, 2);
  EXPECT_EQ(cluster.load({{0, 1}, {3, 3}}, 2), 3) << "two neighbours lost";
  EXPECT_EQ(cluster.load({{4, 3}, {3, 1}, {0, 2}}, 2), 3) << "a new host";
}

TEST(Replicas, OneHostThatIsLeftHasAllOfTwo) {
  Cluster cluster(2);
  cluster.save(each_with(2, {0, 1}), {4});
  EXPECT_EQ(cluster.load(each_with(1, {1})), 4);
  cluster.save(each_with(1, {1}), {5});
  EXPECT_EQ(cluster.load(each_with(2, {0, 1})), 5);
}

TEST(Replicas, TwoNeighboursAreTooManyToLose) {
  Cluster cluster(4);
  cluster.save(each_with(1, {0, 3}), {1});
  cluster.save(each_with(1, {0, 1, 2, 3}), {2});
  std::vector<std::string> warnings;
  EXPECT_EQ(cluster.load(each_with(1, {0, 3}), 1, &warnings), 1) << "an older step that is complete";
  EXPECT_THAT(warnings,
              ElementsAre(AllOf(HasSubstr("1 of 4 files of step 2 cannot be had from the hosts that are there, h0, h3"),
                                HasSubstr("rank-00001.safetensors is on none of them (it was saved on h1, h2)"))));
  Cluster other(4);
  other.save(each_with(1, {0, 1, 2, 3}), {2});
  EXPECT_THAT(other.error_of_load(each_with(1, {3, 0})), AllOf(HasSubstr("no step is valid"), HasSubstr("saved on h1, h2")));
  EXPECT_EQ(other.load(each_with(1, {3, 0, 1})), 2) << "one of them is back";
}

TEST(Replicas, ADamagedFileIsReplacedByItsCopy) {
  Cluster cluster(3);
  cluster.save(each_with(1, {0, 1, 2}), {2});
  cluster.damage(1, 2, 1);
  EXPECT_EQ(cluster.load(each_with(1, {0, 1, 2})), 2);
  EXPECT_EQ(cluster.load(each_with(1, {0, 1})), 2) << "it is valid again";
}

TEST(Replicas, AFileThatIsDamagedEverywhereIsNamed) {
  Cluster cluster(3);
  cluster.save(each_with(1, {0, 1, 2}), {1, 2});
  cluster.damage(1, 2, 1);
  cluster.damage(2, 2, 1);
  std::vector<std::string> warnings;
  EXPECT_EQ(cluster.load(each_with(1, {0, 1, 2}), 1, &warnings), 1);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("rank-00001.safetensors is damaged on h1, h2 (it was saved on h1, h2)")));
}

TEST(Replicas, AHostWhoseManifestIsDamagedGetsTheStepAgain) {
  Cluster cluster(2);
  cluster.save(each_with(1, {0, 1}), {2});
  write_text(cluster.disk(0), fmt::format("{}/step-00000002/manifest.json", kPlace), "not a manifest");
  EXPECT_EQ(cluster.load(each_with(1, {0, 1})), 2);
  EXPECT_EQ(cluster.load(each_with(1, {0})), 2);
}

TEST(Replicas, AHostThatComesBackWithOlderStepsGetsTheNewest) {
  Cluster cluster(3);
  cluster.save(each_with(1, {0, 1, 2}), {1, 2}, 1, 2);
  cluster.save(each_with(1, {0, 1}), {3, 4, 5}, 1, 2);
  EXPECT_EQ(cluster.load(each_with(1, {0, 1, 2})), 5);
  cluster.save(each_with(1, {0, 1, 2}), {6}, 1, 2);
  for (const int host : {0, 1, 2})
    EXPECT_THAT(cluster.names(host), ElementsAre(".lock", "latest", "step-00000005", "step-00000006")) << "host " << host;
}

TEST(Replicas, AStepThatIsNotCompleteTakesThePlaceOfNone) {
  Cluster cluster(3);
  cluster.save(each_with(1, {0, 1, 2}), {1, 4}, 1, 3);
  for (const int host : {0, 1}) remove_tree(cluster.disk(host), std::string(kPlace) + "/step-00000004");
  cluster.save(each_with(1, {0, 1}), {2, 6}, 1, 3);
  cluster.save(each_with(1, {0, 1, 2}), {7}, 1, 3);
  EXPECT_THAT(cluster.names(0), ElementsAre(".lock", "latest", "step-00000002", "step-00000006", "step-00000007"));
  // A damaged step stays until three clean ones are newer.
  EXPECT_THAT(cluster.names(2), ElementsAre(".lock", "latest", "step-00000004", "step-00000006", "step-00000007"));
}

// The host took part in a save that the others did not see the end of; they went on from an earlier step.
TEST(Replicas, ALaterStepOfAnEarlierStartIsNotTakenForTheNewest) {
  Cluster cluster(2);
  cluster.save(each_with(1, {0, 1}), {4, 9});
  remove_tree(cluster.disk(0), std::string(kPlace) + "/step-00000009");
  cluster.save(each_with(1, {0}), {5});
  EXPECT_EQ(cluster.load(each_with(1, {0, 1})), 5);
  cluster.save(each_with(1, {0, 1}), {6});
  EXPECT_THAT(cluster.names(1),
              ElementsAre(".lock", "broken-step-00000009", "latest", "step-00000004", "step-00000005", "step-00000006"));
  EXPECT_EQ(cluster.load(each_with(1, {0, 1})), 6);
}

// As after a kill when host 0 had committed and host 1 had not.
TEST(Replicas, ACommitThatOneHostHasMadeIsFinishedByTheOthers) {
  Cluster cluster(2);
  cluster.save(each_with(1, {0, 1}), {4, 5});
  const std::string place = kPlace;
  cluster.disk(1).rename(place + "/step-00000005", place + "/.tmp-step-00000005-run");
  cluster.run(each_with(1, {0, 1}), [](CheckpointStore& store, const Participants&) { EXPECT_EQ(store.newest_step(), 5); });
  EXPECT_THAT(cluster.names(1), ElementsAre(".lock", "latest", "step-00000004", "step-00000005"));
  cluster.disk(1).rename(place + "/step-00000005", place + "/.tmp-step-00000005-run");
  cluster.run(each_with(1, {1}), [](CheckpointStore& store, const Participants&) { EXPECT_EQ(store.newest_step(), 4); });
  EXPECT_THAT(cluster.names(1), ElementsAre(".lock", "latest", "step-00000004")) << "nobody had committed it";
}

TEST(Replicas, AnotherVersionOfAStepGivesWayToTheNewestStart) {
  Cluster cluster(2);
  cluster.save(each_with(1, {0, 1}), {4, 5});
  remove_tree(cluster.disk(0), std::string(kPlace) + "/step-00000005");
  cluster.save(each_with(1, {0}), {5});
  EXPECT_EQ(cluster.load(each_with(1, {0, 1})), 5);
  const std::string manifest = std::string(kPlace) + "/step-00000005/manifest.json";
  EXPECT_EQ(read_text(cluster.disk(1), manifest, 1 << 20), read_text(cluster.disk(0), manifest, 1 << 20));
  EXPECT_THAT(cluster.names(1), Each(Not(HasSubstr(".old-"))));
}

TEST(Replicas, OneHostsDirectoryShowsWhatIsMissing) {
  Cluster cluster(3);
  cluster.save(each_with(1, {0, 1, 2}), {2});
  try {
    const LoadedStep step(cluster.disk(0), std::string(kPlace) + "/step-00000002");
    FAIL() << "opened";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank-00001.safetensors: is not here"), HasSubstr("was saved on h1, h2")));
  }
  const LoadedStep part(cluster.disk(0), std::string(kPlace) + "/step-00000002", StepFiles::ThoseHere);
  EXPECT_THAT(part.elsewhere(), ElementsAre(std::pair<const std::string, std::string>{"rank-00001.safetensors", "h1, h2"}));
  EXPECT_NO_THROW(part.verify());
  const RankPieces all = make_pieces({}, 0, 2, false, kSmall);
  EXPECT_THROW(part.read(all.pieces), CheckpointError);
}

// All runs of the other tests have the same run_id, and so the same origin.
TEST(Replicas, AHostWithStepsOfAnotherRunIsRefused) {
  Cluster cluster(3);
  cluster.save(each_with(1, {0, 1}), {2});
  run_on_hosts({{2}}, [&](const Participants& ranks, const JobHosts& hosts, int) {
    CheckpointStore store(cluster.disk(2), {.directory = kPlace, .run_id = "stranger", .replicas = 1, .hosts = hosts});
    Cluster::save_step(store, 100, ranks);
  });
  try {
    cluster.load(each_with(1, {0, 1, 2}));
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("holds steps of different runs: of run run on h0, h1, of run stranger on h2"),
                                    HasSubstr("empty it on the hosts whose steps are not wanted")));
  }
}

// What a job of two hosts says when it takes a directory.
std::string refusal(FileSystem& first, FileSystem& second, int replicas) {
  std::string text;
  try {
    run_on_hosts({{0}, {1}}, [&](const Participants& ranks, const JobHosts& hosts, int number) {
      CheckpointStore store(number == 0 ? first : second, {.directory = kPlace,
                                                           .run_id = "run",
                                                           .replicas = replicas,
                                                           .hosts = hosts,
                                                           .log = Log(ranks.rank, LogLevel::Error)});
      store.acquire(ranks);
    });
  } catch (const ConfigError& error) {
    text = error.what();
  }
  return text;
}

TEST(Replicas, ADirectoryThatHostsShareIsRefused) {
  MemoryFileSystem shared;
  EXPECT_THAT(refusal(shared, shared, 1), AllOf(HasSubstr("checkpoint.replicas: 1 needs a directory on each host"),
                                                HasSubstr("h0 and h1 have the same"), HasSubstr(kPlace)));
  EXPECT_EQ(refusal(shared, shared, 0), "");
}

TEST(Replicas, DirectoriesThatHostsDoNotShareAreRefusedWithoutReplicas) {
  MemoryFileSystem one, other, third;
  EXPECT_THAT(refusal(one, other, 0), AllOf(HasSubstr("on host h1 is not the directory of that name on host h0"),
                                            HasSubstr("set checkpoint.replicas to 1")));
  EXPECT_EQ(refusal(one, third, 1), "");
}

// Saves with retention, and one step over itself. A save that fails does not end the job. Returns the last step for which
// save() returned on some rank.
int64_t run_saves(Cluster& cluster, const std::vector<PretendHost>& job, const std::vector<int64_t>& steps = {1, 2, 3, 3}) {
  std::atomic<int64_t> acknowledged = kNothing;
  try {
    cluster.run(
        job,
        [&](CheckpointStore& store, const Participants& ranks) {
          store.open_latest(ranks);
          for (int64_t step : steps) {
            try {
              Cluster::save_step(store, step, ranks);
              for (int64_t known = acknowledged; known < step && !acknowledged.compare_exchange_weak(known, step);) {
              }
            } catch (const CheckpointError& error) {
              EXPECT_EQ(error.exit_code(), ExitCode::CheckpointNotWritten) << error.what();
            }
          }
        },
        1, 2);
  } catch (const Stopped&) {
  } catch (const CommError&) {
  } catch (const CheckpointError& error) {
    EXPECT_EQ(acknowledged, kNothing) << error.what();
  }
  return acknowledged;
}

void expect_nothing_lost(Cluster& cluster, const std::vector<PretendHost>& job, int64_t acknowledged) {
  const int64_t found = cluster.load(job);
  ASSERT_GE(found, acknowledged);
  const int64_t next = std::max<int64_t>(found, 0) + 1;
  ASSERT_NO_THROW(cluster.save(job, {next}, 1, 2));
  ASSERT_EQ(cluster.load(job), next);
  for (const PretendHost& host : job)
    EXPECT_THAT(cluster.names(host.number), Each(Not(::testing::StartsWith(".tmp-")))) << "host " << host.number;
}

class EveryMoment : public ::testing::TestWithParam<std::tuple<int, Fault>> {
 protected:
  // A job whose host `victim` has a fault at a call; 0: none. Returns the number of calls.
  int64_t run_with_fault(Cluster& cluster, int64_t call, int64_t& acknowledged) {
    const auto [victim, fault] = GetParam();
    FaultyFileSystem files(cluster.disk(victim), call == 0 ? Fault::None : fault, call);
    cluster.set_faults(victim, &files);
    acknowledged = run_saves(cluster, each_with(1, {0, 1, 2}));
    cluster.set_faults(victim, nullptr);
    return files.calls();
  }
};

// A host that stops is then gone for good, or comes back with what it had, or with an empty disk.
TEST_P(EveryMoment, OfAHostLeavesAllThatWasAcknowledged) {
  const auto [victim, fault] = GetParam();
  Cluster undisturbed(3);
  int64_t acknowledged = 0;
  const int64_t calls = run_with_fault(undisturbed, 0, acknowledged);
  ASSERT_EQ(acknowledged, 3);
  ASSERT_GT(calls, 100);
  std::vector<int> left{0, 1, 2};
  std::erase(left, victim);
  std::vector<std::string> continuations{"back"};
  if (fault == Fault::Stop) continuations.insert(continuations.end(), {"gone", "empty"});
  for (int64_t call = 1; call <= calls; ++call)
    for (const std::string& then : continuations) {
      SCOPED_TRACE(fmt::format("call {}, then {}", call, then));
      Cluster cluster(3);
      run_with_fault(cluster, call, acknowledged);
      if (then == "empty") cluster.replace_disk(victim);
      expect_nothing_lost(cluster, each_with(1, then == "gone" ? left : std::vector<int>{0, 1, 2}), acknowledged);
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Replicas, EveryMoment,
                         ::testing::Combine(::testing::Values(0, 2), ::testing::Values(Fault::Stop, Fault::StopMidWrite,
                                                                                       Fault::DiskFull, Fault::IoError)));

// All hosts are killed at different moments, and one loses its disk.
TEST(Replicas, AHostCanBeLostTogetherWithTheProcessesOfAllHosts) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE(fmt::format("trial {}", trial));
    Cluster cluster(3);
    std::vector<std::unique_ptr<FaultyFileSystem>> files;
    for (int host = 0; host < 3; ++host) {
      files.push_back(std::make_unique<FaultyFileSystem>(cluster.disk(host), Fault::StopMidWrite, 20 + random() % 130));
      cluster.set_faults(host, files.back().get());
    }
    const int64_t acknowledged = run_saves(cluster, each_with(1, {0, 1, 2}), {1, 2, 3, 4});
    for (int host = 0; host < 3; ++host) cluster.set_faults(host, nullptr);
    cluster.replace_disk(static_cast<int>(random() % 3));
    expect_nothing_lost(cluster, each_with(1, {0, 1, 2}), acknowledged);
    if (HasFatalFailure()) return;
  }
}

// Host 1 has an empty disk and gets everything; host 0 is one of those that send.
TEST(Replicas, AHostThatStopsWhileStepsAreCopiedLosesNothing) {
  for (const int victim : {0, 1})
    for (int64_t call = 1;; ++call) {
      SCOPED_TRACE(fmt::format("host {} stops at call {}", victim, call));
      Cluster cluster(3);
      cluster.save(each_with(1, {0, 1, 2}), {1, 2});
      cluster.replace_disk(1);
      FaultyFileSystem files(cluster.disk(victim), Fault::Stop, call);
      cluster.set_faults(victim, &files);
      try {
        cluster.load(each_with(1, {0, 1, 2}));
      } catch (const Stopped&) {
      } catch (const CommError&) {
      }
      cluster.set_faults(victim, nullptr);
      ASSERT_EQ(cluster.load(each_with(1, {0, 1, 2})), 2);
      ASSERT_EQ(cluster.load(each_with(1, {1, 2})), 2);
      if (files.calls() < call) break;
    }
}

}  // namespace
}  // namespace trivet::checkpoint
