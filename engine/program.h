// The programs of a run: from the schedule and the ZeRO stage, through the passes of pipeline/, to what the executor walks.
#pragma once

#include "engine/config/config.h"
#include "pipeline/instruction.h"
#include "pipeline/passes/passes.h"
#include "zero/shard_layout.h"

namespace trivet {

struct Programs {
  pipeline::Program train;     // of all microbatches of a step
  pipeline::Program evaluate;  // forward of one microbatch
  int microbatches = 1;
  bool recompute = false;
};

// What the passes need to know of the layout.
pipeline::BlockParameters block_parameters(const zero::ShardLayout& layout, int zero_stage);

// Validated: throws std::logic_error if the passes made a program that cannot run.
Programs make_programs(const Config& config, const zero::ShardLayout& layout, int64_t microbatches);

}  // namespace trivet
