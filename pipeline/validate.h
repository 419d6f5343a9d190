// Proves that a schedule can run: data flow, transfers that match, and freedom from deadlock by the rules of the executor
// (pipeline/event_graph.h).
#pragma once

#include <vector>

#include "pipeline/instruction.h"
#include "pipeline/passes/passes.h"

namespace trivet::pipeline {

struct ScheduleFacts {
  // Per pipeline rank, in microbatches of one stage: the most whose activations exist at once.
  std::vector<int> peak_microbatches;    // from F to W
  std::vector<int> peak_until_backward;  // from F to I
};

// `schedule` as the generators make it, with or without insert_send_receive, or one that has all its passes behind it. Throws
// std::logic_error naming every rank that would wait for ever and the instruction it waits at, ranks that disagree about a
// transfer, an instruction that runs twice, before its turn or never.
ScheduleFacts validate(const Schedule& schedule, int microbatches);

// The same of programs that run the forward only.
void validate_forward(const Schedule& schedule, int microbatches);

// Of one rank's program after all passes: weights are whole at every use and released at the end, each gradient is reduced
// after it is complete. Throws std::logic_error naming the instruction.
void validate_lifetimes(const Program& program, const BlockParameters& parameters);

}  // namespace trivet::pipeline
