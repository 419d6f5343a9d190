// Cuts a schedule down to its first `microbatches` microbatches.
//
// Each instruction waits only for instructions of its own microbatch, so no remaining instruction waits for a removed one: a
// schedule that could run before still can. A generator whose pattern needs a certain number of microbatches generates that
// many and then removes the surplus.
#pragma once

#include "pipeline/instruction.h"

namespace trivet::pipeline {

inline Schedule first_microbatches(Schedule schedule, int microbatches) {
  for (Program& program : schedule) std::erase_if(program, [&](const Instruction& i) { return i.microbatch >= microbatches; });
  return schedule;
}

}  // namespace trivet::pipeline
