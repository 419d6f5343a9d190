// When a rank disagrees with the others, throws, never comes or is killed, all other ranks end at once and say why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <thread>

#include "core/stream.h"
#include "tests/comm/ranks.h"
#include "tests/support/no_more_threads.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

class Failures : public testing::TestWithParam<Kind> {};

using Action = std::function<void(ProcessGroup&, Stream&)>;

// Ranks 0 and 1 of three run `usual`, rank 2 runs `other`. All of them must be told that they disagree, and what both sides
// run: `first` and `second`.
void expect_disagreement(Kind kind, const Action& usual, const Action& other, const std::string& first,
                         const std::string& second) {
  const auto body = [&](World& world) {
    const auto stream = make_inline_stream();
    const Caught caught = catch_comm_error([&] { (world.rank() == 2 ? other : usual)(world.group(), *stream); });
    EXPECT_EQ(caught.code, ExitCode::RanksDisagree) << caught.text;
    EXPECT_THAT(caught.text,
                AllOf(HasSubstr("group \"world\" rank " + std::to_string(world.rank())), HasSubstr("host "),
                      HasSubstr("rank 0 (world rank 0) runs " + first), HasSubstr("rank 2 (world rank 2) runs " + second)));
  };
  run_ranks(kind, 3, body);
}

TEST_P(Failures, RanksThatDisagreeAreAllToldInBothRanksWords) {
  std::vector<float> four(4), three(3), twelve(12), nine(9);
  std::vector<bfloat16> four_short(4);
  std::vector<int64_t> one(1);
  const Action usual = [&](ProcessGroup& group, Stream& stream) {
    auto mine = four;
    group.all_reduce(view(mine), ReduceOp::Sum, stream);
  };
  const auto expect = [&](const Action& other, const std::string& text) {
    expect_disagreement(GetParam(), usual, other, "all_reduce of 4 float32", text);
  };
  expect(
      [&](auto& group, auto& stream) {
        auto mine = three;
        group.all_reduce(view(mine), ReduceOp::Sum, stream);
      },
      "all_reduce of 3 float32");
  expect(
      [&](auto& group, auto& stream) {
        auto mine = four_short;
        group.all_reduce(view(mine), ReduceOp::Sum, stream);
      },
      "all_reduce of 4 bfloat16");
  expect(
      [&](auto& group, auto& stream) {
        auto mine = four;
        group.all_reduce(view(mine), ReduceOp::Max, stream);
      },
      "all_reduce (max) of 4 float32");
  expect(
      [&](auto& group, auto& stream) {
        auto mine = four;
        auto all = twelve;
        group.all_gather(view(mine), view(all), stream);
      },
      "all_gather of 4 float32");
  expect(
      [&](auto& group, auto& stream) {
        auto mine = four;
        group.broadcast(view(mine), 0, stream);
      },
      "broadcast of 4 float32 from rank 0");
  expect([&](auto& group, auto& stream) { group.barrier(stream); }, "barrier");

  const auto broadcast_from = [&](int root) {
    return [&one, root](ProcessGroup& group, Stream& stream) {
      auto mine = one;
      group.broadcast(view(mine), root, stream);
    };
  };
  expect_disagreement(GetParam(), broadcast_from(0), broadcast_from(1), "broadcast of 1 int64 from rank 0",
                      "broadcast of 1 int64 from rank 1");
}

// Both ends of a message must agree on its count and its type: a difference in either one, or in both, is an error.
TEST_P(Failures, OfAMessageAreToldToBothEnds) {
  std::vector<float> four(4), five(5);
  std::vector<int32_t> four_integers(4), five_integers(5);
  const std::pair<TensorView, const char*> others[] = {
      {view(five), "5 float32"}, {view(four_integers), "4 int32"}, {view(five_integers), "5 int32"}};
  for (const auto& [other, text] : others)
    run_ranks(GetParam(), 2, [&, other = other, text = std::string(text)](World& world) {
      const auto stream = make_inline_stream();
      const Caught caught = catch_comm_error([&] {
        if (world.rank() == 0)
          world.group().send(view(four), 1, *stream);
        else
          world.group().receive(other, 0, *stream);
      });
      EXPECT_EQ(caught.code, ExitCode::RanksDisagree) << text;
      EXPECT_THAT(caught.text,
                  AllOf(HasSubstr("runs send of 4 float32 to rank 1"), HasSubstr("runs receive of " + text + " from rank 0")));
    });
}

