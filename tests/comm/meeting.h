// Runs ranks as threads that meet over real sockets: each gets a listener or a port, joins, and does what the test tells it to.
#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/rendezvous.h"
#include "comm/wire_messages.h"

namespace trivet::comm {

// How long a test waits at most for what happens at once on a machine that is not busy.
inline constexpr std::chrono::milliseconds kUntilItHappens{60000};

inline Secret secret_of_test() { return Secret("a secret of the test"); }

inline RendezvousOptions meeting_options(int rank, int size, int port) {
  RendezvousOptions options;
  options.self = {
      .rank = rank, .world_size = size, .job_id = "c0ffee", .build = "b", .host = "a", .boot_id = "o", .pid = 100 + rank};
  options.port = port;
  options.secret = secret_of_test();
  options.join_deadline = std::chrono::milliseconds(30000);
  return options;
}

inline TimePoint in(int ms) { return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms); }

// The joiner's side of the handshake; the keys only if it has succeeded.
struct Proof {
  Prover::State state = Prover::State::Waiting;
  std::optional<SessionKeys> keys;
};

inline Proof prove(const Descriptor& connection, const Secret& secret, TimePoint deadline) {
  Prover prover;
  Proof proof;
  while ((proof.state = prover.step(connection, secret)) == Prover::State::Waiting) {
    if (!wait_readable(connection.number(), deadline)) return proof;
  }
  if (proof.state == Prover::State::Proven) proof.keys = prover.keys();
  return proof;
}

// A visitor who knows the secret, and then sends what the test likes.
inline Connection visit(int port) {
  Descriptor descriptor = connect_to("127.0.0.1", port, in(5000));
  const Proof proof = prove(descriptor, secret_of_test(), in(5000));
  return {std::move(descriptor), proof.keys.value(), {.world_size = 1000, .table = true}};
}

// The next visitor at the door, who must know the secret.
inline Connection take_visitor(const Descriptor& door) {
  wait_readable(door.number(), in(5000));
  Descriptor visitor = accept_from(door).value();
  Doorkeeper keeper(in(5000));
  while (keeper.step(visitor, secret_of_test(), std::chrono::steady_clock::now()) == Doorkeeper::State::Waiting)
    wait_readable(visitor.number(), in(10));
  return {std::move(visitor), keeper.keys(), {.world_size = 1000, .table = true}};
}

inline void say(Connection& connection, const Frame& frame) {
  connection.send(frame);
  connection.flush();
  while (connection.has_unsent()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    connection.flush();
  }
}

// Nullopt if the connection ends or 5 s have passed.
inline std::optional<Frame> hear(Connection& connection) {
  const TimePoint deadline = in(5000);
  for (;;) {
    const Connection::State state = connection.fill();
    if (auto frame = connection.next()) return frame;
    if (state != Connection::State::Open || !wait_readable(connection.number(), deadline)) return std::nullopt;
  }
}

inline void wait_for_end(Connection& connection) {
  while (connection.fill() == Connection::State::Open && wait_readable(connection.number(), in(5000))) {
  }
}

// What a rank says of itself when it joins at the root.
inline control::Message join_of(const Member& member) { return control::Join{{{.member = member, .node = -1, .address = {}}}}; }

inline Member member_of(int rank, int size) { return meeting_options(rank, size, 0).self; }

// What rank 0 says when everybody has joined.
inline Frame table_frame(int size, const std::function<void(std::vector<control::Seat>&)>& change = {},
                         const std::string& job_id = "c0ffee") {
  auto table = std::make_shared<control::Table>();
  table->job_id = job_id;
  for (int rank = 0; rank < std::max(size, 1); ++rank) table->seats.push_back({member_of(rank, size), 0, {}});
  if (change) change(table->seats);
  table->tree = control::Tree(std::vector<int>(table->seats.size(), 0));
  return encode(control::Announce{table});
}

// A rank of this test that has joined, and then does what the test likes.
inline Connection join_by_hand(int rank, int size, int port) {
  Connection connection = visit(port);
  say(connection, encode(join_of(meeting_options(rank, size, port).self)));
  while (const auto frame = hear(connection)) {
    if (frame->kind == FrameKind::Announce) break;
  }
  return connection;
}

// How a rank ended: `error` is "" or the message of the error it threw.
struct Outcome {
  std::string error;
  ExitCode code = ExitCode::Done;
};

inline Outcome outcome_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.what(), error.exit_code()};
  }
  return {};
}

class Meeting {
 public:
  explicit Meeting(int size) : size_(size), listener_(listen_on("127.0.0.1", 0)), port_(port_of(listener_)) {}
  int port() const { return port_; }
  RendezvousOptions options(int rank) {
    RendezvousOptions options = meeting_options(rank, size_, port_);
    if (rank == 0) options.listener = std::move(listener_);
    return options;
  }
  // Runs one thread per entry and returns their outcomes in order.
  std::vector<Outcome> run(const std::vector<std::function<void()>>& bodies) {
    std::vector<Outcome> outcomes(bodies.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < bodies.size(); ++i) threads.emplace_back([&, i] { outcomes[i] = outcome_of(bodies[i]); });
    for (auto& thread : threads) thread.join();
    return outcomes;
  }

 private:
  int size_;
  Descriptor listener_;
  int port_;
};

}  // namespace trivet::comm
