// Measures the time in which this process has run. The silence of another process is measured with it, so that a process that
// was stopped itself (SIGSTOP, a machine that was suspended or moved) does not hold that time against the other.
//
// A process that waits for a short time and wakes up much later has been stopped in between: that counts as `longest_wait`.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace trivet::cli {

class RunningTime {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  explicit RunningTime(Duration longest_wait, Clock::time_point now = Clock::now())
      : longest_wait_(longest_wait), looked_at_(now) {}

  // Called after every wait. Returns the time up to now.
  Duration look(Clock::time_point now = Clock::now()) {
    return time_ += std::min(now - std::exchange(looked_at_, now), longest_wait_);
  }
  // The time up to the last look.
  Duration so_far() const { return time_; }

 private:
  const Duration longest_wait_;
  Clock::time_point looked_at_;
  Duration time_{0};
};

}  // namespace trivet::cli
