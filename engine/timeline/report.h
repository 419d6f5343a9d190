// What is made of the recordings of all ranks: what was measured beside what the simulator makes of it.
//
//   timeline.svg      the recorded step of median length, a row a rank, and below it, on the same scale, its simulation
//                     with the measured costs (pipeline/measure.h)
//   measured.json     the two for chrome://tracing and Perfetto
//   simulated.json
//   costs.json        seconds of each block, medians over the steps, as pipeline.partition "cost:PATH" reads them
#pragma once

#include <string>
#include <vector>

#include "engine/plan.h"
#include "engine/timeline/block_costs.h"
#include "pipeline/measure.h"

namespace trivet::timeline {

// Time of a step in which a rank had nothing to do but wait, mean over the ranks; ms.
struct Exposed {
  double pipeline = 0;  // for activations and gradients of neighbours: bubbles and transfers
  double data = 0;      // for gathers and reductions, the new weights of the optimizer step among them
  double tensor = 0;    // for sums of tensor ranks
  double all = 0;       // for the sums of loss and norm, and for ties
};

struct Side {
  pipeline::Timeline timeline;  // [world rank]
  Exposed exposed;
};

struct Report {
  Side measured, simulated;
  double predicted_ms = 0;         // of a step: median of the simulations of all recorded ones
  double update_ms = 0;            // of the optimizer step, mean over the ranks; part of both makespans
  std::vector<BlockCosts> blocks;  // means over the ranks that have the block
};

// `recordings`: [world rank][step], equally many steps of each rank.
Report make_report(const Plan& plan, std::vector<std::vector<pipeline::Recording>> recordings);

// To and from text, to gather them over ranks.
std::string to_text(const std::vector<pipeline::Recording>& steps);
std::vector<pipeline::Recording> from_text(const std::string& text);

// Makes the folder. Throws ConfigError naming timeline.directory where that cannot be.
void make_directory(const Config& config);
void write(const Report& report, const Plan& plan);
// "41.20 ms measured and 40.60 predicted, bubble 11.2 and 10.9 %; a rank waits pipeline 4.10 and 3.90 ms; optimizer 2.10 ms"
std::string summary(const Report& report);

}  // namespace trivet::timeline
