// Runs ranks as threads that meet over real sockets: each gets a listener or a port, joins, and does what the test tells it to.
#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "comm/rendezvous.h"

namespace trivet::comm {

inline RendezvousOptions meeting_options(int rank, int size, int port) {
  RendezvousOptions options;
  options.self = {
      .rank = rank, .world_size = size, .job_id = "c0ffee", .build = "b", .host = "a", .boot_id = "o", .pid = 100 + rank};
  options.port = port;
  options.secret = Secret("a secret of the test");
  options.join_deadline = std::chrono::milliseconds(3000);
  return options;
}

inline TimePoint in(int ms) { return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms); }

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
