// Finds the stages of a schedule, their ranks and their blocks from the instructions of its programs.
#pragma once

#include <vector>

#include "pipeline/instruction.h"

namespace trivet::pipeline {

struct Stage {
  int rank = -1;
  int first_block = -1, last_block = -1;  // -1 if instructions are for the whole stage
};

// Returns the stages in order. Throws std::logic_error unless they are numbered from 0 without gaps and each is on one rank.
std::vector<Stage> find_stages(const Schedule& schedule);

// Returns, for each stage, the pipeline rank that holds it.
std::vector<int> stage_ranks(const Schedule& schedule);

// Returns one more than the highest microbatch.
int count_microbatches(const Schedule& schedule);

}  // namespace trivet::pipeline
