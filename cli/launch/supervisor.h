// Watches over the ranks of a host until all have ended.
//
//   Running --a rank fails--> Waiting --2 s--> Terminating --10 s--> Killing
//      \                                        ^       \            ^
//       \--a signal to the launcher------------/         \--a second-/
//
// Waiting: the other ranks notice the failure and end themselves. Terminating: the ranks were sent SIGTERM, or the signal that
// the launcher received, in which case they have --shutdown-timeout instead of 10 s. Killing: they were sent SIGKILL.
//
// Each rank is a process group. When a rank ends while the job runs, its group is killed. While the ranks are being ended, the
// processes that they started may use the rest of the time too, for example a trainer whose shell ended at once. When all ranks
// have ended, everything that they started is killed, in whatever session it is. There is one thread, which waits only for
// events.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cli/launch/guardian.h"
#include "cli/launch/job_outcome.h"
#include "cli/launch/relay.h"
#include "cli/launch/running_time.h"
#include "core/descriptor.h"

namespace trivet::cli {

struct SupervisorOptions {
  std::string speaker = "trivet launch";      // comes first in messages
  bool announces = false;                     // tells the launcher's side about every end and loss
  bool quiet = false;                         // errors only
  std::chrono::seconds shutdown_timeout{30};  // from a signal to the launcher until the ranks are killed
  // After which a launcher's side that gives no orders, not even kStillHere, counts as gone; 0: it never does.
  std::chrono::seconds launcher_silence{0};
};

class Supervisor {
 public:
  // Blocks SIGCHLD and reads it from a descriptor, so construct the supervisor before the first rank is started.
  Supervisor(SupervisorOptions options, GuardianEnds ends);
  ~Supervisor();
  Relay& relay() { return relay_; }
  void watch(int rank, int pid);
  // Its exit code is never 0 if a rank failed or a signal ended the job.
  JobOutcome run();

 private:
  enum class Phase { Running, Waiting, Terminating, Killing };
  using Clock = std::chrono::steady_clock;
  struct Rank {
    int rank = 0, pid = 0;
    bool running = true;
    bool stopped = false;  // by SIGSTOP, when it was told to end
  };

  bool any_running() const;
  bool is_over() const;
  bool ranks_are_to_end() const { return phase_ != Phase::Running; }
  void wait_for_news(std::chrono::milliseconds most);
  void read_orders();
  void lose_a_silent_launcher();
  void give_up(const char* why);
  void read_reports();
  void obey(int signal);
  void pass_warning_on(int signal);
  void collect_ended();
  void collect(Rank& rank);
  void note(const RankEnd& end);
  // The job has failed: the ranks that still run should end by themselves now.
  void expect_the_end();
  void note_that_it_had_to_kill();
  void next_phase(Clock::time_point now);
  void enter(Phase phase, int signal, std::chrono::milliseconds patience);
  void send_all(int signal);
  void kill_all();
  // True if something could not be killed.
  bool kill_what_is_left();
  void drain(bool somebody_stays);
  void report(const std::string& text);

  const SupervisorOptions options_;
  const GuardianEnds ends_;
  Descriptor child_news_;
  Relay relay_;
  std::vector<Rank> ranks_;
  JobRecord record_;
  int look_ = 0;
  Phase phase_ = Phase::Running;
  Clock::time_point phase_ends_ = Clock::time_point::max();
  Clock::time_point signal_came_at_{};
  bool launcher_is_gone_ = false;
  RunningTime running_;
  RunningTime::Duration launcher_heard_at_{0};
};

}  // namespace trivet::cli
