// Training runs that PyTorch made (tests/golden/training_reference.py), and the same runs by an Engine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/engine.h"

namespace trivet::test {

using NamedValues = std::map<std::string, std::vector<double>>;

// The largest relative differences between two traces of one run. The difference of a weight's element is relative to the
// furthest that any element of its tensor moved from its initial value.
struct TraceDifference {
  double loss = 0, grad_norm = 0, evaluation = 0, weights = 0;
};

struct TrainingTrace {
  std::vector<double> loss, grad_norm, lr;  // of each step; the norm of a skipped step means nothing
  std::vector<bool> skipped;
  std::vector<int64_t> counted_targets;  // of each step
  double evaluation = 0;                 // the mean loss on a separate batch, after the last step
  int64_t evaluated_targets = 0;
  NamedValues weights;  // after the last step; in a golden run, empty unless they were kept
};

struct GoldenRun {
  std::string name, model, config;  // the config as JSON
  TrainingTrace trace;
  TraceDifference rounding;  // what rounding in the run's precision did to PyTorch's own run
};

struct GoldenSchedule {
  std::string name, config;
  std::vector<double> lr;  // of each step
};

const std::vector<GoldenRun>& golden_runs();
const std::vector<GoldenSchedule>& golden_schedules();

// Where and how a run is executed.
struct TrainingPlace {
  std::string name;
  int ranks = 1;
  std::vector<std::string> overrides;  // of the config
};

// Executes a golden run with an Engine on each rank. In the steps that the golden run skips, a gradient on rank 0 is made
// infinite.
TrainingTrace train(const GoldenRun& run, const TrainingPlace& place);

// Replaces the initial weights of an engine without tensor or pipeline ranks. All ranks call it together.
void set_weights(Engine& engine, const NamedValues& initial);
// Those of all ranks together, by full name. All ranks call it together.
NamedValues weights_of(Engine& engine);

TraceDifference difference(const GoldenRun& golden, const TrainingTrace& trace);

}  // namespace trivet::test