// Rank 0 sends rank 2 one element more than rank 2 expects. Rank 1 learns of it in this operation or in the next.
TEST_P(Failures, OfTheCountsOfAllToAllVAreToldToAll) {
  run_ranks(GetParam(), 3, [](World& world) {
    const auto stream = make_inline_stream();
    std::vector<float> in(world.rank() == 0 ? 7 : 6), out(6);
    ExchangeCounts counts{{2, 2, 2}, {2, 2, 2}};
    if (world.rank() == 0) counts.sent = {2, 2, 3};
    const Caught caught = catch_comm_error([&] {
      world.group().all_to_all_v(view(in), view(out), counts, *stream);
      EXPECT_EQ(world.rank(), 1);
      world.group().barrier(*stream);
    });
    EXPECT_EQ(caught.code, ExitCode::RanksDisagree);
    EXPECT_THAT(caught.text, HasSubstr("rank 0 (world rank 0) runs all_to_all_v of float32 with 3 elements for rank 2, rank 2 "
                                       "(world rank 2) runs all_to_all_v of float32 with 2 elements from rank 0"));
  });
}

// A message and a collective operation use different counters: without a check they would wait for each other forever.
TEST_P(Failures, AMessageOnOneSideAndACollectiveOnTheOtherAreToldToAll) {
  for (bool sends : {true, false})
    run_ranks(GetParam(), 3, [sends](World& world) {
      const auto stream = make_inline_stream();
      std::vector<float> four(4);
      if (world.rank() < 2) {  // first a message as it should be
        if (world.rank() == 0)
          world.group().send(view(four), 1, *stream);
        else
          world.group().receive(view(four), 0, *stream);
      }
      world.group().barrier(*stream);
      if (world.rank() == 1) std::this_thread::sleep_for(milliseconds(30));
      const Caught caught = catch_comm_error([&] {
        if (world.rank() != 2)
          world.group().all_reduce(view(four), ReduceOp::Sum, *stream);
        else if (sends)
          world.group().send(view(four), 0, *stream);
        else
          world.group().receive(view(four), 1, *stream);
      });
      const std::string rank = sends ? "rank 0 (world rank 0)" : "rank 1 (world rank 1)";
      EXPECT_EQ(caught.code, ExitCode::RanksDisagree);
      EXPECT_THAT(caught.text, AllOf(HasSubstr(rank + " runs all_reduce of 4 float32"),
                                     HasSubstr(sends ? "rank 2 (world rank 2) runs send of 4 float32 to rank 0"
                                                     : "rank 2 (world rank 2) runs receive of 4 float32 from rank 1")));
    });
}

TEST_P(Failures, ARankThatNeverEntersIsNamedAtTheDeadline) {
  WorldOptions options;
  options.operation_deadline = milliseconds(200);
  run_ranks(
      GetParam(), 3,
      [](World& world) {
        if (world.rank() == 1) return std::this_thread::sleep_for(milliseconds(700));  // alive, but busy elsewhere
        const auto stream = make_inline_stream();
        std::vector<int64_t> data(10);
        const Caught caught = catch_comm_error([&] { world.group().all_reduce(view(data), ReduceOp::Sum, *stream); });
        EXPECT_EQ(caught.code, ExitCode::NoProgress);
        EXPECT_THAT(caught.text, AllOf(HasSubstr("rank 1 "), HasSubstr("has not entered all_reduce of 10 int64"),
                                       HasSubstr("within 0.2 s")));
      },
      options);
}

