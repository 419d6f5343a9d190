// Failures with NCCL: every rank that waits for the device learns which rank failed and why, no kernel keeps spinning, and no
// resource is left over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl_shim.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "comm/host_name.h"
#include "comm/nccl/communicator.h"
#include "comm/nccl/places.h"
#include "tests/cuda/nccl_ranks.h"

namespace trivet::comm::nccl_failure_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

struct Caught {
  std::string text;
  ExitCode code = ExitCode::Done;
};
Caught caught(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.what(), error.exit_code()};
  }
  return {};
}

class NcclFailures : public testing::Test {
 protected:
  ~NcclFailures() override {
    EXPECT_EQ(cuda_shim::live_communicators(), 0);
    EXPECT_EQ(cuda_shim::allocated_bytes(), 0);
  }
  const std::string host_ = host_name();
};

TEST_F(NcclFailures, APeerThatIsLostWhileTheDeviceWaitsForItIsNamedWithinASecond) {
  const int aborted = cuda_shim::aborted_communicators();
  const auto start = steady_clock::now();
  std::atomic<int> summed{0}, told{0};
  const Caught first = caught([&] {
    run_nccl(3, [&](NcclRank& rank) {
      const DeviceVector<float> data(std::vector<float>(10, 1.f));
      rank.group.all_reduce(data.view(), ReduceOp::Sum, rank.stream);
      rank.wait();
      ++summed;
      while (summed < 3) std::this_thread::yield();  // the failure must not reach another rank in the first sum
      if (rank.world.rank() == 1) throw CommError(ExitCode::Numerics, "the loss is not finite");
      const Caught lost = caught([&] {
        rank.group.all_reduce(data.view(), ReduceOp::Sum, rank.stream);
        rank.wait();
      });
      EXPECT_EQ(lost.code, ExitCode::PeerLost);
      EXPECT_THAT(lost.text, AllOf(HasSubstr("lost rank 1"), HasSubstr("abort: the loss is not finite")));
      const Caught again = caught([&] { rank.group.barrier(rank.stream); });
      EXPECT_EQ(again.code, ExitCode::PeerLost);
      EXPECT_THAT(again.text, HasSubstr("comm: group \"world\" rank " + std::to_string(rank.world.rank()) + " (world rank " +
                                        std::to_string(rank.world.rank()) + ", host " + host_ + "): barrier: lost rank 1"));
      ++told;
      throw CommError(lost.code, lost.text);
    });
  });
  EXPECT_EQ(first.text, "the loss is not finite");
  EXPECT_EQ(told, 2);
  EXPECT_EQ(cuda_shim::aborted_communicators() - aborted, 3);
  EXPECT_LT(steady_clock::now() - start, milliseconds(1000));
}

TEST_F(NcclFailures, WhatNcclFindsOutByItselfReachesItsRankInNcclsWords) {
  const Caught first = caught([&] {
    run_nccl(2, [&](NcclRank& rank) {
      const DeviceVector<int64_t> data({1});
      if (rank.world.rank() == 0) {
        rank.group.all_reduce(data.view(), ReduceOp::Sum, rank.stream);
        EXPECT_THAT(caught([&] { rank.wait(); }).text, HasSubstr("lost rank 1"));
        return;
      }
      cuda_shim::fail_communicator("world", 1, ncclRemoteError, "socketProgress: Connection closed by remote peer");
      std::this_thread::sleep_for(milliseconds(50));
      rank.wait();
    });
  });
  EXPECT_EQ(first.code, ExitCode::PeerLost);
  EXPECT_EQ(first.text, "comm: group \"world\" rank 1 (world rank 1, host " + host_ +
                            "): an operation on the device: remote process exited or there was a network error: "
                            "socketProgress: Connection closed by remote peer (NCCL 2.28.9); rerun with NCCL_DEBUG=INFO");
}

// Each rank stays watched until all close: a rank whose watch ended early would not see another one die.
TEST_F(NcclFailures, TheWatchOfARankThatClosesGoesOnUntilAllClose) {
  std::atomic<int> left{0};
  run_nccl(2, [&](NcclRank& rank) {
    const auto watch = std::make_unique<NcclWatch>(rank.world.group().subgroup({0, 1}, "second watch"),
                                                   WatchOptions{.heartbeat = milliseconds(5)});
    if (rank.world.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(300));
      EXPECT_EQ(left, 0);
    }
    watch->close();
    ++left;
  });
  EXPECT_EQ(left, 2);
}

