// One node of the control plane, and what it does with messages that no correct node sends. Whole jobs are in
// control_plane_test.cpp.
#include "comm/control/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::comm::control {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Two ranks of one host, and one of a second one that hangs below rank 1's place: 0 <- 1, 0 <- 2 <- 3.
constexpr int kNodes[] = {0, 0, 2, 2};

TimePoint at(int ms) { return TimePoint{} + milliseconds(1000 + ms); }

Seat seat_of(int rank) {
  Seat seat;
  seat.member = {.rank = rank, .world_size = 4, .job_id = "c0ffee", .build = "b", .host = "a", .pid = 100 + rank};
  seat.node = kNodes[rank] == rank ? rank : -1;
  if (seat.node >= 0) seat.address = std::to_string(rank);
  return seat;
}

Seat seat_below(int rank, int node) {
  Seat seat = seat_of(rank);
  seat.node = node;
  return seat;
}

Node node_of(int rank, int ranks_here = 0) {
  NodeOptions options;
  options.self = seat_of(rank);
  options.entrance = rank == 3 ? "2" : "0";
  options.root = "0";
  options.ranks_here = ranks_here;
  options.join_deadline = milliseconds(3000);
  return Node(options, at(0));
}

constexpr LinkId kOne = 1, kTwo = 2, kStranger = 3;

// The root with rank 1 on connection kOne, and ranks 2 and 3 on kTwo.
Node running_root() {
  Node root = node_of(0);
  root.accepted(kOne, at(0));
  root.accepted(kTwo, at(0));
  root.receive(kOne, Join{{seat_of(1)}}, at(1));
  root.receive(kTwo, Join{{seat_of(2), seat_below(3, 2)}}, at(2));
  EXPECT_TRUE(root.running());
  root.take_actions();
  return root;
}

template <typename Event>
std::vector<Event> events_of(const Actions& actions) {
  std::vector<Event> found;
  for (const Message& event : actions.events) {
    if (const auto* one = std::get_if<Event>(&event)) found.push_back(*one);
  }
  return found;
}

// "1 Welcome" for a message to connection 1; heartbeats are left out.
std::string sent(const Actions& actions) {
  std::string text;
  for (const auto& send : actions.sends) {
    if (std::holds_alternative<Heartbeat>(send.message)) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(send.link) + " " + name_of(send.message);
  }
  return text;
}

TEST(ControlTree, HangsRanksBelowTheNodeOfTheirHostAndNodesBelowEachOther) {
  std::vector<int> node_of;
  for (int rank = 0; rank < 14; ++rank) node_of.push_back(rank / 2 * 2);
  const Tree tree(node_of, 2);  // hosts: 0 <- 1, 2; 1 <- 3, 4; 2 <- 5, 6
  const std::vector<int> parents{-1, 0, 0, 2, 0, 4, 2, 6, 2, 8, 4, 10, 4, 12}, depths{0, 1, 1, 2, 1, 2, 2, 3, 2, 3, 2, 3, 2, 3};
  for (int rank = 0; rank < 14; ++rank) {
    EXPECT_EQ(tree.parent(rank), parents[rank]) << rank;
    EXPECT_EQ(tree.depth(rank), depths[rank]) << rank;
  }
  EXPECT_EQ(tree.below(0), 14);
  EXPECT_EQ(tree.below(2), 6);
  EXPECT_EQ(tree.below(13), 1);
  EXPECT_TRUE(tree.is_below(9, 2));
  EXPECT_FALSE(tree.is_below(9, 4));
}

TEST(ControlTree, IsThreeLevelsOfHostsFor2048) {
  std::vector<int> node_of;
  for (int rank = 0; rank < 16384; ++rank) node_of.push_back(rank / 8 * 8);
  const Tree tree(node_of);
  EXPECT_EQ(tree.depth(2047 * 8), 3);
  EXPECT_EQ(tree.depth(2047 * 8 + 7), 4);
  EXPECT_EQ(tree.below(0), 16384);
  EXPECT_EQ(Tree({0, 1, 2, 3}).depth(3), 1) << "up to 33 hosts, all nodes are children of the root";
}

