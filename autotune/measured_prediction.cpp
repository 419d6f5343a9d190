#include "autotune/measured_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autotune/prediction.h"
#include "core/error.h"

namespace trivet::autotune {
namespace {

std::vector<Part> parts_of(const RehearsedSeconds& seconds) {
  return {{"compute", seconds.compute},    {"recompute", seconds.recompute}, {"tensor", seconds.tensor},
          {"data", seconds.data},          {"bubble", seconds.pipeline},     {"sums of all", seconds.all},
          {"optimizer", seconds.optimizer}};
}

const MeasuredSetup& setup_for(const Plan& plan, const HardwareProfile& profile, const std::string& path) {
  const int ranks = plan.mesh.size();
  if (const MeasuredSetup* setup = profile.find(ranks)) return *setup;
  std::string known;
  for (const MeasuredSetup& setup : profile.setups) known += fmt::format("{}{}", known.empty() ? "" : ", ", setup.ranks);
  throw ConfigError(fmt::format(
      "{}: was measured with {} ranks, the plan has {}; run `trivet bench kernels --ranks {} --profile "
      "{}`{}",
      path, known.empty() ? "no" : known, ranks, ranks, path, ranks > 1 ? " and `trivet bench comm` likewise" : ""));
}

double fastest_product(const MeasuredSetup& setup, DType dtype) {
  double most = 0;
  for (const KernelSample& sample : setup.kernels)
    if (sample.kernel == "matmul" && sample.dtype == dtype) most = std::max(most, sample.flops / sample.seconds);
  return most;
}

}  // namespace

MeasuredPrediction predict_plan(const Plan& plan, const model::Model& model, const HardwareProfile& profile,
                                const std::string& path) {
  const MeasuredSetup& setup = setup_for(plan, profile, path);
  const MeasuredCostModel costs(setup, path, plan.config.compute_device() == Device::Cpu);
  MeasuredPrediction prediction{.source = fmt::format("{}, measured with {} rank{} on {} ({})", setup.machine, setup.ranks,
                                                      setup.ranks == 1 ? "" : "s", profile.date, path),
                                .step = rehearse_step(plan, model, costs),
                                .product_flops = fastest_product(setup, plan.config.model_dtype()),
                                .unmeasured_share = costs.unmeasured_share()};
  const double seconds = prediction.step.seconds;
  prediction.tokens_per_second = static_cast<double>(plan.batch.train_batch_size * model.sequence_length) / seconds;
  if (prediction.product_flops > 0)
    prediction.model_flops_utilization =
        plan.model_flops_per_step / seconds / (static_cast<double>(plan.mesh.size()) * prediction.product_flops);
  return prediction;
}

std::string to_text(const Plan& plan, const MeasuredPrediction& prediction) {
  const RehearsedStep& step = prediction.step;
  std::string text = to_text(plan) + fmt::format("\non {}; a prediction\nstep      {:.4g} s, {:.4g} tokens/s\n",
                                                 prediction.source, step.seconds, prediction.tokens_per_second);
  for (const Part& part : parts_of(step.parts))
    text += fmt::format("  {:<12} {:>8.4g} s   {:>6.1f} %\n", part.name, part.value, 100 * part.value / step.seconds);
  if (prediction.product_flops > 0)
    text +=
        fmt::format("MFU       {:.1f} % = {:.4g} FLOP a step / ({:.4g} s x {} ranks x {:.4g} FLOP/s, the fastest product)\n",
                    100 * prediction.model_flops_utilization, plan.model_flops_per_step, step.seconds, plan.mesh.size(),
                    prediction.product_flops);
  if (prediction.unmeasured_share > 0.005)
    text += fmt::format("          {:.1f} % of the kernels' time is of kinds that were not measured\n",
                        100 * prediction.unmeasured_share);
  return text;
}

std::string to_json(const Plan& plan, const MeasuredPrediction& prediction) {
  auto json = nlohmann::ordered_json::parse(to_json(plan));
  json["measured_on"] = prediction.source;
  json["step_seconds"] = prediction.step.seconds;
  for (const Part& part : parts_of(prediction.step.parts)) json["seconds"][part.name] = part.value;
  json["tokens_per_second"] = prediction.tokens_per_second;
  json["model_flops_utilization"] = prediction.model_flops_utilization;
  json["unmeasured_share"] = prediction.unmeasured_share;
  return json.dump(2);
}

PlanPage page_of(const Plan& plan, const MeasuredPrediction& prediction) {
  PlanPage page = page_of(plan);
  const RehearsedSeconds& parts = prediction.step.parts;
  page.title += fmt::format(", on {}", prediction.source);
  page.step = StepPrediction{.seconds = {.compute = parts.compute,
                                         .recompute = parts.recompute,
                                         .tensor = parts.tensor,
                                         .bubble = parts.pipeline,
                                         .data = parts.data + parts.all,
                                         .optimizer = parts.optimizer},
                             .bytes = heaviest_of(page.ranks),
                             .tokens_per_second = prediction.tokens_per_second,
                             .model_flops_utilization = prediction.model_flops_utilization};
  if (page.schedule) {
    page.schedule->timeline = prediction.step.timelines.front();
    page.schedule->caption.unit = "ms";
  }
  return page;
}

}  // namespace trivet::autotune
