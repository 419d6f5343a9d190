// Units of bytes for output, and seconds since a moment.
#pragma once

#include <chrono>

namespace trivet::autotune {

inline constexpr double kGib = 1 << 30, kMib = 1 << 20;

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace trivet::autotune
