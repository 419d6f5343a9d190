// Measures how long something takes.
#pragma once

#include <chrono>

#include "core/clock.h"

namespace trivet::trainer {

class Stopwatch {
 public:
  // Since the stopwatch was created.
  double milliseconds() const { return std::chrono::duration<double, std::milli>(system_clock().now() - begin_).count(); }

 private:
  std::chrono::nanoseconds begin_ = system_clock().now();
};

}  // namespace trivet::trainer
