// How a group over a transport ends when a connection ends, and that groups of one transport are independent. What its
// operations compute is tested together with the other kinds of world (Kind::Sockets in ranks.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/transport/transport_world.h"
#include "core/stream.h"
#include "tests/comm/ranks.h"
#include "tests/comm/socket_transport.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

using WorldBody = std::function<void(std::unique_ptr<World> world, JobState& job)>;

// Each rank has a job state of its own, as in processes, and nobody watches over them.
void run_unwatched(int ranks, const WorldBody& body) {
  SocketPairs sockets(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      RankInGroup self{.group = "world", .rank = rank, .host = "here"};
      for (int r = 0; r < ranks; ++r) self.world_ranks.push_back(r);
      const auto job = std::make_shared<JobState>();
      body(make_transport_world(sockets.transport_of(rank), self, {.state = job}), *job);
    });
  for (auto& thread : threads) thread.join();
}

TEST(TransportGroup, ARankWhoseConnectionEndsIsLost) {
  std::atomic<int> noticed{0};
  run_unwatched(3, [&](std::unique_ptr<World> world, JobState& job) {
    const auto stream = make_inline_stream();
    world->group().barrier(*stream);
    if (world->rank() == 1) return;
    const Caught caught = catch_comm_error([&] { world->group().barrier(*stream); });
    EXPECT_EQ(caught.code, ExitCode::PeerLost);
    EXPECT_THAT(caught.text, AllOf(HasSubstr("group \"world\" rank " + std::to_string(world->rank())),
                                   HasSubstr("lost rank 1 (host here) during barrier: its connection ended: ")));
    EXPECT_EQ(job.accusation()->world_rank, 1);
    for (++noticed; noticed < 2;) std::this_thread::yield();  // so that nobody sees the end of this one
  });
}

// The rank sends it only when the other one has asked whether it has ended.
TEST(TransportGroup, TheLastMessageOfARankThatHasEndedIsWaitedForUntilItsConnectionEnds) {
  SocketPairs sockets(2);
  std::atomic<int> asked{0};
  const auto run = [&](int rank) {
    const RankInGroup self{.group = "world", .rank = rank, .world_ranks = {0, 1}, .host = "here"};
    JobView job{.state = std::make_shared<JobState>(), .has_ended = [&](int) { return ++asked > 0; }};
    const auto world = make_transport_world(sockets.transport_of(rank), self, std::move(job));
    while (rank == 1 && asked < 2) std::this_thread::yield();
    EXPECT_EQ(catch_comm_error([&] { world->group().barrier(*make_inline_stream()); }).text, "");
    if (rank == 1) return;
    EXPECT_THAT(catch_comm_error([&] { world->group().barrier(*make_inline_stream()); }).text,
                HasSubstr("lost rank 1 (host here) during barrier: ended without entering barrier"));
  };
  std::thread one(run, 1);
  run(0);
  one.join();
}

// Rank 1 leaves because rank 2 is lost, and rank 0 sees the end of its connection first.
TEST(TransportGroup, ARankThatLeavesBecauseOfAnotherIsNotBlamed) {
  std::atomic<bool> noticed{false};
  run_unwatched(3, [&](std::unique_ptr<World> world, JobState& job) {
    const auto stream = make_inline_stream();
    if (world->rank() == 1) return;
    while (world->rank() == 2 && !noticed) std::this_thread::yield();
    if (world->rank() == 2) return;
    std::thread liveness([&] {
      std::this_thread::sleep_for(milliseconds(50));
      job.accuse({2, "there", ExitCode::PeerLost, "silent"});
    });
    const Caught caught = catch_comm_error([&] { world->group().barrier(*stream); });
    noticed = true;
    liveness.join();
    EXPECT_THAT(caught.text, HasSubstr("lost rank 2 (host there) during barrier: silent"));
  });
}

TEST(TransportGroup, EveryRankSeesADisagreementByItself) {
  run_unwatched(3, [](std::unique_ptr<World> world, JobState&) {
    std::vector<float> data(world->rank() == 2 ? 3 : 4);
    const Caught caught =
        catch_comm_error([&] { world->group().all_reduce(view(data), ReduceOp::Sum, *make_inline_stream()); });
    EXPECT_EQ(caught.code, ExitCode::RanksDisagree);
    EXPECT_THAT(caught.text, HasSubstr("rank 0 (world rank 0) runs all_reduce of 4 float32, rank 2 (world rank 2) runs "
                                       "all_reduce of 3 float32"));
  });
}