TEST(ControlNode, ANodeSendsOneJoinForAllRanksOfItsHost) {
  Node node = node_of(2, 2);
  const Actions first = node.take_actions();
  ASSERT_EQ(first.calls.size(), 1u);
  EXPECT_EQ(first.calls[0].address, "0");
  node.connected(Purpose::Join, kOne, at(1));
  EXPECT_EQ(sent(node.take_actions()), "") << "it waits for rank 3";
  node.accepted(kTwo, at(2));
  node.receive(kTwo, Join{{seat_of(3)}}, at(3));
  const Actions actions = node.take_actions();
  EXPECT_EQ(sent(actions), "2 a Welcome, 1 a Join");
  const auto& join = std::get<Join>(actions.sends[1].message);
  ASSERT_EQ(join.seats.size(), 2u);
  EXPECT_EQ(join.seats[1].member.rank, 3);
  EXPECT_EQ(join.seats[1].node, 2);
}

TEST(ControlNode, ANodeDoesNotWaitForLongForTheRanksOfItsHost) {
  Node node = node_of(2, 2);
  node.connected(Purpose::Join, kOne, at(1));
  node.take_actions();
  node.tick(at(100));
  EXPECT_EQ(sent(node.take_actions()), "1 a Join");
}

TEST(ControlNode, AJoinerThatIsSentAwayTriesAgainAndSaysEverythingAgain) {
  Node node = node_of(2, 1);
  node.connected(Purpose::Join, kOne, at(1));
  EXPECT_EQ(sent(node.take_actions()), "1 a Join");
  node.ended(kOne, "eof", at(2));
  node.tick(at(100));
  ASSERT_EQ(node.take_actions().calls.size(), 1u);
  node.connected(Purpose::Join, kTwo, at(101));
  EXPECT_EQ(sent(node.take_actions()), "2 a Join");
}

TEST(ControlNode, TheRootRefusesWhoIsNotOfThisJob) {
  Node root = node_of(0);
  root.accepted(kStranger, at(0));
  Seat stale = seat_of(1);
  stale.member.epoch = 7;
  root.receive(kStranger, Join{{stale}}, at(1));
  const Actions actions = root.take_actions();
  EXPECT_EQ(sent(actions), "3 a Refuse");
  EXPECT_EQ(actions.ends, std::vector<LinkId>{kStranger});
  EXPECT_TRUE(actions.events.empty()) << "the others go on";
}

TEST(ControlNode, TheRootRefusesASecondHolderOfARankAndLeavesTheFirstAlone) {
  Node root = node_of(0);
  root.accepted(kOne, at(0));
  root.accepted(kStranger, at(0));
  root.receive(kOne, Join{{seat_of(1)}}, at(1));
  root.take_actions();
  Seat second = seat_of(1);
  second.member.pid = 999;
  root.receive(kStranger, Join{{second}}, at(2));
  const Actions actions = root.take_actions();
  EXPECT_EQ(sent(actions), "3 a Refuse");
  EXPECT_EQ(std::get<Refuse>(actions.sends[0].message).refusal.reason, "rank 1 is already held by pid 101 on host a");
}

TEST(ControlNode, TheEndOfARankThatHasJoinedEndsTheRendezvousForAll) {
  Node root = node_of(0);
  for (LinkId link : {kOne, kTwo}) root.accepted(link, at(0));
  root.receive(kOne, Join{{seat_of(1)}}, at(1));
  root.receive(kTwo, Join{{seat_of(2)}}, at(1));
  root.take_actions();
  root.ended(kOne, "eof", at(5));
  const Actions actions = root.take_actions();
  EXPECT_EQ(sent(actions), "2 a Refuse");
  ASSERT_EQ(events_of<Refuse>(actions).size(), 1u);
  EXPECT_EQ(events_of<Refuse>(actions)[0].refusal.reason, "rank 1 (a, pid 101) left during the rendezvous");
}

