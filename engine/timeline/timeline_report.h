// The report on a recorded run: what was measured on all ranks, next to what the simulator predicts.
//
//   timeline.svg      the recorded step of median length, with one row per rank, and below it, on the same scale, its
//                     simulation with the measured costs (pipeline/measure.h)
//   measured.json     these two timelines for chrome://tracing and Perfetto
//   simulated.json
//   costs.json        seconds of each block, medians over the steps, as pipeline.partition "cost:PATH" reads them
//   ranks.json        how long each rank computed and waited in the step of timeline.svg
#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine/plan.h"
#include "engine/timeline/block_costs.h"
#include "pipeline/measure.h"

namespace trivet::timeline {

// Time of a step in which a rank only waits, in ms; mean over the ranks.
struct Exposed {
  // [Axis] Pipeline: for activations and gradients of neighbours, which are bubbles and transfers. Data: for gathers and
  // reductions, including those of the optimizer step. Others: for what layers exchange.
  std::array<double, kAxes> axes{};
  double all = 0;  // for the sums of loss and norm, and for ties
};

struct StepTimes {
  pipeline::Timeline timeline;  // [world rank]
  Exposed exposed;
};

struct TimelineReport {
  StepTimes measured, simulated;
  double predicted_ms = 0;         // median over the simulations of all recorded steps
  double update_ms = 0;            // time of the optimizer step, mean over the ranks; part of both makespans
  std::vector<BlockCosts> blocks;  // means over the ranks that have the block
};

// `recordings`: [world rank][step], with the same number of steps for each rank.
TimelineReport make_timeline_report(const Plan& plan, std::vector<std::vector<pipeline::Recording>> recordings);

// Converts recordings to and from text, so that they can be gathered over ranks.
std::string to_text(const std::vector<pipeline::Recording>& steps);
std::vector<pipeline::Recording> from_text(const std::string& text);

// Creates timeline.directory. Throws ConfigError naming the key if that fails.
void make_directory(const Config& config);
void write(const TimelineReport& report, const Plan& plan);
// "41.20 ms measured and 40.60 predicted, bubble 11.2 and 10.9 %; waits per rank: pipeline 4.10 and 3.90 ms; optimizer 2.10 ms"
std::string summary(const TimelineReport& report);

}  // namespace trivet::timeline