TEST_F(NcclFailures, AnOperationThatDoesNotEndIsNamedAtTheDeadline) {
  NcclOptions options = quick_options();
  options.operation_deadline = milliseconds(200);
  std::atomic<bool> over{false};
  const Caught first = caught([&] {
    run_nccl(
        2,
        [&](NcclRank& rank) {
          const DeviceVector<bfloat16> data(std::vector<bfloat16>(100));
          rank.group.barrier(rank.stream);
          if (rank.world.rank() == 1)  // alive, but busy elsewhere
            while (!over) std::this_thread::sleep_for(milliseconds(1));
          else
            rank.group.all_reduce(data.view(), ReduceOp::TreeSum, rank.stream);
          const Caught stuck = caught([&] { rank.wait(); });
          over = true;
          if (!stuck.text.empty()) throw CommError(stuck.code, stuck.text);
        },
        options);
  });
  EXPECT_EQ(first.code, ExitCode::NoProgress);
  EXPECT_EQ(first.text, "comm: group \"world\" rank 0 (world rank 0, host " + host_ +
                            "): no progress: all_reduce (tree sum) of 100 bfloat16 (operation 2 of the group) is on the device "
                            "and has not ended within 0.2 s: a rank of the group has not reached it, or is waiting for "
                            "something else; its own message says what");
}

TEST_F(NcclFailures, ARankThatNeverJoinsIsGivenUpAtTheDeadline) {
  run_nccl(2, [&](NcclRank& rank) {
    if (rank.world.rank() == 1) return;
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    const RankInGroup self{"data", 0, {0, 1}, "a"};
    const Caught alone = caught([&] {
      Communicator(self, id, rank.resources.watch(), {milliseconds(100), milliseconds(100)});
    });
    EXPECT_EQ(alone.code, ExitCode::Rendezvous);
    EXPECT_EQ(
        alone.text,
        "comm: group \"data\" rank 0 (world rank 0, host a): creating a communicator of 2 ranks: NCCL has not finished "
        "within 0.1 s: a rank is missing, or NCCL cannot reach it; rerun with NCCL_DEBUG=INFO, and check NCCL_SOCKET_IFNAME");
  });
}

TEST_F(NcclFailures, RanksThatDisagreeAreToldInBothRanksWordsWhenTheyCompare) {
  NcclOptions options = quick_options();
  options.compare_calls = true;
  std::atomic<int> told{0};
  const Caught first = caught([&] {
    run_nccl(
        3,
        [&](NcclRank& rank) {
          const DeviceVector<float> data(std::vector<float>(4, 1.f));
          rank.group.all_reduce(data.view(), ReduceOp::Sum, rank.stream);
          const int64_t count = rank.world.rank() == 2 ? 3 : 4;
          const Caught different =
              caught([&] { rank.group.all_reduce(data.view().slice(0, count), ReduceOp::Sum, rank.stream); });
          EXPECT_EQ(different.code, ExitCode::RanksDisagree);
          EXPECT_THAT(different.text,
                      HasSubstr("ranks disagree: rank 0 (world rank 0) runs all_reduce of 4 float32, rank 2 (world "
                                "rank 2) runs all_reduce of 3 float32; all ranks of a group must make the same calls "
                                "in the same order"));
          ++told;
          throw CommError(different.code, different.text);
        },
        options);
  });
  EXPECT_EQ(first.code, ExitCode::RanksDisagree);
  EXPECT_EQ(told, 3);
}

TEST_F(NcclFailures, ARankThatExpectsAnotherCountIsToldWhenTheyCompare) {
  NcclOptions options = quick_options();
  options.compare_calls = true;
  const Caught first = caught([&] {
    run_nccl(
        2,
        [&](NcclRank& rank) {
          const DeviceVector<float> in(std::vector<float>(4, 1.f)), out(std::vector<float>(4, 1.f));
          const int64_t expected = rank.world.rank() == 0 ? 2 : 1;  // of the other rank, which sends 1
          ExchangeCounts counts{{1, 1}, {1, 1}};
          counts.received[1 - rank.world.rank()] = expected;
          rank.group.all_to_all_v(in.view().slice(0, 2), out.view().slice(0, 1 + expected), counts, rank.stream);
          rank.wait();
        },
        options);
  });
  EXPECT_EQ(first.code, ExitCode::RanksDisagree);
  EXPECT_THAT(first.text, HasSubstr("ranks disagree: all_to_all_v of float32: rank 1 (world rank 1) sends 1 elements to this "
                                    "one, which receives 2"));
}

