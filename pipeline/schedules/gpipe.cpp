#include "pipeline/schedules/schedules.h"

namespace trivet::pipeline {

Schedule gpipe(int ranks, int microbatches) {
  Schedule schedule(ranks);
  for (int stage = 0; stage < ranks; ++stage) {
    Program& program = schedule[stage];
    for (int m = 0; m < microbatches; ++m) program.push_back({Op::Forward, stage, m});
    for (int m = 0; m < microbatches; ++m) {
      program.push_back({Op::BackwardInput, stage, m});
      program.push_back({Op::BackwardWeight, stage, m});
    }
  }
  return schedule;
}

}  // namespace trivet::pipeline
