// What comm/transport/transport.h promises, for every transport. A new transport joins kTransports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/comm/gloo_transports.h"
#include "tests/comm/socket_transport.h"
#include "tests/comm/ucx_transports.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using Transports = std::vector<std::unique_ptr<Transport>>;

// For what must happen, however busy the machine is: no test waits that long for what must not.
constexpr std::chrono::minutes kPatience{2};

struct Maker {
  const char* name;
  Transports (*make)(int ranks);
};
constexpr Maker kTransports[] = {
    {"Sockets", socket_transports},
#ifdef TRIVET_HAS_UCX
    {"Ucx", ucx_transports},
#endif
#ifdef TRIVET_HAS_GLOO
    {"Gloo", gloo_transports},
    {"GlooV6", gloo_transports_v6},
#endif
};

TEST(Transports, UcxIsAmongThem) {
#ifndef TRIVET_HAS_UCX
  GTEST_SKIP() << "UCX was not found when this was built (Debian: libucx-dev), so nothing is tested over it";
#endif
}

TEST(Transports, GlooIsAmongThem) {
#ifndef TRIVET_HAS_GLOO
  GTEST_SKIP() << "gloo was not found when this was built (Debian: libgloo-dev), so nothing is tested over it";
#endif
}

// Moves data at both ends until the message is complete, or never will be.
MessageState finish(PendingMessage& message, PendingMessage& other) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (message.wait(milliseconds(0)) == MessageState::Pending && std::chrono::steady_clock::now() < end)
    other.wait(milliseconds(1));
  return message.wait(milliseconds(0));
}

#ifdef TRIVET_HAS_UCX
// It sends a message that a rank waits for, and waits for one that a rank sends.
TEST(Ucx, AStrangerWhoKnowsTheAddressesPutsNoMessageInThePlaceOfARanks) {
  Transports transports = ucx_transports_and_a_stranger(2);
  Transport &zero = *transports[0], &one = *transports[1], &stranger = *transports[2];
  std::array<std::byte, 8> forged, sent, got{};
  forged.fill(std::byte{66}), sent.fill(std::byte{1});
  const auto in_its_own_name = zero.receive(2, 7, got);
  const auto forgery = stranger.send(0, 7, forged);
  const auto asked = stranger.receive(0, 7, forged);
  const auto to_stranger = zero.send(2, 7, sent);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(in_its_own_name->wait(milliseconds(1)), MessageState::Pending);
    EXPECT_EQ(asked->wait(milliseconds(1)), MessageState::Pending);
  }
  std::array<std::byte, 8> received{};
  const auto from_one = zero.receive(1, 7, received);
  const auto message = one.send(0, 7, sent);
  EXPECT_EQ(finish(*from_one, *message), MessageState::Complete);
  EXPECT_EQ(received, sent);
}
#endif

#ifdef TRIVET_HAS_GLOO
TEST(Gloo, AStrangerWhoKnowsTheAddressesPutsNoMessageInThePlaceOfARanks) {
  Transports transports = gloo_transports_and_a_stranger(2);
  Transport &zero = *transports[0], &one = *transports[1], &stranger = *transports[2];
  std::array<std::byte, 8> forged, sent, got{};
  forged.fill(std::byte{66}), sent.fill(std::byte{1});
  EXPECT_EQ(zero.receive(2, 7, got)->wait(milliseconds(0)), MessageState::PeerGone);
  EXPECT_EQ(zero.send(2, 7, sent)->wait(milliseconds(0)), MessageState::PeerGone);
  EXPECT_EQ(stranger.send(0, 7, forged)->wait(milliseconds(0)), MessageState::PeerGone);
  EXPECT_EQ(stranger.receive(1, 7, forged)->wait(milliseconds(0)), MessageState::PeerGone);
  EXPECT_THAT(zero.why_gone(2), testing::HasSubstr("does not know this job's key"));
  const auto from_one = zero.receive(1, 7, got);
  const auto message = one.send(0, 7, sent);
  EXPECT_EQ(finish(*from_one, *message), MessageState::Complete);
  EXPECT_EQ(got, sent);
}