TEST(ControlNode, TheRootNamesTheMissingRanksAtTheDeadlineAndNotBefore) {
  Node root = node_of(0);
  root.accepted(kTwo, at(0));
  root.receive(kTwo, Join{{seat_of(2)}}, at(1));
  root.tick(at(2999));
  EXPECT_TRUE(root.take_actions().events.empty());
  root.tick(at(3000));
  const Actions actions = root.take_actions();
  ASSERT_EQ(events_of<Refuse>(actions).size(), 1u);
  EXPECT_EQ(events_of<Refuse>(actions)[0].refusal.reason, "2 of 4 ranks did not join in 3 s: 1,3");
}

TEST(ControlNode, WhoComesAfterTheTableIsToldWhoHoldsTheRank) {
  Node root = running_root();
  root.accepted(kStranger, at(10));
  root.receive(kStranger, Join{{seat_of(1)}}, at(11));
  const Actions actions = root.take_actions();
  EXPECT_EQ(std::get<Refuse>(actions.sends.at(0).message).refusal.reason, "rank 1 is already held by pid 101 on host a");
  EXPECT_TRUE(actions.events.empty());
}

// The node has let it in before it had the table, and passes it on to the root, which has the table already.
TEST(ControlNode, ALatecomerThatItsNodePassesOnIsRefusedAndTheJobGoesOn) {
  Node root = running_root();
  Seat late = seat_below(3, 2);
  late.member.pid = 999;
  root.receive(kTwo, Join{{late}}, at(10));
  const Actions actions = root.take_actions();
  ASSERT_EQ(sent(actions), "2 a Refuse");
  EXPECT_EQ(std::get<Refuse>(actions.sends[0].message).pid, 999);
  EXPECT_TRUE(actions.ends.empty());
  EXPECT_FALSE(root.verdict());
}

TEST(ControlNode, ANodeRefusesWhoIsNotInTheTable) {
  Node node = node_of(2, 2);
  node.connected(Purpose::Join, kOne, at(1));
  node.accepted(kTwo, at(1));
  node.receive(kTwo, Join{{seat_below(3, -1)}}, at(2));
  Seat second = seat_below(3, -1);
  second.member.pid = 999;  // another process that says it is rank 3
  node.accepted(kStranger, at(2));
  node.receive(kStranger, Join{{second}}, at(3));
  constexpr LinkId kFar = 4;
  Seat far = seat_below(3, -1);
  far.member.rank = 16000;
  node.accepted(kFar, at(3));
  node.receive(kFar, Join{{far}}, at(3));
  node.take_actions();

  Gathering all(seat_of(0));
  for (int rank : {1, 2, 3}) all.add(seat_below(rank, kNodes[rank]));
  node.receive(kOne, Welcome{}, at(4));
  node.receive(kOne, Announce{all.table(32)}, at(5));
  const Actions actions = node.take_actions();
  EXPECT_EQ(sent(actions), "2 an Announce, 3 a Refuse, 4 a Refuse");
  EXPECT_THAT(actions.ends, ::testing::ElementsAre(kStranger, kFar));
  node.receive(kOne, Refuse{3, 999, {ExitCode::Rendezvous, "rank 3 is already held"}}, at(6));
  node.ended(kStranger, "eof", at(7));
  EXPECT_FALSE(node.verdict());
  EXPECT_EQ(sent(node.take_actions()), "");
}

TEST(ControlNode, ARankAttachesOnce) {
  Node root = running_root();
  root.accepted(kStranger, at(10));
  root.receive(kStranger, Attach{1, std::nullopt}, at(11));
  EXPECT_THAT(root.take_actions().ends, ::testing::ElementsAre(kStranger));
  root.ended(kStranger, "eof", at(12));
  EXPECT_FALSE(root.verdict());
}

TEST(ControlNode, SilenceIsALossAtTheDeadlineAndNotBefore) {
  Node root = running_root();
  for (int ms = 100; ms <= 5000; ms += 100) {
    root.receive(kTwo, Heartbeat{}, at(ms));
    root.tick(at(ms));
  }
  EXPECT_FALSE(root.verdict());
  root.receive(kTwo, Heartbeat{}, at(5100));
  root.tick(at(5100));
  ASSERT_TRUE(root.verdict());
  EXPECT_EQ(root.verdict()->world_rank, 1);
  EXPECT_EQ(root.verdict()->cause, "silent");
  EXPECT_EQ(root.verdict()->host, "a, pid 101");
}

