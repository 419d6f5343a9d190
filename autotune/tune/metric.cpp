#include "autotune/tune/metric.h"

#include <fmt/format.h>

#include <cmath>

#include "report/monitor/number_text.h"

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

MetricUnit unit_of(TuningMetric metric) {
  switch (metric) {
    case TuningMetric::Throughput: return {1, "samples/s", 1};
    case TuningMetric::Latency: return {1e-3, "ms", 2};
    case TuningMetric::Flops: return {1e9, "GFLOP/s a rank", 2};
  }
  return {};
}

std::string metric_text(TuningMetric metric, double value) {
  const MetricUnit unit = unit_of(metric);
  const double shown = value / unit.size;
  return (shown < 1000 ? fmt::format("{:.{}f}", shown, unit.digits) : monitor::with_commas(std::llround(shown))) + " " +
         unit.name;
}

}  // namespace trivet::autotune
