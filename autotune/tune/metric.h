// What a trial is judged by, and in which direction.
#pragma once

#include <string>

#include "autotune/tune/tuning_space.h"
#include "engine/config/config.h"

namespace trivet::autotune {

struct Metrics {
  double throughput = 0;     // samples a second, all ranks
  double latency = 0;        // seconds of a step
  double flops_per_gpu = 0;  // the model's, a second, of a rank (model::flops_per_token)

  double of(TuningMetric metric) const;
};

// Of a step of `seconds`.
Metrics metrics_of(const TrialConfig& trial, double seconds, int world_size);

// More is better of throughput and FLOPs, less of latency.
bool is_better(TuningMetric metric, double value, double than);

// The logarithm of what is to be made small: of seconds for a sample, a step, or a FLOP. Ratios are what counts between
// configs.
double log_cost(TuningMetric metric, const TrialConfig& trial, double seconds);

// "1234.5 samples/s", "12.3 ms", "45.6 GFLOP/s a rank"
std::string metric_text(TuningMetric metric, double value);

}  // namespace trivet::autotune