// Rank 0 sends rank 2 one element more than rank 2 expects.
TEST(TransportGroup, BothRanksOfAPairSeeByThemselvesThatTheirCountsDiffer) {
  std::atomic<int> looked{0};
  run_unwatched(3, [&](std::unique_ptr<World> world, JobState&) {
    if (world->rank() == 1) {  // sees nothing wrong, and must not leave before the others have looked
      std::vector<float> data(6), out(6);
      catch_comm_error([&] {
        world->group().all_to_all_v(view(data), view(out), {{2, 2, 2}, {2, 2, 2}}, *make_inline_stream());
      });
      while (looked < 2) std::this_thread::yield();
      return;
    }
    std::vector<float> in(world->rank() == 0 ? 7 : 6), out(6);
    const ExchangeCounts counts{{2, 2, world->rank() == 0 ? 3 : 2}, {2, 2, 2}};
    const Caught caught =
        catch_comm_error([&] { world->group().all_to_all_v(view(in), view(out), counts, *make_inline_stream()); });
    ++looked;
    EXPECT_THAT(caught.text, HasSubstr("rank 0 (world rank 0) runs all_to_all_v of float32 with 3 elements for rank 2, rank 2 "
                                       "(world rank 2) runs all_to_all_v of float32 with 2 elements from rank 0"));
  });
}

// Ranks 0 and 1 are in both pairs, which have different first ranks in different parents, and make them at the same time.
TEST(TransportGroup, GroupsThatAreMadeAtTheSameTimeDoNotMix) {
  run_ranks(Kind::Sockets, 3, [](World& world) {
    const auto first = world.group().subgroup({0, 1, 2}, "first"), second = world.group().subgroup({0, 1, 2}, "second");
    for (int i = 0; i < 20; ++i) {
      std::unique_ptr<ProcessGroup> ones, twos;
      std::thread other([&] { ones = first->subgroup({0, 1}, "ones"); });
      twos = second->subgroup({0, 1}, "twos");
      other.join();
      if (!ones) continue;
      const auto one = make_thread_stream("one"), two = make_thread_stream("two");
      std::vector<int64_t> a(1000, 1), b(1000, 2);
      ones->all_reduce(view(a), ReduceOp::Sum, *one);
      twos->all_reduce(view(b), ReduceOp::Sum, *two);
      one->synchronize();
      two->synchronize();
      EXPECT_EQ(a, std::vector<int64_t>(1000, 2));
      EXPECT_EQ(b, std::vector<int64_t>(1000, 4));
    }
    world.close();
  });
}

// Rank 0 names one group, rank 1 the other, and ranks 1 and 2 are in both.
TEST(TransportGroup, GroupsThatDifferentRanksNameDoNotMix) {
  run_ranks(Kind::Sockets, 3, [](World& world) {
    const auto all = world.group().subgroup({0, 1, 2}, "all"), some = world.group().subgroup({1, 2}, "some");
    const auto one = make_thread_stream("one"), two = make_thread_stream("two");
    std::vector<int64_t> a(100000, 1), b(100000, 1);
    for (int i = 0; i < 5; ++i) {
      all->all_reduce(view(a), ReduceOp::Sum, *one);
      if (some) some->all_reduce(view(b), ReduceOp::Sum, *two);
    }
    one->synchronize();
    two->synchronize();
    EXPECT_EQ(a, std::vector<int64_t>(100000, 243));
    EXPECT_EQ(b, std::vector<int64_t>(100000, some ? 32 : 1));
    world.close();
  });
}

TEST(TransportGroup, SendReturnsWhenThePeerHasTheData) {
  std::atomic<bool> receiving{false};
  run_ranks(Kind::Sockets, 2, [&](World& world) {
    const auto stream = make_inline_stream();
    std::vector<float> data(4);
    if (world.rank() == 0) {
      world.group().send(view(data), 1, *stream);
      EXPECT_TRUE(receiving);
    } else {
      std::this_thread::sleep_for(milliseconds(50));
      receiving = true;
      world.group().receive(view(data), 0, *stream);
    }
    world.close();
  });
}

TEST(TransportWorld, NeedsItsOwnTransport) {
  SocketPairs sockets(2);
  RankInGroup self{.group = "world", .rank = 0, .world_ranks = {0, 1}, .host = "here"};
  EXPECT_THROW(make_transport_world(sockets.transport_of(1), self, {.state = std::make_shared<JobState>()}), std::logic_error);
}

}  // namespace
}  // namespace trivet::comm
