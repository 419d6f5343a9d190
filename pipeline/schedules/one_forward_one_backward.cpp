#include <algorithm>

#include "pipeline/schedules/schedules.h"

namespace trivet::pipeline {

Schedule one_forward_one_backward(int stages, int microbatches) {
  Schedule schedule(static_cast<size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) {
    Program& program = schedule[static_cast<size_t>(stage)];
    const int warmup = std::min(stages - 1 - stage, microbatches);
    for (int m = 0; m < warmup; ++m) program.push_back({Op::Forward, stage, m});
    for (int m = 0; m < microbatches; ++m) {
      if (m + warmup < microbatches) program.push_back({Op::Forward, stage, m + warmup});
      program.push_back({Op::BackwardInput, stage, m});
      program.push_back({Op::BackwardWeight, stage, m});
    }
  }
  return schedule;
}

}  // namespace trivet::pipeline
