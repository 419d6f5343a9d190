#include "autotune/tune/metric.h"

#include <fmt/format.h>

#include <cmath>

namespace trivet::autotune {

double Metrics::of(TuningMetric metric) const {
  switch (metric) {
    case TuningMetric::Throughput: return throughput;
    case TuningMetric::Latency: return latency;
    case TuningMetric::Flops: return flops_per_gpu;
  }
  return 0;
}

Metrics metrics_of(const TrialConfig& trial, double seconds, int world_size) {
  return {.throughput = static_cast<double>(trial.train_batch_size) / seconds,
          .latency = seconds,
          .flops_per_gpu = trial.model_flops / seconds / world_size};
}

bool is_better(TuningMetric metric, double value, double than) {
  return metric == TuningMetric::Latency ? value < than : value > than;
}

double log_cost(TuningMetric metric, const TrialConfig& trial, double seconds) {
  switch (metric) {
    case TuningMetric::Throughput: return std::log(seconds / static_cast<double>(trial.train_batch_size));
    case TuningMetric::Latency: return std::log(seconds);
    case TuningMetric::Flops: return std::log(seconds / trial.model_flops);
  }
  return 0;
}

std::string metric_text(TuningMetric metric, double value) {
  switch (metric) {
    case TuningMetric::Throughput: return fmt::format("{:.1f} samples/s", value);
    case TuningMetric::Latency: return fmt::format("{:.2f} ms", value * 1e3);
    case TuningMetric::Flops: return fmt::format("{:.2f} GFLOP/s a rank", value / 1e9);
  }
  return "";
}

}  // namespace trivet::autotune
