// The programs of a run: from the schedule, the stage partition and the ZeRO stage, through the passes of pipeline/, to what
// the executor of one pipeline rank walks.
#pragma once

#include <vector>

#include "engine/config/config.h"
#include "pipeline/instruction.h"
#include "pipeline/passes/passes.h"
#include "zero/shard_layout.h"

namespace trivet {

// Which blocks a stage has and which pipeline rank has the stage.
struct StageMap {
  std::vector<int> first_blocks;   // [stage], then the number of blocks
  std::vector<int> rank_of_stage;  // [stage]

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  int blocks() const { return first_blocks.back(); }
  int stage_of_block(int block) const;
  int rank_of_block(int block) const { return rank_of_stage[static_cast<size_t>(stage_of_block(block))]; }
  // Another rank has the stage before (after) `stage`: what goes there is sent.
  bool receives_forward(int stage) const { return stage > 0 && rank(stage - 1) != rank(stage); }
  bool receives_backward(int stage) const { return stage + 1 < stages() && rank(stage + 1) != rank(stage); }

 private:
  int rank(int stage) const { return rank_of_stage[static_cast<size_t>(stage)]; }
};

struct Programs {
  pipeline::Program train;           // of all microbatches of a step
  pipeline::Program evaluate;        // forward of one microbatch
  int microbatches = 1;              // of this rank's data rank in a step
  std::vector<Recompute> recompute;  // [block] what of its forward is not kept but made again
};

// The compute order of all pipeline ranks with their sends and receives, validated.
pipeline::Schedule make_schedule(const Config& config, int microbatches);

// What the passes need to know of the layout.
pipeline::BlockParameters block_parameters(const zero::ShardLayout& layout, int zero_stage);

// The programs of one pipeline rank. They are validated: throws std::logic_error if the passes made one that cannot run.
Programs make_programs(const Config& config, const pipeline::Schedule& schedule, const StageMap& stages, int pipeline_rank,
                       const zero::ShardLayout& layout, int microbatches);

}  // namespace trivet
