// Predicts a step of a plan on the machine that trivet bench measured: it is rehearsed in modelled time, with the profile's
// times.
#pragma once

#include <string>

#include "autotune/hardware_profile.h"
#include "autotune/plan_page.h"
#include "autotune/rehearsed_step.h"

namespace trivet::autotune {

struct MeasuredPrediction {
  std::string source;  // "AMD EPYC, 2 cores, measured with 2 ranks on 2026-11-22 (trivet_profile.json)"
  RehearsedStep step;
  double targets_per_second = 0;
  double product_flops = 0;            // per second, of the fastest product measured in the plan's type, on one rank
  double model_flops_utilization = 0;  // model FLOPs per second / (ranks x product_flops)
  double unmeasured_share = 0;         // share of the kernels' time in kinds that were not measured
  double price_per_device_hour = 0;    // from the caller; 0: not given
  std::string unmeasured_kinds;        // the three that took most of it
};

// `path` is where the profile is from. Throws ConfigError that names what to measure if the profile does not have this number
// of ranks, is for a different device, or lacks the kinds of kernels that take most of the time; and for what has no modelled
// time (rehearse_step).
MeasuredPrediction predict_plan(const Plan& plan, const model::Model& model, const HardwareProfile& profile,
                                const std::string& path);

// The plan's own text, JSON or page, together with the prediction.
// `tokens`: a number of tokens, whose time and cost are also stated; 0: none is.
std::string to_text(const Plan& plan, const MeasuredPrediction& prediction, double tokens = 0);
std::string to_json(const Plan& plan, const MeasuredPrediction& prediction, double tokens = 0);
PlanPage page_of(const Plan& plan, const MeasuredPrediction& prediction, double tokens = 0);

}  // namespace trivet::autotune
