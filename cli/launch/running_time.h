// Measures the time in which this process has run. The silence of another process is measured with it, so that a process that
// was stopped itself (SIGSTOP, a machine that was suspended or moved) does not hold that time against the other.
//
// A process that waits for a short time and wakes up later than `longest_wait` has been stopped in between. That wait does not
// count at all, because the other was perhaps stopped with it and has not spoken since.
#pragma once

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
    const Duration waited = now - std::exchange(looked_at_, now);
    return time_ += waited <= longest_wait_ ? waited : Duration(0);
  }
  // The time up to the last look.
  Duration so_far() const { return time_; }

 private:
  const Duration longest_wait_;
  Clock::time_point looked_at_;
  Duration time_{0};
};

}  // namespace trivet::cli
