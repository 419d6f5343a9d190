// The metrics by which trials are compared, and in which direction each is better.
#pragma once

#include <string>

#include "autotune/tune/tuning_space.h"
#include "engine/config/autotuning_config.h"

namespace trivet::autotune {

struct Metrics {
  double throughput = 0;     // samples per second, over all ranks
  double latency = 0;        // seconds per step
  double flops_per_gpu = 0;  // model FLOPs per second and rank (model::flops_per_sample)

  double of(TuningMetric metric) const;
};

// The metrics of a step that takes `seconds`.
Metrics metrics_of(const TrialConfig& trial, double seconds, int world_size);

// More is better for throughput and FLOPs, less for latency.
bool is_better(TuningMetric metric, double value, double than);

// The logarithm of what tuning minimizes: the seconds per sample, per step, or per FLOP. It is a logarithm because ratios
// between configs are what matters.
double log_cost(TuningMetric metric, const TrialConfig& trial, double seconds);

struct MetricUnit {
  double size = 1;
  const char* name = "";
  int digits = 0;  // after the point, for values below 1000
};
MetricUnit unit_of(TuningMetric metric);

// "1,235 samples/s", "12.34 ms", "45.67 GFLOP/s a rank"
std::string metric_text(TuningMetric metric, double value);

}  // namespace trivet::autotune
