// Proves that a schedule can run: data flow, and freedom from deadlock with rendezvous sends and one stream per direction.
#pragma once

#include <vector>

#include "pipeline/instruction.h"
#include "pipeline/passes/passes.h"

namespace trivet::pipeline {

struct ScheduleFacts {
  std::vector<int> peak_microbatches;  // per pipeline rank: microbatches between their first F and their last backward
};

// `schedule` as the generators make it, with or without insert_send_receive. Throws std::logic_error naming every rank that
// would wait for ever and the instruction it waits at, an instruction that runs twice, or one that is missing.
ScheduleFacts validate(const Schedule& schedule, int microbatches);

// Of one rank's program after all passes: weights are whole at every use and released at the end, each gradient is reduced
// after it is complete. Throws std::logic_error naming the instruction.
void validate_lifetimes(const Program& program, const BlockParameters& parameters);

}  // namespace trivet::pipeline
