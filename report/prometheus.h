// The figures of a run in Prometheus's text format, version 0.0.4.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "report/run_data.h"

namespace trivet::report {

// Counts of the steps since this start of the program; as counters must, they only grow.
struct StepCounters {
  static constexpr std::array<double, 12> kBounds{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600};  // seconds

  std::array<int64_t, kBounds.size() + 1> within{};  // steps of at most this length, above the bound before; the last: longer
  double seconds = 0;
  int64_t steps = 0, skipped = 0, targets = 0, without_targets = 0;

  void add(double step_seconds, int64_t step_targets, bool was_skipped);
};

inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";
std::string to_prometheus(const RunData& run, const StepCounters& counters);

}  // namespace trivet::report