// Its receiver has not posted a receive, so none of its bytes are on their way, but gloo knows them.
TEST(Gloo, ARankThatCancelsALongMessageGivesUpAllItsConnections) {
  Transports transports = gloo_transports(3);
  const std::vector<std::byte> large(1 << 20);
  transports[0]->send(1, 7, large).reset();
  EXPECT_TRUE(transports[0]->has_given_up());
  EXPECT_FALSE(transports[1]->has_given_up());
  std::array<std::byte, 8> got{};
  EXPECT_EQ(transports[0]->receive(2, 7, got)->wait(milliseconds(0)), MessageState::PeerGone);
  EXPECT_EQ(transports[1]->receive(0, 9, got)->wait(kPatience), MessageState::PeerGone);
  EXPECT_EQ(transports[2]->receive(0, 9, got)->wait(kPatience), MessageState::PeerGone);
}

// What it sends back is what a rank would send, but for the proof.
TEST(Gloo, AStrangerWhoConnectsInThePlaceOfARankIsNotTakenForIt) {
  Transports transports = gloo_transports_and_an_echo();
  std::array<std::byte, 8> bytes{};
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(transports[rank]->send(1 - rank, 7, bytes)->wait(milliseconds(0)), MessageState::PeerGone);
    EXPECT_EQ(transports[rank]->receive(1 - rank, 7, bytes)->wait(milliseconds(0)), MessageState::PeerGone);
  }
  EXPECT_THAT(transports[0]->why_gone(1) + transports[1]->why_gone(0), testing::HasSubstr("does not know this job's key"));
}
#endif

class TransportContract : public testing::TestWithParam<Maker> {
 protected:
  explicit TransportContract(int ranks = 3) : transports_(GetParam().make(ranks)) {}
  Transport& rank(int index) { return *transports_[index]; }

  Transports transports_;
};

INSTANTIATE_TEST_SUITE_P(All, TransportContract, testing::ValuesIn(kTransports),
                         [](const auto& given) { return given.param.name; });

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }
std::span<std::byte> bytes(std::string& text) { return std::as_writable_bytes(std::span(text)); }

TEST_P(TransportContract, KnowsItsRankAndItsSize) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rank(i).rank(), i);
    EXPECT_EQ(rank(i).size(), 3);
  }
}

TEST_P(TransportContract, MessagesOfATagKeepTheirOrderAndTagsOvertakeEachOther) {
  const std::string first = "first!", second = "second", other = "other";
  const auto a = rank(0).send(1, 7, bytes(first)), b = rank(0).send(1, 7, bytes(second)), c = rank(0).send(1, 8, bytes(other));
  std::string got_other(5, ' '), got_first(6, ' '), got_second(6, ' ');
  const auto z = rank(1).receive(0, 8, bytes(got_other));
  EXPECT_EQ(finish(*z, *c), MessageState::Complete);  // although nobody has asked for the two that were sent before it
  const auto x = rank(1).receive(0, 7, bytes(got_first)), y = rank(1).receive(0, 7, bytes(got_second));
  EXPECT_EQ(finish(*y, *b), MessageState::Complete);
  EXPECT_EQ(finish(*x, *a), MessageState::Complete);
  EXPECT_EQ(got_first + got_second + got_other, first + second + other);
}

TEST_P(TransportContract, AReceiveTakesMessagesOfItsSenderOnly) {
  const std::string from_zero = "zero", from_two = "two!";
  std::string got_two(4, ' '), got_zero(4, ' ');
  const auto receive_two = rank(1).receive(2, 7, bytes(got_two)), receive_zero = rank(1).receive(0, 7, bytes(got_zero));
  const auto a = rank(0).send(1, 7, bytes(from_zero));
  EXPECT_EQ(finish(*receive_zero, *a), MessageState::Complete);
  EXPECT_EQ(receive_two->wait(milliseconds(5)), MessageState::Pending);
  const auto b = rank(2).send(1, 7, bytes(from_two));
  EXPECT_EQ(finish(*receive_two, *b), MessageState::Complete);
  EXPECT_EQ(got_zero + got_two, from_zero + from_two);
}

