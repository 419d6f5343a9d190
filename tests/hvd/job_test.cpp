// How ranks start, join, form process sets, wait too long, fail and leave.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "tests/hvd/hvd_ranks.h"

namespace trivet::hvd {
namespace {

using ::testing::HasSubstr;

// Lets a thread of one rank wait for something that another one sees.
class Signal {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

TEST(HvdJob, RanksKnowTheirPlaces) {
  std::atomic<int> seen = 0;
  run_ranks(3, [&](Communicator& hvd) {
    EXPECT_EQ(hvd.size(), 3);
    EXPECT_EQ(hvd.local_rank(), hvd.rank());
    EXPECT_EQ(hvd.local_size(), 3);
    EXPECT_EQ(hvd.cross_rank(), 0);
    EXPECT_EQ(hvd.cross_size(), 1);
    EXPECT_TRUE(hvd.is_homogeneous());
    EXPECT_TRUE(hvd.is_initialized());
    seen += 1 << hvd.rank();
  });
  EXPECT_EQ(seen, 7);
}

// A world whose ranks say that they are on these hosts.
class WorldOnHosts final : public comm::World {
 public:
  WorldOnHosts(comm::World& world, std::vector<std::string> hosts) : world_(world), hosts_(std::move(hosts)) {}
  comm::ProcessGroup& group() const override { return world_.group(); }
  std::string host() const override { return hosts_[world_.rank()]; }
  void close() override { world_.close(); }
  void abort(const std::string& reason) noexcept override { world_.abort(reason); }

