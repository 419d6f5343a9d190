#include "autotune/measured_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autotune/prediction.h"
#include "core/error.h"

namespace trivet::autotune {
namespace {

constexpr double kMaxUnmeasured = 0.5;

const MeasuredSetup& setup_for(const Plan& plan, const HardwareProfile& profile, const std::string& path) {
  const int ranks = plan.mesh.size();
  if (const MeasuredSetup* setup = profile.find(ranks)) return *setup;
  std::string known;
  for (const MeasuredSetup& setup : profile.setups) known += fmt::format("{}{}", known.empty() ? "" : ", ", setup.ranks);
  throw ConfigError(fmt::format("{}: was measured with {} ranks, but the plan has {}; run {}{}", path,
                                known.empty() ? "no" : known, ranks, bench_command("kernels", ranks, path),
                                ranks > 1 ? " and `trivet bench comm` with the same flags" : ""));
}

StepPrediction step_of(const MeasuredPrediction& prediction) {
  return {.seconds = prediction.step.parts,
          .bytes = {},
          .targets_per_second = prediction.targets_per_second,
          .model_flops_utilization = prediction.model_flops_utilization};
}

// A cluster that only states the price; a rank counts as a device.
Cluster priced(const MeasuredPrediction& prediction) {
  Cluster cluster;
  cluster.price_per_device_hour = prediction.price_per_device_hour;
  return cluster;
}

double fastest_product(const MeasuredSetup& setup, DType dtype) {
  double most = 0;
  for (const KernelSample& sample : setup.kernels)
    if (sample.bound == kernels::Bound::Products && sample.dtype == dtype) most = std::max(most, sample.flops / sample.seconds);
  return most;
}

}  // namespace

MeasuredPrediction predict_plan(const Plan& plan, const model::Model& model, const HardwareProfile& profile,
                                const std::string& path) {
  const MeasuredSetup& setup = setup_for(plan, profile, path);
  if (setup.device != plan.config.compute_device())
    throw ConfigError(fmt::format("{}: was measured on {} (\"{}\"), but the plan is for device \"{}\"; measure on that device",
                                  path, setup.machine, name_of(setup.device), name_of(plan.config.compute_device())));
  const MeasuredCostModel costs(setup, path);
  MeasuredPrediction prediction{.source = fmt::format("{}, measured with {} rank{} on {} ({})", setup.machine, setup.ranks,
                                                      setup.ranks == 1 ? "" : "s", profile.date, path),
                                .step = rehearse_step(plan, model, costs),
                                .product_flops = fastest_product(setup, plan.config.model_dtype()),
                                .unmeasured_share = costs.unmeasured_share(),
                                .unmeasured_kinds = costs.unmeasured_kinds()};
  if (prediction.unmeasured_share > kMaxUnmeasured)
    throw ConfigError(fmt::format(
        "{}: {:.0f} % of the kernels' time is in kinds that were not measured ({}); run {} for longer (--seconds)", path,
        100 * prediction.unmeasured_share, prediction.unmeasured_kinds, bench_command("kernels", setup.ranks, path)));
  const double seconds = prediction.step.seconds;
  prediction.targets_per_second = static_cast<double>(plan.batch.train_batch_size * model.sample.counted_targets()) / seconds;
  if (prediction.product_flops > 0)
    prediction.model_flops_utilization =
        plan.model_flops_per_step / seconds / (static_cast<double>(plan.mesh.size()) * prediction.product_flops);
  return prediction;
}

std::string to_text(const Plan& plan, const MeasuredPrediction& prediction, double tokens) {
  const RehearsedStep& step = prediction.step;
  std::string text = to_text(plan) + fmt::format("\non {}; a prediction\n", prediction.source) +
                     step_text(step.parts, prediction.targets_per_second);
  if (prediction.product_flops > 0)
    text += fmt::format("MFU       {:.1f} % = {} a step / ({:.4g} s x {} ranks x {}/s, the fastest product)\n",
                        100 * prediction.model_flops_utilization, flop_text(plan.model_flops_per_step), step.seconds,
                        plan.mesh.size(), flop_text(prediction.product_flops));
  if (prediction.price_per_device_hour > 0)
    text += fmt::format("price     {}\n", price_text(priced(prediction), plan.mesh.size(), step_of(prediction)));
  if (tokens > 0)
    text += fmt::format("run       {}\n", tokens_text(tokens, priced(prediction), plan.mesh.size(), step_of(prediction)));
  if (prediction.unmeasured_share > 0.005)
    text += fmt::format("          {:.1f} % of the kernels' time is in kinds that were not measured: {}\n",
                        100 * prediction.unmeasured_share, prediction.unmeasured_kinds);
  return text;
}

std::string to_json(const Plan& plan, const MeasuredPrediction& prediction, double tokens) {
  auto json = nlohmann::ordered_json::parse(to_json(plan));
  json["measured_on"] = prediction.source;
  add_step(json, priced(prediction), plan.mesh.size(), step_of(prediction));
  if (tokens > 0) json["run"] = tokens_json(tokens, priced(prediction), plan.mesh.size(), step_of(prediction));
  json["product_flops_per_second"] = prediction.product_flops;
  json["unmeasured_share"] = prediction.unmeasured_share;
  json["unmeasured_kinds"] = prediction.unmeasured_kinds;
  return json.dump(2);
}

PlanPage page_of(const Plan& plan, const MeasuredPrediction& prediction, double tokens) {
  PlanPage page = page_of(plan);
  page.title += fmt::format(", on {}", prediction.source);
  page.step = step_of(prediction);
  page.step->bytes = heaviest_of(page.ranks);
  if (prediction.price_per_device_hour > 0) page.price = price_text(priced(prediction), plan.mesh.size(), *page.step);
  if (tokens > 0) page.run = tokens_text(tokens, priced(prediction), plan.mesh.size(), *page.step);
  const pipeline::Timeline& timeline = prediction.step.timelines.front();
  int64_t boxes = 0;
  for (const auto& rank : timeline.ranks) boxes += static_cast<int64_t>(rank.size());
  if (page.schedule && boxes <= kMaxBoxes) {
    page.schedule->timeline = timeline;
    page.schedule->caption.unit = "ms";
  } else {
    page.schedule.reset();
  }
  return page;
}

}  // namespace trivet::autotune
