// What a schedule leaves when only the first `microbatches` of it are run.
//
// Each instruction waits for others of its own microbatch only, so nothing that is left waits for something that is gone: a
// schedule that can run still can. Generators whose pattern wants a certain number of microbatches make that many, and drop the
// ones that are too many.
#pragma once

#include "pipeline/instruction.h"

namespace trivet::pipeline {

inline Schedule first_microbatches(Schedule schedule, int microbatches) {
  for (Program& program : schedule) std::erase_if(program, [&](const Instruction& i) { return i.microbatch >= microbatches; });
  return schedule;
}

}  // namespace trivet::pipeline
