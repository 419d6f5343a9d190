// The steps whose timeline the config asks for (timeline.step, timeline.steps): when the engine records, and the report.
#pragma once

#include <cstdint>

#include "engine/trainer/run.h"

namespace trivet::trainer {

class RecordedSteps {
 public:
  // Throws ConfigError if these steps are not all within the run. Call it when the run is restored: it may already be past
  // them.
  explicit RecordedSteps(Run& run);

  void before_step();
  // After the last of these steps, gathers what all ranks have recorded and writes the files of the timeline. Collective.
  void after_step();

 private:
  bool contains(int64_t step) const;
  void report();

  Run& run_;
  int64_t first_ = 0;  // 0: none
};

}  // namespace trivet::trainer
