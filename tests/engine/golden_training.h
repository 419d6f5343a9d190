// Training runs that PyTorch made (tests/golden/training_reference.py), and the same runs by an Engine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/config/config.h"

namespace trivet::test {

using NamedValues = std::map<std::string, std::vector<double>>;

// Largest relative differences of two traces of one run. Weights: of an element, relative to the furthest that one of its
// tensor went from its initial value.
struct TraceDifference {
  double loss = 0, grad_norm = 0, evaluation = 0, weights = 0;
};

struct TrainingTrace {
  std::vector<double> loss, grad_norm, lr;  // of each step; the norm of a skipped step means nothing
  std::vector<bool> skipped;
  std::vector<int64_t> counted_targets;  // of each step
  double evaluation = 0;                 // the mean loss of a batch of its own, after the last step
  int64_t evaluated_targets = 0;
  NamedValues weights;  // after the last step; of a golden: empty unless they were kept
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

// Where a run is made.
struct TrainingPlace {
  std::string name;
  int ranks = 1;
  std::vector<std::string> overrides;  // of the config
};

// Makes a golden run with an Engine on each rank. In the steps that the golden skips, a gradient on rank 0 is made infinite.
TrainingTrace train(const GoldenRun& run, const TrainingPlace& place);

TraceDifference difference(const GoldenRun& golden, const TrainingTrace& trace);

}  // namespace trivet::test