// More than any buffer in between holds: both ranks send before one of them receives.
TEST_P(TransportContract, LargeMessagesInBothDirectionsNeedNoOrder) {
  const std::string up(20 << 20, 'u'), down(20 << 20, 'd');
  std::string got_up(up.size(), ' '), got_down(down.size(), ' ');
  const auto run = [&](int self, const std::string& out, std::string& in) {
    const auto sent = rank(self).send(1 - self, 1, bytes(out));
    std::this_thread::sleep_for(milliseconds(20));
    const auto received = rank(self).receive(1 - self, 1, bytes(in));
    while (received->wait(milliseconds(100)) == MessageState::Pending ||
           sent->wait(milliseconds(100)) == MessageState::Pending) {
    }
    EXPECT_EQ(received->wait(milliseconds(0)), MessageState::Complete);
    EXPECT_EQ(sent->wait(milliseconds(0)), MessageState::Complete);
  };
  std::thread other([&] { run(1, down, got_up); });
  run(0, up, got_down);
  other.join();
  EXPECT_TRUE(got_up == up && got_down == down);
}

// A transport may treat short and long messages differently.
TEST_P(TransportContract, MessagesOfAllSizesArrive) {
  for (const size_t size : {1, 1000, 8 << 10, (8 << 10) + 1, 100000, 3 << 20}) {
    std::string sent(size, 's'), got(size, ' ');
    sent.front() = 'f', sent.back() = 'b';
    const auto receive = rank(1).receive(0, 7, bytes(got));
    const auto send = rank(0).send(1, 7, bytes(sent));
    EXPECT_EQ(finish(*receive, *send), MessageState::Complete);
    EXPECT_EQ(finish(*send, *receive), MessageState::Complete);
    EXPECT_TRUE(got == sent) << size;
  }
}

TEST_P(TransportContract, ReceivesOfATagTakeMessagesInTheOrderInWhichTheyWerePosted) {
  const std::string first = "first!", second = "second";
  std::string got_first(6, ' '), got_second(6, ' ');
  const auto x = rank(1).receive(0, 7, bytes(got_first)), y = rank(1).receive(0, 7, bytes(got_second));
  const auto a = rank(0).send(1, 7, bytes(first)), b = rank(0).send(1, 7, bytes(second));
  EXPECT_EQ(finish(*y, *b), MessageState::Complete);
  EXPECT_EQ(finish(*x, *a), MessageState::Complete);
  EXPECT_EQ(got_first + got_second, first + second);
}

TEST_P(TransportContract, AWaitEndsAfterItsSlice) {
  std::string nothing(4, ' ');
  const auto receive = rank(1).receive(0, 7, bytes(nothing));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(receive->wait(milliseconds(30)), MessageState::Pending);
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(30));
  EXPECT_LT(std::chrono::steady_clock::now() - start, kPatience);
}

TEST_P(TransportContract, ACancelledReceiveIsNotWrittenTo) {
  std::string cancelled(4, ' '), wanted(4, ' ');
  auto never = rank(1).receive(0, 7, bytes(cancelled)), nor_this = rank(1).receive(0, 7, bytes(cancelled));
  const std::string sent = "data";
  const auto receive = rank(1).receive(0, 7, bytes(wanted));
  never.reset();
  nor_this.reset();
  const auto send = rank(0).send(1, 7, bytes(sent));
  EXPECT_EQ(finish(*receive, *send), MessageState::Complete);
  EXPECT_EQ(wanted, sent);
  EXPECT_EQ(cancelled, "    ");
}

// A thread of the transport may be writing there: that is what this looks for.
__attribute__((no_sanitize("thread"))) bool has_begun_to_arrive(const std::string& blank) {
  return *static_cast<const volatile char*>(blank.data()) != ' ';
}

// The message is too long for buffers in between, so a part of it is on its way when it is cancelled. Afterwards its bytes
// cannot be accessed any more, and either the connection still works or both ends know that it does not. The receiver is the
// one that gives up if everything had left the sender.
TEST_P(TransportContract, ACancelledSendIsNotReadAnyMore) {
  constexpr size_t kLarge = 20 << 20;
  void* large = ::mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(large, MAP_FAILED);
  std::string never(kLarge, ' '), got(8, ' ');
  const std::string after = "after it";
  auto received = rank(1).receive(0, 7, bytes(never));
  {
    const auto cancelled = rank(0).send(1, 7, {static_cast<const std::byte*>(large), kLarge});
    while (!has_begun_to_arrive(never) && received->wait(milliseconds(1)) == MessageState::Pending)
      cancelled->wait(milliseconds(1));
  }
  ASSERT_EQ(::mprotect(large, kLarge, PROT_NONE), 0);
  received.reset();
  auto receive = rank(1).receive(0, 8, bytes(got)), send = rank(0).send(1, 8, bytes(after));
  if (finish(*receive, *send) == MessageState::Complete) {
    EXPECT_EQ(got, after);
  } else {
    EXPECT_EQ(receive->wait(kPatience), MessageState::PeerGone);
    EXPECT_EQ(send->wait(kPatience), MessageState::PeerGone);
    EXPECT_TRUE(rank(0).has_given_up() || rank(1).has_given_up());
  }
  receive.reset();
  send.reset();
  transports_.clear();
  ::munmap(large, kLarge);
}