TEST_F(NcclFailures, TwoRanksOnOneGpuAreRefusedBeforeNcclIsAsked) {
  std::atomic<int> told{0};
  run_threads(2, [&](World& world) {  // both on device 0
    DeviceMemory memory;
    MemoryMeter meter;
    const Caught refused = caught([&] { NcclResources(world.group(), memory, meter, [] { return the_current_stream; }); });
    EXPECT_EQ(refused.code, ExitCode::Usage);
    EXPECT_THAT(refused.text,
                MatchesRegex("comm: ranks 0 and 1 \\(host " + host_ +
                             "\\) are both on GPU [0-9a-fA-F:.]+; start no more ranks "
                             "on a host than it has GPUs, each with its own LOCAL_RANK \\(for tests: TRIVET_SHARE_GPU=1\\)"));
    ++told;
    world.close();
  });
  EXPECT_EQ(told, 2);
}

GpuPlace place(const std::string& host, const std::string& bus_id, int64_t pid, int version = NCCL_VERSION_CODE) {
  return {.host = host, .boot_id = "b", .bus_id = bus_id, .pid = pid, .nccl_version = version};
}

TEST(GpuPlaces, SharedByProcessesArePermittedWhenAskedFor) {
  EXPECT_EQ(caught([] { check_places({place("a", "x", 1), place("a", "y", 1), place("b", "x", 1)}, false); }).text, "");
  EXPECT_EQ(caught([] { check_places({place("a", "x", 1), place("a", "x", 2)}, true); }).text, "");
  const Caught threads = caught([] { check_places({place("a", "x", 1), place("a", "x", 1)}, true); });
  EXPECT_EQ(threads.code, ExitCode::Usage);
  EXPECT_EQ(threads.text,
            "comm: ranks 0 and 1 (host a) are threads of one process on GPU x; NCCL allows several ranks on a GPU only "
            "as separate processes: use trivet launch");
}

TEST(GpuPlaces, WithDifferentOrOldVersionsOfNcclAreRefused) {
  const Caught different = caught([] { check_places({place("a", "x", 1), place("b", "x", 1, 23001)}, false); });
  EXPECT_EQ(different.code, ExitCode::VersionSkew);
  EXPECT_EQ(different.text, "comm: rank 0 (host a) has NCCL 2.28.9, rank 1 (host b) has 2.30.1; all ranks need the same");
  cuda_shim::set_nccl_version(21805);
  const Caught old = caught([] { check_places({this_gpu_place()}, false); });
  cuda_shim::set_nccl_version(0);
  EXPECT_EQ(old.code, ExitCode::VersionSkew);
  EXPECT_EQ(old.text, "comm: rank 0 (host " + host_name() +
                          ") has NCCL 2.18.5; this program needs 2.28.0 or newer: install it, or "
                          "put its folder into LD_LIBRARY_PATH");
}

TEST(GpuPlaces, ThatAreSharedMakeEveryRankAHostOfItsOwnForNccl) {
  setenv("TRIVET_SHARE_GPU", "1", 1);
  setenv("NCCL_MAX_CTAS", "4", 1);
  EXPECT_TRUE(shares_gpu());
  prepare_shared_gpu(3);
  EXPECT_STREQ(std::getenv("NCCL_HOSTID"), "trivet-rank-3");
  EXPECT_STREQ(std::getenv("NCCL_NET"), "Socket");
  EXPECT_STREQ(std::getenv("NCCL_SOCKET_IFNAME"), "lo");
  EXPECT_STREQ(std::getenv("NCCL_CUMEM_ENABLE"), "0");
  EXPECT_STREQ(std::getenv("NCCL_MAX_CTAS"), "4");  // it was set before
  for (const char* name : {"TRIVET_SHARE_GPU", "NCCL_HOSTID", "NCCL_NET", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE",
                           "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE",
                           "NCCL_RAS_ENABLE", "NCCL_MAX_CTAS", "NCCL_ALGO", "NCCL_PROTO"})
    unsetenv(name);
  EXPECT_FALSE(shares_gpu());
}

// The fake NCCL does not let these mistakes pass.
TEST_F(NcclFailures, OfOurOwnMakingAreDefects) {
  EXPECT_THROW(run_nccl(2,
                        [](NcclRank& rank) {
                          std::vector<int64_t> on_the_host{1};
                          rank.group.broadcast({on_the_host.data(), DType::Int64, {1}}, 0, rank.stream);
                        }),
               std::logic_error);
  EXPECT_THROW(run_nccl(2,
                        [](NcclRank& rank) {
                          const DeviceVector<int64_t> data(std::vector<int64_t>(4, 1));
                          rank.group.broadcast(data.view().slice(0, 3 + rank.world.rank()), 0, rank.stream);
                          std::this_thread::sleep_for(milliseconds(50));
                          rank.wait();
                        }),
               std::logic_error);
}

}  // namespace
}  // namespace trivet::comm::nccl_failure_test
