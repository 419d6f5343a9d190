// Time, passed in as a dependency so that deadlines and retention can be tested without waiting. Durations and deadlines use
// the monotonic now().
#pragma once

#include <chrono>
#include <cstdint>

namespace trivet {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::nanoseconds now() const = 0;  // monotonic, from an arbitrary start
  virtual int64_t unix_seconds() const = 0;          // for people: file names and logs, never for deadlines
  virtual void sleep(std::chrono::nanoseconds duration) const = 0;
};

const Clock& system_clock();

}  // namespace trivet