// Its receiver waits for the rest for as long as this test may take.
TEST_P(TransportContract, AWaitForTheRestOfAMessageEndsWhenItsSenderCancelsIt) {
  const std::string large(64 << 20, 'l');
  std::string got(large.size(), ' ');
  MessageState state = MessageState::Pending;
  std::atomic<bool> ended{false};
  const auto receive = rank(1).receive(0, 7, bytes(got));
  std::thread receiver([&] {
    state = receive->wait(kPatience);
    ended = true;
  });
  {
    const auto cancelled = rank(0).send(1, 7, bytes(large));
    for (int i = 0; i < 10; ++i) cancelled->wait(milliseconds(1));  // a part of it leaves
  }
  while (!ended) rank(0).progress();  // it may still arrive
  receiver.join();
  EXPECT_NE(state, MessageState::Pending);
}

TEST_P(TransportContract, AMessageOfAnotherSizeIsADefect) {
  const std::string four = "four";
  std::string five(5, ' ');
  const auto receive = rank(1).receive(0, 7, bytes(five));
  const auto send = rank(0).send(1, 7, bytes(four));
  EXPECT_THROW(finish(*receive, *send), std::logic_error);
}

TEST_P(TransportContract, WhatARankHasSentArrivesAlthoughItLeavesAtOnce) {
  constexpr int kMessages = 20;
  const std::string sent(1000, 's');
  std::vector<std::unique_ptr<PendingMessage>> messages;
  for (int i = 0; i < kMessages; ++i) messages.push_back(rank(0).send(1, 7, bytes(sent)));
  {
    std::string nothing(1, ' ');
    const auto moves = rank(1).receive(0, 9, bytes(nothing));
    for (const auto& message : messages) ASSERT_EQ(finish(*message, *moves), MessageState::Complete);
  }
  messages.clear();
  transports_[0].reset();
  for (int i = 0; i < kMessages; ++i) {
    std::string got(sent.size(), ' ');
    EXPECT_EQ(rank(1).receive(0, 7, bytes(got))->wait(kPatience), MessageState::Complete);
    EXPECT_EQ(got, sent);
  }
}

TEST_P(TransportContract, WhatArrivedBeforeTheConnectionEndedCanBeReceived) {
  const std::string last = "last words";
  {
    const auto send = rank(0).send(1, 7, bytes(last));
    std::string nothing(1, ' ');
    const auto moves = rank(1).receive(0, 9, bytes(nothing));
    ASSERT_EQ(finish(*send, *moves), MessageState::Complete);
  }
  transports_[0].reset();
  std::string got(last.size(), ' '), more(4, ' ');
  const auto receive = rank(1).receive(0, 7, bytes(got)), never = rank(1).receive(0, 7, bytes(more));
  EXPECT_EQ(receive->wait(kPatience), MessageState::Complete);
  EXPECT_EQ(got, last);
  EXPECT_EQ(never->wait(kPatience), MessageState::PeerGone);
  EXPECT_NE(rank(1).why_gone(0).find("connection ended: "), std::string::npos) << rank(1).why_gone(0);
  const auto send = rank(1).send(0, 7, bytes(got));
  EXPECT_EQ(send->wait(kPatience), MessageState::PeerGone);
  const auto still = rank(1).send(2, 7, bytes(got));  // other connections stay
  const auto arrives = rank(2).receive(1, 7, bytes(more.assign(last.size(), ' ')));
  EXPECT_EQ(finish(*arrives, *still), MessageState::Complete);
}

}  // namespace
}  // namespace trivet::comm
