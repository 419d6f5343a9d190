// Decides when a stopped process counts as lost: when every look for 400 ms, or another time, has found it stopped.
//
// A shorter stop is forgiven. So is a stop of all ranks at once (kill -STOP and -CONT to each of them, a snapshot of the
// machine), because the rank that looks was stopped itself, and the time between two looks counts as at most half of that time.
// Ctrl-Z at `trivet launch` stops no rank.
#pragma once

#include <algorithm>
#include <chrono>

namespace trivet::comm {

class StoppedForLong {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;
  static constexpr std::chrono::milliseconds kPatience{400};

  explicit StoppedForLong(Duration patience = kPatience) : patience_(patience) {}

  bool look(bool is_stopped, TimePoint now) {
    if (!is_stopped) {
      was_stopped_ = false;
      return false;
    }
    seen_ = was_stopped_ ? seen_ + std::min<Duration>(now - last_look_, patience_ / 2) : Duration{0};
    was_stopped_ = true;
    last_look_ = now;
    return seen_ >= patience_;
  }

 private:
  Duration patience_;
  bool was_stopped_ = false;
  TimePoint last_look_;
  Duration seen_{0};
};

}  // namespace trivet::comm