 private:
  comm::World& world_;
  std::vector<std::string> hosts_;
};

TEST(HvdJob, LocalAndCrossRanksFollowFromHosts) {
  struct Place {
    int local_rank, local_size, cross_rank, cross_size;
  };
  const std::vector<Place> expected{{0, 2, 0, 3}, {0, 2, 1, 3}, {1, 2, 0, 2}, {1, 2, 1, 2}, {0, 1, 2, 3}};
  comm::run_threads(5, [&](comm::World& world) {
    WorldOnHosts hosts(world, {"a", "b", "a", "b", "c"});
    Communicator hvd(hosts, Options{});
    const Place& place = expected[hvd.rank()];
    EXPECT_EQ(hvd.local_rank(), place.local_rank);
    EXPECT_EQ(hvd.local_size(), place.local_size);
    EXPECT_EQ(hvd.cross_rank(), place.cross_rank);
    EXPECT_EQ(hvd.cross_size(), place.cross_size);
    EXPECT_FALSE(hvd.is_homogeneous());
    hvd.shutdown();
  });
}

TEST(HvdJob, OptionsThatDifferAreNamed) {
  comm::run_threads(2, [](comm::World& world) {
    Options options;
    options.fusion_threshold_bytes = 100 + world.rank();
    EXPECT_EQ(
        error_of([&] { Communicator hvd(world, options); }),
        "Usage: hvd: fusion_threshold_bytes (HOROVOD_FUSION_THRESHOLD) is 100 on rank 0 and 101 on rank 1; set the same on all "
        "ranks");
  });
}

TEST(HvdJob, OptionsComeFromHorovodsVariables) {
  const Options options = options_from_environment({{"HOROVOD_FUSION_THRESHOLD", "4096"},
                                                    {"HOROVOD_CYCLE_TIME", "3.5"},
                                                    {"HOROVOD_CACHE_CAPACITY", "7"},
                                                    {"HOROVOD_STALL_CHECK_TIME_SECONDS", "5"},
                                                    {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "9"},
                                                    {"HOROVOD_TIMELINE", "t.json"}});
  EXPECT_EQ(options.fusion_threshold_bytes, 4096);
  EXPECT_EQ(options.cycle_time, std::chrono::microseconds(3500));
  EXPECT_EQ(options.cache_capacity, 7);
  EXPECT_EQ(options.stall_check_time, std::chrono::seconds(5));
  EXPECT_EQ(options.stall_shutdown_time, std::chrono::seconds(9));
  EXPECT_EQ(options.timeline, "t.json");
  const Options defaults = options_from_environment({{"HOROVOD_CYCLE_TIME", ""}});
  EXPECT_EQ(defaults.fusion_threshold_bytes, int64_t{128} << 20);
  EXPECT_EQ(defaults.cycle_time, std::chrono::milliseconds(1));
  EXPECT_EQ(defaults.stall_check_time, std::chrono::seconds(60));
  EXPECT_EQ(options_from_environment({{"HOROVOD_STALL_CHECK_DISABLE", "1"}}).stall_check_time.count(), 0);
  EXPECT_EQ(options_from_environment({{"HOROVOD_STALL_CHECK_DISABLE", "0"}}).stall_check_time, std::chrono::seconds(60));
  for (const char* wrong : {"x", "-1", "5s", "nan", "1e300"})
    EXPECT_THAT(error_of([&] {
                  options_from_environment({{"HOROVOD_CYCLE_TIME", wrong}});
                }),
                HasSubstr("Usage: HOROVOD_CYCLE_TIME: \"" + std::string(wrong) + "\" is not accepted; use a number from 0 to"));
}

TEST(HvdJob, NegativeOptionsAreRefused) {
  comm::run_threads(1, [](comm::World& world) {
    Options options;
    options.cache_capacity = -1;
    EXPECT_EQ(error_of([&] { Communicator hvd(world, options); }),
              "Usage: hvd: cache_capacity (HOROVOD_CACHE_CAPACITY): -1 is not accepted; use at least 0");
  });
}

TEST(HvdJob, VariablesForWhatIsNotHereAreNotIgnored) {
  for (const char* name : {"HOROVOD_AUTOTUNE", "HOROVOD_ELASTIC"}) {
    EXPECT_EQ(error_of([&] {
                options_from_environment({{name, "1"}});
              }),
              "Usage: " + std::string(name) + ": \"1\" is not accepted: Trivet does not have this feature; unset the variable");
    EXPECT_EQ(error_of([&] { options_from_environment({{name, "0"}}); }), "");
  }
  const Options options = options_from_environment({{"HOROVOD_TIMELINE", "DYNAMIC"},
                                                    {"HOROVOD_CYCLE_TIME", "2"},
                                                    {"HOROVOD_FUSION_TRESHOLD", "1"},
                                                    {"HOROVOD_LOG_LEVEL", "debug"},
                                                    {"HOROVOD_THREAD_AFFINITY", ""},
                                                    {"HOME", "/root"}});
  EXPECT_EQ(options.timeline, "");
  EXPECT_THAT(options.unused_variables, testing::ElementsAre("HOROVOD_FUSION_TRESHOLD", "HOROVOD_LOG_LEVEL"));
  testing::internal::CaptureStderr();
  run_ranks(
      2, [](Communicator&) {}, options);
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("hvd: HOROVOD_FUSION_TRESHOLD, HOROVOD_LOG_LEVEL in the environment: not used here"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1);  // rank 0 alone says it
}

TEST(HvdJob, RanksThatHorovodsLauncherHasStartedDoNotTrainAlone) {
  EXPECT_EQ(error_of([] {
              check_launcher({{"HOROVOD_SIZE", "4"}}, 1);
            }),
            "Usage: HOROVOD_SIZE is 4, but this process has found a job of 1 rank: Horovod's own launchers cannot start this "
            "program; use trivet launch, mpirun, srun or torchrun");
  EXPECT_THAT(error_of([] { check_launcher({{"HOROVOD_SIZE", "4"}}, 2); }), HasSubstr("a job of 2 ranks"));
  EXPECT_EQ(error_of([] { check_launcher({{"HOROVOD_SIZE", "4"}}, 4); }), "");
  EXPECT_EQ(error_of([] { check_launcher({}, 4); }), "");
}

TEST(HvdJoin, RanksWithoutDataContributeNothing) {
  run_ranks(3, [](Communicator& hvd) {
    const int steps = hvd.rank() == 1 ? 4 : hvd.rank() + 1;  // 1, 4, 3
    for (int step = 0; step < steps; ++step) {
      const bool zero = step < 1, two = step < 3;  // which others still take part
      std::vector<float> sum{1}, product{3}, least{-1}, average{6};
      std::vector<int64_t> most{-5};
      hvd.allreduce_(view(sum), {.name = "sum", .op = Sum});
      hvd.allreduce_(view(product), {.name = "product", .op = Product});
      hvd.allreduce_(view(least), {.name = "least", .op = Min});
      hvd.allreduce_(view(most), {.name = "most", .op = Max});
      hvd.allreduce_(view(average), {.name = "average"});
      EXPECT_EQ(sum[0], 1 + zero + two) << step;
      EXPECT_EQ(product[0], 3 * (zero ? 3 : 1) * (two ? 3 : 1)) << step;
      EXPECT_EQ(least[0], -1);
      EXPECT_EQ(most[0], -5);
      EXPECT_EQ(average[0], 2 * (1 + zero + two)) << step;
      const Tensor rows = hvd.allgather(view(std::as_const(sum)), {.name = "rows"});
      EXPECT_EQ(rows.shape()[0], 1 + zero + two) << step;
      std::vector<float> from_one{float(hvd.rank())};
      hvd.broadcast_(view(from_one), 1, {.name = "from 1"});
      EXPECT_EQ(from_one[0], 1);
      const std::vector<float> shards{1, 1, 1};
      EXPECT_EQ(hvd.reducescatter(view(shards), {.name = "shards", .op = Sum}).as<float>()[0], 1 + zero + two);
    }
    EXPECT_EQ(hvd.join(), 1);
    std::vector<float> again{1};
    hvd.allreduce_(view(again), {.name = "again", .op = Sum});  // after join() all ranks take part
    EXPECT_EQ(again[0], 3);
  });
}

TEST(HvdJoin, ReturnsTheLastRankAndCanBeCalledAgain) {
  run_ranks(3, [](Communicator& hvd) {
    for (int last = 0; last < 3; ++last) {
      std::vector<float> data{1};
      // Only the last rank runs this; the others have joined by then.
      if (hvd.rank() == last) {
        do {
          data[0] = 1;
          hvd.allreduce_(view(data), {.name = "x", .op = Sum});
        } while (data[0] != 1);
      } else {
        hvd.allreduce_(view(data), {.name = "x", .op = Sum});
      }
      EXPECT_EQ(hvd.join(), last);
    }
  });
}

TEST(HvdJoin, ABroadcastFromAJoinedRankFails) {
  run_ranks(2, [](Communicator& hvd) {
    if (hvd.rank() == 1) {
      std::vector<float> data(1);
      EXPECT_EQ(error_of([&] { hvd.broadcast_(view(data), 0, {.name = "x"}); }),
                "RanksDisagree: hvd: broadcast of \"x\": its root, rank 0, has called join()");
    }
    EXPECT_EQ(hvd.join(), 1);
  });
}

// The ranks that have joined would wait forever.
TEST(HvdJoin, FailsWhenARankLeavesWithoutIt) {
  run_ranks(3, [](Communicator& hvd) {
    if (hvd.rank() == 1) return;  // run_ranks shuts down
    EXPECT_EQ(error_of([&] { hvd.join(); }),
              "RanksDisagree: hvd: join(): rank 1 called shutdown() without join(); all ranks must call join()");
  });
}

TEST(HvdProcessSets, RunIndependentlyOfOtherRanks) {
  Options options;
  options.process_sets = {{0, 2}};
  run_ranks(
      4,
      [](Communicator& hvd) {
        const ProcessSet first = hvd.process_set(1), second = hvd.add_process_set({1, 2, 3});
        EXPECT_EQ(first.included(), hvd.rank() % 2 == 0);
        EXPECT_EQ(hvd.size(first), 2);
        EXPECT_EQ(hvd.rank(first), hvd.rank() == 0 ? 0 : hvd.rank() == 2 ? 1 : -1);
        EXPECT_EQ(hvd.size(second), 3);
        EXPECT_EQ(hvd.rank(second), hvd.rank() - 1);
        // The same name in different sets at the same time.
        if (first.included()) {
          std::vector<float> data{float(hvd.rank())};
          hvd.allreduce_(view(data), {.name = "x", .op = Sum, .process_set = first});
          EXPECT_EQ(data[0], 2);
          hvd.broadcast_(view(data), 2, {.name = "y", .process_set = first});  // the root is a world rank
        } else {
          std::vector<float> data(1);
          EXPECT_THAT(error_of([&] { hvd.allreduce_(view(data), {.process_set = first}); }),
                      HasSubstr("rank " + std::to_string(hvd.rank()) + " is not in process set 1, or the set was removed"));
        }
        if (second.included()) {
          std::vector<float> data{float(hvd.rank())};
          hvd.allreduce_(view(data), {.name = "x", .process_set = second});
          EXPECT_EQ(data[0], 2);
          EXPECT_EQ(error_of([&] { hvd.broadcast_(view(data), 0, {.name = "y", .process_set = second}); }),
                    "Usage: hvd: broadcast of \"y\": root_rank 0 is not a rank of the process set");
        }
        std::vector<float> data{1};
        hvd.allreduce_(view(data), {.name = "x", .op = Sum});
        EXPECT_EQ(data[0], 4);
        hvd.remove_process_set(first);
        EXPECT_THAT(error_of([&] { hvd.barrier({.process_set = first}); }),
                    HasSubstr("is not in process set 1, or the set was removed"));
        EXPECT_THAT(error_of([&] { hvd.process_set(1); }), HasSubstr("there is no process set 1"));
        EXPECT_THAT(error_of([&] { hvd.remove_process_set({}); }), HasSubstr("cannot be removed"));
        for (const auto& ranks : std::vector<std::vector<int>>{{}, {1, 0}, {1, 1}, {3, 4}, {-1, 0}})
          EXPECT_THAT(error_of([&] { hvd.add_process_set(ranks); }), HasSubstr("needs ascending ranks from 0 to 3"));
      },
      options);
}

TEST(HvdStall, ARankThatDoesNotSubmitIsNamed) {
  Signal warned;
  std::string line;
  Options options;
  options.stall_check_time = std::chrono::milliseconds(20);
  options.idle_time = std::chrono::milliseconds(10);
  options.on_stall = [&](const std::string& text) {
    line = text;
    warned.set();
  };
  run_ranks(
      3,
      [&](Communicator& hvd) {
        if (hvd.rank() == 2) warned.wait();
        std::vector<float> data{1};
        hvd.allreduce_(view(data), {.name = "late", .op = Sum});
        EXPECT_EQ(data[0], 3);
      },
      options);
  EXPECT_THAT(line, HasSubstr("for 0.02 s, and wait for them: allreduce of \"late\" (missing: rank"));
  EXPECT_THAT(line, HasSubstr("2)"));
}

TEST(HvdStall, AfterTheShutdownTimeTheTensorFailsWhereItWasSubmitted) {
  Signal failed;
  Options options;
  options.stall_check_time = {};
  options.stall_shutdown_time = std::chrono::milliseconds(20);
  options.idle_time = std::chrono::milliseconds(10);
  run_ranks(
      2,
      [&](Communicator& hvd) {
        std::vector<float> data{1};
        if (hvd.rank() == 1) {
          EXPECT_EQ(error_of([&] { hvd.allreduce_(view(data), {.name = "late"}); }),
                    "NoProgress: hvd: \"late\": rank 0 did not submit it in time (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)");
          failed.set();
        } else {
          failed.wait();
        }
      },
      options);
}

TEST(HvdFailure, TheExceptionOfOneRankEndsTheWaitsOfAll) {
  std::atomic<int> told = 0;
  EXPECT_THAT(
      [&] {
        run_ranks(3, [&](Communicator& hvd) {
          if (hvd.rank() == 1) throw std::runtime_error("rank 1 has no more paper");
          std::vector<float> data(1);
          const std::string error = error_of([&] { hvd.allreduce_(view(data), {.name = "x"}); });
          EXPECT_THAT(error, HasSubstr("PeerLost: ")) << hvd.rank();
          EXPECT_THAT(error, HasSubstr("it left Horovod's interface without shutdown()"));
          // From now on every call says so.
          EXPECT_EQ(error_of([&] { hvd.allreduce_(view(data), {.name = "y"}); }), error);
          EXPECT_EQ(error_of([&] { hvd.join(); }), error);
          EXPECT_EQ(error_of([&] { hvd.shutdown(); }), error);
          ++told;
        });
      },
      testing::ThrowsMessage<std::runtime_error>("rank 1 has no more paper"));
  EXPECT_EQ(told, 2);
}

// The tensor is gone when rank 1 submits its own: nobody may use it.
TEST(HvdFailure, ATensorWhoseHandleIsGoneIsNotUsed) {
  Signal gone;
  const auto body = [&](Communicator& hvd) {
    if (hvd.rank() == 0) {
      {
        std::vector<float> data(1000);
        const Handle handle = hvd.allreduce_async_(view(data), {.name = "x"});
      }
      gone.set();
      EXPECT_EQ(error_of([&] { hvd.barrier(); }),
                "PeerLost: hvd: allreduce of \"x\": its handle was destroyed before synchronize(); wait for every handle");
    } else {
      gone.wait();
      std::vector<float> data(1000);
      const std::string error = error_of([&] { hvd.allreduce_(view(data), {.name = "x"}); });
      EXPECT_THAT(error, HasSubstr("PeerLost: "));
      EXPECT_THAT(error, HasSubstr("its handle was destroyed before synchronize()"));
    }
    throw std::runtime_error("both have seen it");
  };
  EXPECT_THAT([&] { run_ranks(2, body); }, testing::ThrowsMessage<std::runtime_error>("both have seen it"));
}

TEST(HvdShutdown, RunsWhatIsInFlightAndRefusesWhatComesLater) {
  run_ranks(2, [](Communicator& hvd) {
    std::vector<float> in_flight{1}, later{1};
    Handle handle = hvd.allreduce_async_(view(in_flight), {.name = "in flight", .op = Sum});
    hvd.shutdown();
    hvd.synchronize(handle);
    EXPECT_EQ(in_flight[0], 2);
    EXPECT_FALSE(hvd.is_initialized());
    EXPECT_THAT(error_of([&] { hvd.allreduce_(view(later)); }), HasSubstr("needs a Communicator that was not shut down"));
    hvd.shutdown();  // has no effect
  });
}

TEST(HvdShutdown, ATensorThatARankDidNotSubmitFails) {
  run_ranks(2, [](Communicator& hvd) {
    if (hvd.rank() == 0) return;  // run_ranks shuts down
    std::vector<float> data(1);
    EXPECT_EQ(error_of([&] { hvd.allreduce_(view(data), {.name = "x"}); }),
              "RanksDisagree: hvd: \"x\": rank 0 called shutdown() without submitting it");
  });
}

TEST(HvdShutdown, ATensorOfAProcessSetThatARankDidNotSubmitFails) {
  Options options;
  options.process_sets = {{0, 1}, {0, 1, 2}};
  run_ranks(
      3,
      [](Communicator& hvd) {
        if (hvd.rank() != 1) return;  // run_ranks shuts down
        std::vector<float> data(1);
        for (int id : {2, 1})
          EXPECT_THAT(error_of([&] { hvd.allreduce_(view(data), {.name = "x", .process_set = hvd.process_set(id)}); }),
                      HasSubstr("called shutdown() without submitting it"))
              << id;
      },
      options);
}

TEST(HvdJob, TwoCommunicatorsOfOneRankAreIndependent) {
  comm::run_threads(2, [](comm::World& world) {
    Communicator first(world, Options{}), second(world, Options{});
    std::vector<float> a{1}, b{10};
    Handle of_first = first.allreduce_async_(view(a), {.name = "x", .op = Sum});
    second.allreduce_(view(b), {.name = "x", .op = Sum});
    first.synchronize(of_first);
    EXPECT_EQ(a[0], 2);
    EXPECT_EQ(b[0], 20);
    first.shutdown();
    second.barrier();
    second.shutdown();
  });
}

}  // namespace
}  // namespace trivet::hvd
