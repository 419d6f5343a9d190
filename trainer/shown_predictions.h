// Collects what an evaluation shows to people: some of its samples, with what the model predicts for them.
#pragma once

#include <vector>

#include "trainer/predictions.h"
#include "trainer/run.h"

namespace trivet::trainer {

// Collective, after an evaluation: gathers what the ranks have kept of it, and reports those to show on the first rank, which
// has the samples itself. They are the same on every layout.
void report_predictions(Run& run, const std::vector<Prediction>& kept);

}  // namespace trivet::trainer
