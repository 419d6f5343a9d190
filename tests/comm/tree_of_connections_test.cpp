// The control plane as a tree over real connections: jobs of threads, each of which takes part as a rank of some host. (What
// faults do to a tree in virtual time: control_plane_test.cpp.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <set>

#include "tests/comm/live_job.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr int kHosts = 4, kPerHost = 3, kRanks = kHosts * kPerHost;

void place(RendezvousOptions& options, int per_host) {
  options.self.host = "h" + std::to_string(options.self.rank / per_host);
  options.host = RendezvousOptions::Host{options.self.rank % per_host, per_host};
}

// Four hosts of three ranks: the nodes 3 and 6 are below rank 0, and node 9 is below node 3.
void in_a_tree(RendezvousOptions& options) {
  place(options, kPerHost);
  options.star_ranks = 1;
  options.fan_out = 2;
  options.join_deadline = milliseconds(10000);
}

std::vector<int> all_but(const std::set<int>& ranks) {
  std::vector<int> others;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (!ranks.contains(rank)) others.push_back(rank);
  }
  return others;
}

TEST(TreeOfConnections, ConnectsEachRankToItsNodeAndEachNodeToItsParent) {
  Meeting meeting(kRanks);
  std::vector<Joined> joined(kRanks);
  std::atomic<int> count{0};
  std::vector<std::function<void()>> bodies;
  for (int rank = 0; rank < kRanks; ++rank) {
    bodies.push_back([&, rank] {
      RendezvousOptions options = meeting.options(rank);
      in_a_tree(options);
      joined[rank] = rendezvous(std::move(options));
      ++count;
      while (count < kRanks) joined[rank].driver->step(in(10));  // others may have to join below this rank
    });
  }
  for (const Outcome& outcome : meeting.run(bodies)) ASSERT_EQ(outcome.error, "");
  for (const Joined& one : joined) {
    const control::Tree& tree = one.driver->node().table().tree;
    EXPECT_EQ(tree.levels(), 3);
    for (int rank = 1; rank < kRanks; ++rank)
      EXPECT_EQ(tree.parent(rank), rank % kPerHost != 0 ? rank - rank % kPerHost : rank == 9 ? 3 : 0) << rank;
    EXPECT_EQ(one.members[7].host, "h2");
  }
  const auto neighbours = [&](int rank) { return joined[rank].driver->node().neighbours(); };
  EXPECT_THAT(neighbours(11), ElementsAre(9));
  EXPECT_THAT(neighbours(9), UnorderedElementsAre(3, 10, 11));
  EXPECT_THAT(neighbours(6), UnorderedElementsAre(0, 7, 8));
}

