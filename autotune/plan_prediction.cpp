#include "autotune/plan_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autotune/prediction.h"
#include "autotune/search.h"
#include "autotune/units.h"
#include "core/error.h"
#include "model/count_flops.h"

namespace trivet::autotune {
namespace {

StepBytes bytes_of(const RankPlan& rank) {
  const auto of = [&](MemoryCategory category) { return as_double(rank.memory[category]); };
  return {.parameters = of(MemoryCategory::Parameters),
          .gradients = of(MemoryCategory::Gradients),
          .optimizer = of(MemoryCategory::Optimizer),
          .activations = of(MemoryCategory::Activations),
          .buffers = of(MemoryCategory::Buffers),
          .host = as_double(rank.host_memory.total())};
}

std::string memory_text(const PlanPrediction& prediction, const Cluster& cluster) {
  const StepBytes& bytes = prediction.step.bytes;
  const double limit = as_double(cluster.device.usable_bytes());
  const Unit unit = unit_of_memory(bytes.total());
  std::string text = fmt::format(
      "memory of the rank that needs most, out of {:.2f} GiB on each device ({:.2f} GiB less a reserve of {:.2f} GiB)\n",
      limit / kGib, as_double(cluster.device.memory_bytes) / kGib, as_double(cluster.device.reserve_bytes) / kGib);
  const auto line = [&](const std::string& name, double value) {
    return fmt::format("  {:<12} {:>8.2f} {} {:>6.1f} %", name, value / unit.size, unit.name, 100 * value / limit);
  };
  for (const NamedValue& part : parts_of(bytes)) text += line(part.name, part.value) + "\n";
  if (bytes.host > 0)
    text += fmt::format("  {:<12} {:>8.2f} GiB of {:.2f}\n", "host", bytes.host / kGib,
                        as_double(cluster.host.memory_bytes) / kGib);
  return text + line("total", bytes.total()) + fmt::format(": {}\n", fit_text(bytes, cluster));
}

std::string time_text(const PlanPrediction& prediction, const Cluster& cluster) {
  const StepPrediction& step = prediction.step;
  std::string text = step_text(step.seconds, step.targets_per_second);
  for (const std::string& line : network_lines(prediction)) text += fmt::format("network   {}\n", line);
  text += fmt::format("MFU       {:.1f} % = {} a token x {} / ({} devices x {}/s)\n", 100 * step.model_flops_utilization,
                      flop_text(prediction.flops_per_token), rate_text(step.targets_per_second), prediction.layout.devices(),
                      flop_text(cluster.device.matrix_flops));
  if (cluster.price_per_device_hour > 0)
    text += fmt::format("price     {}\n", price_text(cluster, prediction.layout.devices(), step));
  return text;
}

}  // namespace

std::vector<std::string> network_lines(const PlanPrediction& prediction) {
  if (prediction.layout.devices() == prediction.layout.pipeline) return {};
  const StepSeconds& seconds = prediction.step.seconds;
  const Unit unit = unit_of_time(seconds.total());
  return {fmt::format("{} axes communicate for {:.3f} {} while the device computes, and for {:.3f} {} while it waits",
                      communicating_axes(prediction.layout), seconds.hidden / unit.size, unit.name,
                      seconds.waiting() / unit.size, unit.name)};
}

std::string fit_text(const StepBytes& bytes, const Cluster& cluster) {
  return fits(bytes, cluster) ? "fits" : shortage(bytes, cluster);
}

std::vector<StepBytes> bytes_of_ranks(const Plan& plan) {
  std::vector<StepBytes> ranks(plan.mesh.size(Axis::Pipeline));
  for (const RankPlan& rank : plan.ranks) {
    StepBytes& most = ranks[rank.coordinates[Axis::Pipeline]];
    const StepBytes bytes = bytes_of(rank);
    if (bytes.total() > most.total()) most = bytes;
  }
  return ranks;
}

StepBytes heaviest_of(const std::vector<StepBytes>& ranks) {
  StepBytes most = *std::ranges::max_element(ranks, {}, &StepBytes::total);
  most.host = std::ranges::max_element(ranks, {}, &StepBytes::host)->host;
  return most;
}

PlanPrediction predict_plan(const Plan& plan, const model::Model& model, const Cluster& cluster) {
  check_devices(cluster, plan.mesh.size());
  const Layout layout = layout_of(plan);
  if (layout.offload_optimizer && !cluster.can_offload())
    throw ConfigError(
        fmt::format("cluster \"{}\": host: is missing, and zero_optimization.offload_optimizer needs it; give "
                    "host.memory_bytes, host.memory_bytes_per_second and host.link_bytes_per_second",
                    cluster.name));
  const StepModel steps(model, cluster, state_types(plan.config));
  PlanPrediction prediction{
      .layout = layout,
      .step = steps.predict(layout),
      .ranks = bytes_of_ranks(plan),
      .flops_per_token = model::flops_per_sample(model) / static_cast<double>(model.sample.counted_targets())};
  prediction.step.bytes = heaviest_of(prediction.ranks);
  return prediction;
}

std::string to_text(const Plan& plan, const PlanPrediction& prediction, const Cluster& cluster, double tokens) {
  std::string text = to_text(plan) + fmt::format("\non cluster {}: {}, {} per node; all except the memory is predicted\n",
                                                 cluster.name, cluster.device.name, cluster.devices_per_node);
  if (plan.config.compute_device() == Device::Cpu)
    text += "memory is counted for \"device\": \"cpu\"; --set device=cuda adds what a GPU's backend takes\n";
  text += memory_text(prediction, cluster) + time_text(prediction, cluster);
  if (tokens > 0)
    text += fmt::format("run       {}\n", tokens_text(tokens, cluster, prediction.layout.devices(), prediction.step));
  return text;
}

std::string to_json(const Plan& plan, const PlanPrediction& prediction, const Cluster& cluster, double tokens) {
  auto json = nlohmann::ordered_json::parse(to_json(plan));
  json["cluster"] = cluster_json(cluster);
  json["fits"] = fits(prediction.step.bytes, cluster);
  json["over_bytes"] = std::max(0.0, bytes_over(prediction.step.bytes, cluster));
  json["flops_per_token"] = prediction.flops_per_token;
  add_step(json, cluster, prediction.layout.devices(), prediction.step);
  if (tokens > 0) json["run"] = tokens_json(tokens, cluster, prediction.layout.devices(), prediction.step);
  return json.dump(2);
}

}  // namespace trivet::autotune
