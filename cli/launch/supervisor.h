// Watches over the ranks of a host until all have ended.
//
//   Running --a rank fails--> Waiting (the others notice it and end themselves) --2 s--> Terminating (SIGTERM) --10 s-->
//   Killing
//      \--SIGINT, SIGTERM or SIGHUP to the launcher: passed on ------------------------------^     a second one -------------^
//
// Each rank is a process group: what it has started ends with it. One thread; signals arrive through a descriptor.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cli/launch/relay.h"
#include "cli/launch/verdict.h"
#include "comm/descriptor.h"

namespace trivet::cli {

class Supervisor {
 public:
  // Blocks the signals that it then reads itself: make it before the first rank is started.
  explicit Supervisor(bool quiet);
  ~Supervisor();
  Relay& relay() { return relay_; }
  void watch(int rank, int pid);
  // Never Done when a rank failed or a signal ended the job.
  Verdict run();
  // Ends all ranks that run: a later one could not be started.
  void kill_all();

 private:
  enum class Phase { Running, Waiting, Terminating, Killing };
  using Clock = std::chrono::steady_clock;
  struct Rank {
    int rank = 0, pid = 0;
    bool running = true;
  };

  bool any_running() const;
  void wait_for_news();
  void read_signals();
  void collect_ended();
  void note(RankEnd end);
  void next_phase(Clock::time_point now);
  void enter(Phase phase, int signal);
  void send_all(int signal);
  void report(const std::string& text) const;
  Verdict verdict() const;

  const bool quiet_;
  comm::Descriptor signals_;
  Relay relay_;
  std::vector<Rank> ranks_;
  std::vector<RankEnd> ends_;
  Phase phase_ = Phase::Running;
  Clock::time_point phase_ends_ = Clock::time_point::max();
  int received_signal_ = 0;
};

}  // namespace trivet::cli
