// Handles the signals that end `trivet train` or make it save: SIGTERM, SIGINT, SIGHUP, SIGXCPU, and the signal named by
// checkpoint.signal.
//
//   first     -> StopRequest: the running step is finished and saved, then the run ends with 128 + signal
//   second    -> the run ends at once, as it would without this class
//   deadline  -> checkpoint.stop_seconds after the first: the run ends, whatever it is doing
//
// A signal that follows within half a second of the first counts as the same one, because `timeout` and terminals send a signal
// twice: to the process and to its group. SIGHUP and SIGXCPU are never a second one (repeated_signals.h). While nothing listens
// to the request (before the first step, after the last save), the first signal ends the program at once.
//
// There is no signal handler: the signals are blocked in all threads and a dedicated thread waits for them, so it may call
// anything. Construct a StopSignals before any other thread starts, because threads inherit the blocked signals. Signals that
// the program was started to ignore (nohup) stay ignored.
#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "core/descriptor.h"
#include "core/log.h"
#include "engine/config/run_config.h"
#include "trainer/stop_request.h"

namespace trivet::cli {

// Thrown when a signal has ended a run that reported what it saved: the program then exits with 128 + signal and prints nothing
// more. It is not an error, and so not a std::exception.
struct StoppedBySignal {
  int signal = 0;
};

struct StopSignalOptions {
  int warning = 0;  // 0: none
  bool warning_ends = false;
  std::chrono::nanoseconds deadline{0};  // 0: none
  std::string directory = {};            // for checkpoints; empty: nothing is saved
  Log log = {};
};

StopSignalOptions stop_signal_options(const CheckpointConfig& config);

class StopSignals {
 public:
  StopSignals(StopRequest& request, const StopSignalOptions& options);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  void wait_for_signals();
  void received(int signal);
  void first(int signal);
  [[noreturn]] void end_at_once(int signal) const;
  [[noreturn]] void end_at_deadline() const;

  StopRequest& request_;
  StopSignalOptions options_;
  sigset_t watched_{}, blocked_before_{};
  Descriptor signals_, wake_;
  int first_ = 0;  // 0: none yet
  std::chrono::steady_clock::time_point first_at_;
  std::thread thread_;
};

}  // namespace trivet::cli