TEST(ControlNode, ANodeThatWasStoppedItselfBlamesNobodyForIt) {
  Node root = running_root();
  root.tick(at(100));
  root.tick(at(60000));
  EXPECT_FALSE(root.verdict());
}

TEST(ControlNode, TheFirstAccusationWinsAndGoesToAll) {
  Node root = running_root();
  root.receive(kTwo, Accuse{{3, {}, ExitCode::PeerLost, "eof"}}, at(10));
  root.ended(kOne, "eof", at(11));
  root.accuse({2, {}, ExitCode::NoProgress, "abort"}, at(12));
  const Actions actions = root.take_actions();
  EXPECT_EQ(sent(actions), "1 an Accuse, 2 an Accuse");
  ASSERT_EQ(events_of<Accuse>(actions).size(), 1u);
  EXPECT_EQ(root.verdict()->world_rank, 3);
  EXPECT_EQ(root.verdict()->host, "a, pid 103");
}

TEST(ControlNode, AnOrphanIsAnsweredWithTheVerdict) {
  Node root = running_root();
  root.ended(kOne, "eof", at(10));
  root.take_actions();
  root.accepted(kStranger, at(11));
  root.receive(kStranger, Attach{3, Accusation{2, {}, ExitCode::PeerLost, "eof"}}, at(12));
  const Actions actions = root.take_actions();
  ASSERT_EQ(sent(actions), "3 an Accuse");
  EXPECT_EQ(std::get<Accuse>(actions.sends[0].message).accusation.world_rank, 1);
}

// Rank 3, below rank 2.
Node running_leaf() {
  Node leaf = node_of(3);
  leaf.connected(Purpose::Join, kTwo, at(1));
  Gathering all(seat_of(0));
  for (int rank : {1, 2, 3}) all.add(seat_below(rank, kNodes[rank]));
  leaf.receive(kTwo, Welcome{}, at(2));
  leaf.receive(kTwo, Announce{all.table(32)}, at(3));
  EXPECT_TRUE(leaf.running());
  leaf.take_actions();
  return leaf;
}

TEST(ControlNode, WhoLosesItsParentAppealsToTheRoot) {
  Node leaf = running_leaf();
  leaf.ended(kTwo, "eof", at(10));
  EXPECT_FALSE(leaf.verdict());
  const Actions actions = leaf.take_actions();
  ASSERT_EQ(actions.calls.size(), 1u);
  EXPECT_EQ(actions.calls[0].address, "0");
  leaf.connected(Purpose::Appeal, kOne, at(11));
  EXPECT_EQ(sent(leaf.take_actions()), "1 an Attach");
  leaf.receive(kOne, Accuse{{1, {}, ExitCode::PeerLost, "silent"}}, at(12));
  EXPECT_EQ(leaf.verdict()->world_rank, 1) << "what the root says counts";
}

TEST(ControlNode, WhoFindsItsParentStoppedTellsIt) {
  Node leaf = running_leaf();
  leaf.lose(2, "stopped", at(10));
  const Actions actions = leaf.take_actions();
  ASSERT_EQ(sent(actions), "2 an Accuse");
  EXPECT_EQ(std::get<Accuse>(actions.sends[0].message).accusation.world_rank, 2);
  EXPECT_EQ(actions.calls.size(), 1u) << "and appeals";
}

TEST(ControlNode, WhoFindsTheRootGoneNamesItsParent) {
  Node leaf = running_leaf();
  leaf.ended(kTwo, "eof", at(10));
  leaf.not_connected(Purpose::Appeal, true, at(11));
  EXPECT_EQ(leaf.verdict()->world_rank, 2);
  EXPECT_EQ(leaf.verdict()->cause, "eof");
}

