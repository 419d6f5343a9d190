// Units of bytes for output, and seconds since a moment.
#pragma once

#include <chrono>

namespace trivet::autotune {

inline constexpr double kGib = 1 << 30, kMib = 1 << 20;

// The unit in which figures are shown, so that small ones are not "0.00".
struct Unit {
  double size;
  const char* name;
};
constexpr Unit unit_of_memory(double most_bytes) { return most_bytes < 0.1 * kGib ? Unit{kMib, "MiB"} : Unit{kGib, "GiB"}; }
constexpr Unit unit_of_time(double seconds) { return seconds < 0.1 ? Unit{1e-3, "ms"} : Unit{1, "s"}; }

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace trivet::autotune
