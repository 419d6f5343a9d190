// The programs of a run. The passes of pipeline/ make them from the schedule, the stage partition and the ZeRO stage; the
// executor of each pipeline rank walks through its own.
#pragma once

#include <vector>

#include "engine/config/config.h"
#include "pipeline/instruction.h"
#include "pipeline/passes/passes.h"
#include "zero/shard_layout.h"

namespace trivet {

// The blocks of each stage, and the pipeline rank that runs it.
struct StageMap {
  std::vector<int> first_blocks;   // [stage + 1]; the last entry is the number of blocks
  std::vector<int> rank_of_stage;  // [stage]

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  int blocks() const { return first_blocks.back(); }
  int stage_of_block(int block) const;
  int rank_of_block(int block) const { return rank_of_stage[stage_of_block(block)]; }
  // Checks whether the stage before (after) `stage` runs on another rank, which sends its activations (gradients).
  bool receives_forward(int stage) const { return stage > 0 && rank(stage - 1) != rank(stage); }
  bool receives_backward(int stage) const { return stage + 1 < stages() && rank(stage + 1) != rank(stage); }

 private:
  int rank(int stage) const { return rank_of_stage[stage]; }
};

struct Programs {
  pipeline::Program train;           // one step, all microbatches
  pipeline::Program evaluate;        // one microbatch, forward only
  pipeline::Program audit;           // one microbatch, forward and backward, no sums over ranks; empty: audit.every_steps is 0
  int microbatches = 1;              // per step, on each data rank
  std::vector<Recompute> recompute;  // [block] which part of its forward is recomputed
};

// The compute order of all pipeline ranks with their sends and receives, validated.
pipeline::Schedule make_schedule(const Config& config, int microbatches);

// Returns what the passes need to know about the layout.
pipeline::BlockParameters block_parameters(const zero::ShardLayout& layout, int zero_stage);

// Makes and validates the programs of one pipeline rank. Throws std::logic_error if the passes made one that cannot run.
Programs make_programs(const Config& config, const pipeline::Schedule& schedule, const StageMap& stages, int pipeline_rank,
                       const zero::ShardLayout& layout, int microbatches);

}  // namespace trivet
