#include "autotune/tune/described_predictor.h"

#include <algorithm>
#include <string>

#include "autotune/step_model.h"
#include "core/error.h"
#include "engine/config/context_kind.h"

namespace trivet::autotune {
namespace {

double figure(const std::vector<Finding>& findings, const std::string& name) {
  for (const Finding& finding : findings)
    for (const auto& [its_name, value] : finding.figures)
      if (its_name == name) return value;
  throw ConfigError("autotuning: this host could not be measured (" + name +
                    "); run `trivet doctor` to see why, or give --cluster, the machines to predict for");
}

Layout layout_of(const Config& config, int world_size) {
  const ParallelConfig& parallel = config.parallel;
  Layout layout{.data = world_size / parallel.context / parallel.tensor / parallel.pipeline,
                .context = parallel.context,
                .tensor = parallel.tensor,
                .pipeline = parallel.pipeline,
                .chunks = std::max<int64_t>(chunks_of(config.pipeline), 1),
                .expert = parallel.expert,
                .schedule = config.pipeline.schedule,
                .zero_stage = config.zero.stage,
                .recompute = config.recompute,
                .sequence_parallel = parallel.sequence_parallel && parallel.tensor > 1,
                .context_kind = config::context_kind(config),
                .context_neighbours = config::context_neighbours(config),
                .overlap = config.zero.overlap_comm};
  const ResolvedBatch batch = resolve_batch(config.batch, layout.data, config.source);
  layout.microbatch = batch.micro_batch_size;
  layout.microbatches = batch.gradient_accumulation_steps;
  return layout;
}

class DescribedPredictor final : public StepPredictor {
 public:
  DescribedPredictor(const Config& config, const model::Description& description, Cluster cluster)
      : cluster_(std::move(cluster)), model_(model::build(description)), steps_(model_, cluster_, state_types(config)) {}

  double seconds(const Config& config, int world_size) override {
    return steps_.predict(layout_of(config, world_size)).seconds.total();
  }

 private:
  Cluster cluster_;
  model::Model model_;
  StepModel steps_;
};

}  // namespace

Cluster host_cluster(const std::vector<Finding>& findings, int ranks) {
  // A message between threads or processes of a host costs some system calls, a kernel a call into a library.
  constexpr double kMessageSeconds = 10e-6, kLaunchSeconds = 1e-6;
  const double sum_rate = figure(findings, "all_reduce_bytes_per_second");
  Cluster host{.name = "this host", .devices_per_node = ranks};
  host.device = {.name = "a rank's cores",
                 .memory_bytes = static_cast<int64_t>(figure(findings, "free_bytes")) / ranks,
                 .memory_bandwidth = figure(findings, "copy_bytes_per_second") / ranks,
                 .matrix_flops = figure(findings, "bfloat16_flops_per_second") / ranks,
                 .float32_flops = figure(findings, "float32_flops_per_second") / ranks,
                 .product_efficiency = 1,  // the rates are measured
                 .launch_seconds = kLaunchSeconds};
  host.inside = host.outside = {.alpha = kMessageSeconds, .beta = 1 / sum_rate};
  return host;
}

std::unique_ptr<StepPredictor> make_described_predictor(const Config& config, const model::Description& model,
                                                        Cluster cluster) {
  return std::make_unique<DescribedPredictor>(config, model, std::move(cluster));
}

}  // namespace trivet::autotune
