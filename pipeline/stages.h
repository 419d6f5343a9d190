// Where the stages of a schedule are, found from what its programs run.
#pragma once

#include <vector>

#include "pipeline/instruction.h"

namespace trivet::pipeline {

struct Stage {
  int rank = -1;
  int first_block = -1, last_block = -1;  // -1 where instructions are of the whole stage
};

// [stage] Stages without a gap from 0, each on one rank; anything else throws std::logic_error.
std::vector<Stage> find_stages(const Schedule& schedule);

// [stage] -> pipeline rank that holds it.
std::vector<int> stage_ranks(const Schedule& schedule);

// One more than the highest microbatch.
int count_microbatches(const Schedule& schedule);

}  // namespace trivet::pipeline