TEST(ControlNode, WhoCannotReachTheRootNamesTheRoot) {
  Node leaf = running_leaf();
  leaf.ended(kTwo, "eof", at(10));
  for (int ms = 100; ms <= 1300; ms += 100) leaf.tick(at(ms));
  EXPECT_FALSE(leaf.verdict());
  leaf.tick(at(1400));
  ASSERT_TRUE(leaf.verdict());
  EXPECT_EQ(leaf.verdict()->world_rank, 0);
  EXPECT_EQ(leaf.verdict()->cause, "cannot be reached, after rank 2 was lost");
}

TEST(ControlNode, WhoAccusesAndHearsNothingAppeals) {
  Node leaf = running_leaf();
  leaf.accuse({1, {}, ExitCode::NoProgress, "has not entered all_reduce"}, at(10));
  EXPECT_EQ(sent(leaf.take_actions()), "2 an Accuse");
  for (int ms = 100; ms <= 300; ms += 100) leaf.tick(at(ms));
  EXPECT_TRUE(leaf.take_actions().calls.empty());
  leaf.tick(at(400));
  EXPECT_EQ(leaf.take_actions().calls.size(), 1u);
}

TEST(ControlNode, AVerdictIsFinal) {
  Node leaf = running_leaf();
  leaf.receive(kTwo, Accuse{{1, {}, ExitCode::PeerLost, "silent"}}, at(10));
  leaf.receive(kTwo, Accuse{{0, {}, ExitCode::PeerLost, "eof"}}, at(11));
  leaf.ended(kTwo, "eof", at(12));
  EXPECT_EQ(leaf.verdict()->world_rank, 1);
  EXPECT_EQ(events_of<Accuse>(leaf.take_actions()).size(), 1u);
}

TEST(ControlNode, MeetsWhenTheLastRankHasCome) {
  Node root = running_root();
  root.arrive("there", at(10));
  root.receive(kTwo, Arrive{"there", {2, 3}}, at(11));
  EXPECT_EQ(sent(root.take_actions()), "");
  root.receive(kOne, Arrive{"there", {1}}, at(12));
  const Actions actions = root.take_actions();
  EXPECT_EQ(sent(actions), "1 a Met, 2 a Met");
  EXPECT_EQ(events_of<Met>(actions).size(), 1u);
}

TEST(ControlNode, AChildThatAttachesLateIsGivenTheTableAndTheStore) {
  Node node = node_of(2, 1);
  node.connected(Purpose::Join, kOne, at(1));
  Gathering all(seat_of(0));
  for (int rank : {1, 2, 3}) all.add(seat_below(rank, rank));
  node.receive(kOne, Announce{all.table(1)}, at(3));  // with a fan-out of 1, rank 3 is below rank 2
  node.receive(kOne, Set{"k", "v"}, at(4));
  node.take_actions();
  node.accepted(kTwo, at(5));
  node.receive(kTwo, Attach{3, std::nullopt}, at(6));
  EXPECT_EQ(sent(node.take_actions()), "2 an Announce, 2 a Set");
  node.accepted(kStranger, at(7));
  node.receive(kStranger, Attach{1, std::nullopt}, at(8));
  EXPECT_EQ(node.take_actions().ends, std::vector<LinkId>{kStranger}) << "rank 1 belongs below the root";
}

TEST(ControlNode, WhoAsksWhoIsMissingFirstSaysWhoHasCome) {
  Node node = node_of(2, 1);
  node.connected(Purpose::Join, kOne, at(1));
  Gathering all(seat_of(0));
  for (int rank : {1, 2, 3}) all.add(seat_below(rank, kNodes[rank]));
  node.receive(kOne, Announce{all.table(32)}, at(3));
  node.take_actions();
  node.arrive("there", at(10));
  EXPECT_EQ(sent(node.take_actions()), "") << "rank 3 has not come";
  node.ask("there");
  EXPECT_EQ(sent(node.take_actions()), "1 an Arrive, 1 an Ask");
}

struct Attack {
  const char* name;
  Message message;
  const char* cause;
};

