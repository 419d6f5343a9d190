// Runs a plan on ranks that are threads, and compares what they need and send with what it says.
#pragma once

#include <map>
#include <string>

#include "engine/plan.h"
#include "model/model.h"

namespace trivet {

inline model::Model model_as_configured(const Config& config) { return model::build(config.model); }

// Runs two steps and an evaluation. Expects each rank's memory at its peak, and the peak use of its arenas, which are as large
// as planned whether needed or not. With comms_logger, also what each rank sends in a step.
void expect_measured_as_planned(const Plan& plan);

}  // namespace trivet
