// Runs a job in a process of its own, the guardian, so that no rank survives, however the launcher ends.
//
//   trivet launch  --signals-->  guardian  --starts, watches-->  ranks  --start-->  anything, in any session
//        \--waits for the outcome--/
//
// Both are subreapers (PR_SET_CHILD_SUBREAPER), so nothing that the ranks start can leave the tree. If the launcher is killed,
// the guardian sees the end of their socket and kills everything; if the guardian is killed, its processes become the
// launcher's, which kills them. If both are killed, nobody holds the launcher's side of the link any more, and each rank of
// Trivet ends itself (comm/launcher_link.h). The guardian has a different name from the launcher, so that `pkill -f "trivet
// launch"` does not end both.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/job_outcome.h"

namespace trivet::cli {

// The guardian's descriptors.
struct GuardianEnds {
  int orders;     // the launcher's orders, one `int` each: signals, or one of those below; closed when the launcher ends
  int reports;    // the ranks' reports over the link
  int for_ranks;  // the ranks' side of the link
};

// The order to end the job soon because ranks on another host have failed.
constexpr int kFailedElsewhere = 0;
// No order: whoever gives them is still there (SupervisorOptions::launcher_silence).
constexpr int kStillHere = -1;

// The work of the launcher's own process while the guardian runs the job, apart from passing on signals.
class LauncherSide {
 public:
  virtual ~LauncherSide() = default;
  // Called once in the guardian, before the job.
  virtual void in_guardian() {}
  // Called once in the launcher: the guardian holds copies of everything by now.
  virtual void guardian_runs() {}
  virtual void add_to(std::vector<pollfd>&) const {}
  // Returns how long a wait may last; -1: until something happens.
  virtual int patience_ms() const { return -1; }
  // Called after every wait.
  virtual void step() {}
  // Orders for the guardian that were not returned before.
  virtual std::vector<int> orders() { return {}; }
  // An event that the guardian has announced (announce).
  virtual void hear(const std::string& /*event*/) {}
  bool ended_by_signal = false;  // this process has received one that ends the job
  // True: nobody wants the job any more, and everything is killed.
  virtual bool is_abandoned() const { return false; }
  // How such a job ended.
  virtual JobOutcome when_abandoned() const { return {}; }
};

// Called by the guardian; `event` arrives at LauncherSide::hear.
void announce(const GuardianEnds& ends, const std::string& event);

// Blocks the signals that it passes on while the job runs. An error that `job` throws becomes an outcome with its exit code and
// text.
JobOutcome run_guarded(const std::function<JobOutcome(const GuardianEnds&)>& job, LauncherSide& side);

class SignalQueue;

// Holds back the signals that a launcher passes on while it has no guardian to pass them to: between the starts of a job. Those
// that come before or after a pause reach the next job.
class SignalsBetweenJobs {
 public:
  SignalsBetweenJobs();
  ~SignalsBetweenJobs();
  SignalsBetweenJobs(const SignalsBetweenJobs&) = delete;
  SignalsBetweenJobs& operator=(const SignalsBetweenJobs&) = delete;

  // Waits that long, or until a signal comes that ends a job, and returns it. SIGUSR1 and SIGUSR2 are for ranks, of which there
  // are none: `lost` is called with them.
  std::optional<int> pause(std::chrono::milliseconds how_long, const std::function<void(int)>& lost) const;

 private:
  std::unique_ptr<SignalQueue> queue_;
};

}  // namespace trivet::cli