// A child that knows the secret sends what no correct node sends.
TEST(ControlNode, AChildIsAccusedOfWhatItMayNotSend) {
  const std::vector<Attack> attacks{
      {"a second join", Join{{seat_of(1)}}, "sent a Join after all ranks had joined"},
      {"a welcome", Welcome{}, "sent a Welcome after all ranks had joined"},
      {"a refusal", Refuse{}, "sent a Refuse after all ranks had joined"},
      {"a parent", Parent{}, "sent a Parent after all ranks had joined"},
      {"an attach", Attach{1, std::nullopt}, "sent an Attach after all ranks had joined"},
      {"a table", Announce{}, "sent an Announce after all ranks had joined"},
      {"the end of a meeting", Met{"there"}, "sent a Met after all ranks had joined"},
      {"an answer", Missing{}, "sent a Missing after all ranks had joined"},
      {"a goodbye", Bye{}, "sent a Bye while the job is running"},
      {"another's arrival", Arrive{"there", {3}}, "sent an Arrive of rank 3, which is not below it"},
      {"an arrival of nobody", Arrive{"there", {-1}}, "sent an Arrive of rank -1, which is not below it"},
      {"two arrivals", Arrive{"there", {1, 1}}, "sent an Arrive twice"},
      {"an accusation of nobody", Accuse{{9, {}, ExitCode::PeerLost, "eof"}}, "sent an Accuse of rank 9; it must be 0 to 3"},
      {"another value", Set{"k", "w"}, "ranks disagree on \"k\""},
      {"a huge value", Set{"l", std::string(17 << 20, 'x')}, "sent more than 16 MiB of keys for the store"}};
  for (const Attack& attack : attacks) {
    SCOPED_TRACE(attack.name);
    Node root = running_root();
    root.set("k", "v");
    root.receive(kOne, attack.message, at(10));
    ASSERT_TRUE(root.verdict());
    EXPECT_EQ(root.verdict()->world_rank, 1);
    EXPECT_THAT(root.verdict()->cause, HasSubstr(attack.cause));
  }
}

TEST(ControlNode, AChildThatComesToManyMeetingsAtATimeIsAccused) {
  Node root = running_root();
  for (int i = 0; i < 64; ++i) root.receive(kOne, Arrive{std::to_string(i), {1}}, at(10));
  EXPECT_FALSE(root.verdict());
  root.receive(kOne, Arrive{"one more", {1}}, at(10));
  ASSERT_TRUE(root.verdict());
  EXPECT_EQ(root.verdict()->cause, "sent an Arrive; at most 64 meetings at a time are accepted");
}

TEST(ControlNode, AStrangerIsTurnedAwayAndNobodyIsBlamed) {
  for (const Message& message : {Message(Heartbeat{}), Message(Accuse{}), Message(Arrive{"there", {1}}),
                                 Message(Attach{9, std::nullopt}), Message(Bye{}), Message(Join{})}) {
    Node root = running_root();
    root.accepted(kStranger, at(9));
    root.receive(kStranger, message, at(10));
    const Actions actions = root.take_actions();
    EXPECT_EQ(actions.ends, std::vector<LinkId>{kStranger}) << name_of(message);
    EXPECT_FALSE(root.verdict());
  }
}

TEST(ControlNode, ATalkerBeforeTheTableEndsTheRendezvousForAll) {
  for (const Message& message : {Message(Heartbeat{}), Message(Set{"k", "v"}), Message(Met{}), Message(Arrive{"there", {1}})}) {
    Node root = node_of(0);
    root.accepted(kOne, at(0));
    root.receive(kOne, Join{{seat_of(1)}}, at(1));
    root.take_actions();
    root.receive(kOne, message, at(2));
    const auto refusals = events_of<Refuse>(root.take_actions());
    ASSERT_EQ(refusals.size(), 1u);
    EXPECT_EQ(refusals[0].refusal.reason, "rank 1 (a, pid 101) sent " + name_of(message) + " before all ranks had joined");
  }
}

}  // namespace
}  // namespace trivet::comm::control
