// The parts of a predicted step, with the same names and order in tables, JSON and pages.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "autotune/step_model.h"
#include "report/page_drawing.h"

namespace trivet::autotune {

using report::NamedValue;
std::vector<NamedValue> parts_of(const StepSeconds& seconds);
std::vector<NamedValue> parts_of(const StepBytes& bytes);  // the device's memory

// A number above 0 in so many digits: "697,300", "0.07236".
std::string figure(double value, int digits = 4);
std::string rate_text(double targets_per_second);  // "697,300 tokens/s"
std::string flop_text(double flop);                // "51.47 GFLOP"
// The total with its tokens/s, and a row for each part with its share: "step      3.415 s, 614,200 tokens/s\n  compute ...".
std::string step_text(const StepSeconds& seconds, double targets_per_second);

// The axes on which a layout communicates while it computes, tensor and data always: "tensor, context and data".
std::string communicating_axes(const Layout& layout);

// Returns the price in the currency of the cluster's price_per_device_hour; 0 if it has none.
double price_of_token(const Cluster& cluster, int64_t devices, const StepPrediction& step);
// "0.07236 for 1 M tokens, 72.36 for 1 B and 72,360 for 1 T, at 2.5 per device and hour"
std::string price_text(const Cluster& cluster, int64_t devices, const StepPrediction& step);

// "1 T tokens: 162 days, 624,000 at 2.5 per device and hour", the cost only if there is a price.
std::string tokens_text(double tokens, const Cluster& cluster, int64_t devices, const StepPrediction& step);
nlohmann::ordered_json tokens_json(double tokens, const Cluster& cluster, int64_t devices, const StepPrediction& step);

// Adds step_seconds, seconds, tokens_per_second, model_flops_utilization, and price if there is one. Targets are shown as
// tokens, which the targets of a text are.
void add_step(nlohmann::ordered_json& json, const Cluster& cluster, int64_t devices, const StepPrediction& step);
nlohmann::ordered_json memory_json(const StepBytes& bytes);
nlohmann::ordered_json cluster_json(const Cluster& cluster);

}  // namespace trivet::autotune