TEST(TreeOfConnections, MeetsAndSharesItsStore) {
  Job job(kRanks, in_a_tree);
  const auto outcomes = job.each([&](int rank) {
    if (rank == 10) job[rank].store().set("from 10", "to all");
    EXPECT_EQ(job[rank].store().get("from 10", kUntilItHappens), "to all");
    for (int round = 0; round < 5; ++round) job[rank].meet("round " + std::to_string(round), kUntilItHappens);
    job[rank].close(kUntilItHappens);
    job.kill(rank);
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(outcomes[rank].error, "") << "rank " << rank;
    EXPECT_FALSE(job.state(rank).accused()) << "rank " << rank;
  }
}

TEST(TreeOfConnections, NamesWhoDoesNotComeToAMeeting) {
  Job job(kRanks, in_a_tree);
  const auto outcomes = job.each([&](int rank) {
    if (rank != 3 && rank != 11) job[rank].meet("there", milliseconds(1000));
  });
  for (int rank : all_but({3, 11}))
    EXPECT_EQ(outcomes[rank].error, "ranks 3,11 are alive but have not reached \"there\" within 1 s: computing or stuck");
}

class ADeath : public ::testing::TestWithParam<int> {};

TEST_P(ADeath, IsNamedByAllWhileAllStay) {
  Job job(kRanks, in_a_tree);
  job.kill(GetParam());
  job.expect_accused(GetParam(), "e", all_but({GetParam()}));  // "eof" or "reset"
}

// A rank that notices leaves at once, as a program that throws does. So the ranks between others and the root disappear, too.
TEST_P(ADeath, IsNamedByAllWhileTheOthersLeave) {
  Job job(kRanks, in_a_tree);
  job.kill(GetParam());
  job.each([&](int rank) {
    EXPECT_TRUE(job.state(rank).wait_for(kUntilItHappens));
    job.kill(rank);
  });
  job.expect_accused(GetParam(), "e", all_but({GetParam()}));
}

// The root; a node with a node below it; a node without one; a rank far from the root.
INSTANTIATE_TEST_SUITE_P(TreeOfConnections, ADeath, ::testing::Values(0, 3, 9, 11));

TEST(TreeOfConnections, NamesOneRankOfAHostThatDies) {
  Job job(kRanks, in_a_tree);
  std::vector<std::thread> deaths;
  for (int rank : {3, 4, 5}) deaths.emplace_back([&, rank] { job.kill(rank); });
  for (std::thread& death : deaths) death.join();
  const std::vector<int> survivors = all_but({3, 4, 5});
  for (int rank : survivors) ASSERT_TRUE(job.state(rank).wait_for(kUntilItHappens)) << "rank " << rank << " noticed nothing";
  const int culprit = job.state(0).accusation()->world_rank;
  EXPECT_THAT(culprit, ::testing::AnyOf(3, 4, 5));
  job.expect_accused(culprit, "e", survivors);
}

// Somebody else holds the name at which the ranks of host 1 look for their node.
class ATakenName : public ::testing::TestWithParam<bool> {};

TEST_P(ATakenName, DoesNotKeepAHostFromJoining) {
  Meeting meeting(kRanks);
  std::vector<std::function<void()>> bodies;
  std::atomic<int> count{0};
  std::vector<int> neighbours_of_four;
  RendezvousOptions on_host_one = meeting_options(3, kRanks, meeting.port());
  in_a_tree(on_host_one);
  const auto taken = listen_on_this_host(name_of_node(on_host_one));
  ASSERT_TRUE(taken);
  for (int rank = 0; rank < kRanks; ++rank) {
    bodies.push_back([&, rank] {
      RendezvousOptions options = meeting.options(rank);
      in_a_tree(options);
      options.node_deadline = milliseconds(300);
      const Joined joined = rendezvous(std::move(options));
      if (rank == 4) neighbours_of_four = joined.driver->node().neighbours();
      ++count;
      while (count < kRanks) joined.driver->step(in(10));
    });
  }
  bodies.push_back([&] {
    std::vector<Descriptor> visitors;
    for (const TimePoint until = in(20000); count < kRanks && std::chrono::steady_clock::now() < until;) {
      auto visitor = accept_from(*taken);
      if (!visitor) {
        std::this_thread::sleep_for(milliseconds(5));
        continue;
      }
      const std::string garbage(500, 'x');
      if (GetParam()) ::send(visitor->number(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
      visitors.push_back(std::move(*visitor));
    }
  });
  for (const Outcome& outcome : meeting.run(bodies)) EXPECT_EQ(outcome.error, "");
  EXPECT_THAT(neighbours_of_four, ElementsAre(0));
}

INSTANTIATE_TEST_SUITE_P(TreeOfConnections, ATakenName, ::testing::Values(false, true),
                         [](const auto& param) { return param.param ? "ByOneThatSendsGarbage" : "ByOneThatIsSilent"; });

// It keeps its connections, as a host does whose network is gone, and what is below it hears nothing more from the root.
TEST(TreeOfConnections, NamesANodeThatFallsSilent) {
  constexpr int kSilent = 3;
  Meeting meeting(kRanks);
  std::vector<std::shared_ptr<JobState>> states(kRanks);
  std::vector<std::unique_ptr<Liveness>> ranks(kRanks);
  Joined mute;
  std::vector<std::function<void()>> bodies;
  for (int rank = 0; rank < kRanks; ++rank) {
    bodies.push_back([&, rank] {
      RendezvousOptions options = meeting.options(rank);
      in_a_tree(options);
      options.beat = milliseconds(20);
      options.silence = milliseconds(1000);
      states[rank] = std::make_shared<JobState>();
      Joined joined = rendezvous(std::move(options));
      if (rank == kSilent) {
        // It goes on until the nodes below it have joined.
        for (const TimePoint until = in(300); std::chrono::steady_clock::now() < until;) joined.driver->step(until);
        mute = std::move(joined);
      } else {
        ranks[rank] = std::make_unique<Liveness>(std::move(joined), rank, LivenessOptions{}, states[rank]);
      }
    });
  }
  for (const Outcome& outcome : meeting.run(bodies)) ASSERT_EQ(outcome.error, "");
  for (int rank : all_but({kSilent})) {
    ASSERT_TRUE(states[rank]->wait_for(kUntilItHappens)) << "rank " << rank << " noticed nothing";
    EXPECT_EQ(states[rank]->accusation()->world_rank, kSilent) << "rank " << rank;
    EXPECT_EQ(states[rank]->accusation()->cause, "silent") << "rank " << rank;
  }
}

// As the options are in a job: up to 100 ranks all join at the root, and more than that become a tree.
TEST(TreeOfConnections, IsWhatALargeJobUses) {
  constexpr int kMany = 104, kOfAHost = 8;
  Job job(kMany, [](RendezvousOptions& options) {
    place(options, kOfAHost);
    options.beat = milliseconds(100);
    options.join_deadline = milliseconds(30000);
  });
  for (const Outcome& outcome : job.each([&](int rank) { job[rank].meet("there", milliseconds(20000)); }))
    EXPECT_EQ(outcome.error, "");
  job.kill(97);
  std::vector<int> others;
  for (int rank = 0; rank < kMany; ++rank) {
    if (rank != 97) others.push_back(rank);
  }
  job.expect_accused(97, "e", others);
}

}  // namespace
}  // namespace trivet::comm