TEST_P(Failures, AnErrorOfQueuedWorkIsThrownWhereTheStreamIsWaitedFor) {
  run_ranks(GetParam(), 2, [](World& world) {
    const auto stream = make_thread_stream("communication");
    std::vector<float> data(10 + world.rank());
    world.group().all_reduce(view(data), ReduceOp::Sum, *stream);
    world.group().barrier(*stream);
    EXPECT_EQ(catch_comm_error([&] { stream->synchronize(); }).code, ExitCode::RanksDisagree);
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, Failures, testing::ValuesIn(kAllKinds),
                         [](const auto& given) { return to_string(given.param); });

// Ranks that are threads of one process, whatever their world runs over.
class RanksAsThreads : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, RanksAsThreads, testing::Values(Kind::Threads, Kind::Sockets),
                         [](const auto& given) { return to_string(given.param); });

TEST_P(RanksAsThreads, ThrowTheFirstExceptionWhenAllOfThemHaveEnded) {
  std::atomic<int> lost{0}, ready{0};
  try {
    run_ranks(GetParam(), 4, [&](World& world) {
      const auto stream = make_inline_stream();
      world.group().barrier(*stream);
      ++ready;
      while (world.rank() == 2 && ready < 4) std::this_thread::yield();  // a rank may leave the barrier later than rank 2
      if (world.rank() == 2) throw std::runtime_error("the disk is on fire");
      const Caught caught = catch_comm_error([&] { world.group().barrier(*stream); });
      EXPECT_EQ(caught.code, ExitCode::PeerLost);
      EXPECT_THAT(caught.text,
                  AllOf(HasSubstr("lost rank 2"), HasSubstr("during barrier"), HasSubstr("abort: the disk is on fire")));
      ++lost;
      throw CommError(caught.code, caught.text);
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the disk is on fire");
  }
  EXPECT_EQ(lost, 3);
}

TEST_P(RanksAsThreads, NameOneThatEndsWhileOthersWaitForIt) {
  run_ranks(GetParam(), 3, [&](World& world) {
    if (world.rank() == 1) return;
    const auto stream = make_inline_stream();
    const Caught caught = catch_comm_error([&] { world.group().barrier(*stream); });
    EXPECT_EQ(caught.code, ExitCode::PeerLost);
    EXPECT_THAT(caught.text, AllOf(HasSubstr("lost rank 1"), HasSubstr("ended without entering barrier")));
  });
}

TEST_P(RanksAsThreads, SeeAnAbortInGroupsThatTheRankIsNotIn) {
  const auto body = [](World& world) {
    const auto pair = world.group().subgroup({0, 2}, "pair");
    if (world.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      return world.abort("loss is not finite");
    }
    const auto stream = make_inline_stream();
    std::vector<float> data(8);
    const Caught caught = catch_comm_error([&] {
      if (world.rank() == 0)
        pair->receive(view(data), 1, *stream);
      else
        world.group().barrier(*stream);
    });
    EXPECT_EQ(caught.code, ExitCode::PeerLost);
    EXPECT_THAT(caught.text, AllOf(HasSubstr("lost rank 1"), HasSubstr("abort: loss is not finite")));
  };
  EXPECT_NO_THROW(run_ranks(GetParam(), 3, body));
}

// The first accusation stays; later subscribers hear the same one.
TEST(JobState, KeepsTheFirstAccusation) {
  JobState job;
  std::vector<int> heard;
  job.subscribe([&](const Accusation& accusation) { heard.push_back(accusation.world_rank); });
  EXPECT_FALSE(job.accused());
  EXPECT_FALSE(job.wait_for(milliseconds(1)));
  job.accuse({5, "c", ExitCode::PeerLost, "eof"});
  job.accuse({3, "b", ExitCode::PeerLost, "eof"});
  EXPECT_TRUE(job.wait_for(milliseconds(1)));
  EXPECT_EQ(job.accusation()->world_rank, 5);
  job.subscribe([&](const Accusation& accusation) { heard.push_back(10 + accusation.world_rank); });
  EXPECT_EQ(heard, (std::vector<int>{5, 15}));
}

// State that the killed rank and the test share.
struct Watch {
  std::atomic<int> operations{0};  // that the victim has entered
  std::atomic<int> lost{-1};
};

// Runs collectives until a peer is lost. A watcher thread stands in for the liveness monitor.
void work_until_a_peer_is_lost(World& world, JobState& job, Watch& watch) {
  std::atomic<bool> over{false};
  steady_clock::time_point told;
  std::thread watcher([&] {
    while (watch.lost < 0 && !over) std::this_thread::sleep_for(milliseconds(1));
    told = steady_clock::now();
    job.accuse({watch.lost, "here", ExitCode::PeerLost, "eof"});
  });
  const auto stream = make_inline_stream();
  std::vector<float> data(1 << 18);
  const Caught caught = catch_comm_error([&] {
    for (;;) {
      world.group().all_reduce(view(data), ReduceOp::Max, *stream);
      if (world.rank() == 1) ++watch.operations;
    }
  });
  over = true;
  watcher.join();
  EXPECT_LT(steady_clock::now() - told, milliseconds(20000));  // the deadline for an operation is 600 s
  EXPECT_EQ(caught.code, ExitCode::PeerLost);
  EXPECT_THAT(caught.text, AllOf(HasSubstr("lost rank 1 (host here) during all_reduce (max) of 262144 float32: eof")));
}

TEST(ShmWorld, SurvivorsOfAKilledRankEndSoonAndNameIt) {
  const SharedPage page(4096);
  auto* watch = new (page.data()) Watch;
  for (int after : {1, 2, 7, 40}) {
    watch->operations = 0;
    watch->lost = -1;
    Processes processes(3, [&](World& world, JobState& job) { work_until_a_peer_is_lost(world, job, *watch); });
    while (watch->operations < after) std::this_thread::sleep_for(std::chrono::microseconds(100));
    kill(processes.pid(1), SIGKILL);
    EXPECT_EQ(processes.wait(1), 128 + SIGKILL);
    watch->lost = 1;
    EXPECT_EQ(processes.wait(0), 0);
    EXPECT_EQ(processes.wait(2), 0);
  }
  EXPECT_EQ(leftovers(), std::vector<std::string>{});
}

// The system refuses to start further threads, as it does at the limit of ulimit -u, while the ranks that were started wait for
// those that never come.
TEST(RunThreads, ThatCannotStartARankEndsTheOthersAndThrows) {
  if (!test::threads_can_be_refused()) GTEST_SKIP() << "sanitizers need more address space than a limit would leave";
  EXPECT_EXIT(
      {
        test::refuse_threads_soon();
        try {
          run_threads(200, [](World& world) {
            const auto stream = make_inline_stream();
            world.group().barrier(*stream);
          });
        } catch (const std::system_error& error) {
          std::_Exit(error.code().value() == EAGAIN ? 7 : 8);
        }
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace trivet::comm
