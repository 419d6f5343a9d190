// The steps whose times say how fast a run is. Two kinds are left out: the first step of each start, which touches memory for
// the first time, and the steps of starts on another number of ranks than the last one, to which the plan belongs.
//
//   start   ranks   steps        timed
//   1       4       1 to 100     2 to 100
//   2       2       101 to 150   none
//   3       4       141 to 200   142 to 200; the times that steps 141 to 150 had before are no longer known
#pragma once

#include <string>
#include <vector>

#include "report/run_data.h"

namespace trivet::report {

struct TimedSteps {
  std::vector<StepPoint> steps;
  std::string note;  // names these steps for people; empty for a run that was started once
};

TimedSteps timed_steps(const RunData& run);

}  // namespace trivet::report
