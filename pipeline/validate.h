// Proves that a schedule can run: its data flow is correct, its transfers match, and it cannot deadlock under the rules of the
// executor (pipeline/event_graph.h).
#pragma once

#include <vector>

#include "pipeline/instruction.h"
#include "pipeline/passes/passes.h"

namespace trivet::pipeline {

struct ScheduleFacts {
  // [pipeline rank] The most (stage, microbatch) pairs whose activations exist at once.
  std::vector<int> peak_microbatches;    // from F to W
  std::vector<int> peak_until_backward;  // from F to I
};

// `schedule` comes from a generator, with or without insert_send_receive, or has been through all passes. Throws
// std::logic_error naming every rank that would wait forever and the instruction at which it waits, ranks that disagree about
// a transfer, or an instruction that runs twice, out of order or never.
ScheduleFacts validate(const Schedule& schedule, int microbatches);

// Does the same for programs that run only the forward.
void validate_forward(const Schedule& schedule, int microbatches);

// Checks one rank's program after all passes: weights must be whole at every use and released at the end, and each gradient
// must be reduced after it is complete. Throws std::logic_error naming the instruction.
void validate_lifetimes(const Program& program, const BlockParameters& parameters);

}  // namespace trivet::pipeline
