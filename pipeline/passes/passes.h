// Passes turn compute order into what a rank really runs. Each is a pure function Program -> Program (or Schedule -> Schedule);
// they are applied in the order in which they stand here (engine/program.cpp does).
//
//   gpipe/1f1b        0F0 0I0 0W0
//   expand_blocks     0.0F0 0.1F0 0.1B0 0.0B0               one instruction a block; I and W side by side become B
//   fuse_loss         0.0F0 0.1L0 0.0B0                     the last block of the last stage computes the loss: F waits for I
//   insert_recompute  0.0F0 0.1L0 0.0R0 0.0B0
//   insert_tie        ... 0.1TIE                            weights that two blocks share: their gradients become one
//   insert_reduce     ... 0.1REDUCE 0.0B0 0.0REDUCE         as soon as a block's gradients are complete
//   insert_unshard    0.0UNSHARD 0.0F0 0.0RESHARD ...       ZeRO-3: whole only around their uses
//   prefetch          0.0UNSHARD 0.1UNSHARD 0.0F0 ...       gathers start early enough to overlap
//   insert_sum_loss   ... 0SUM_LOSS
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/instruction.h"
#include "pipeline/passes/unshard_release.h"

namespace trivet::pipeline {

enum class BackwardSends {
  AfterWeights,  // a W directly behind its I belongs to the same backward, which is one B in the end (1F1B and its kin)
  AfterInput,    // gradients leave before any W (zero-bubble schedules)
};
// A SEND_F behind each F and a SEND_B behind each I, where the next stage is on another rank; there a RECV before the
// computation that precedes its use. The receives of two ranks' link are in the order of the sends.
Schedule insert_send_receive(const Schedule& schedule, BackwardSends sends);

// Replaces instructions of whole stages by one per block: F in ascending, I and W in descending order. An I that is directly
// followed by the W of the same microbatch becomes one B per block. Stage s has the blocks [first_blocks[s], first_blocks[s +
// 1]).
Program expand_blocks(const Program& program, const std::vector<int>& first_blocks);

// For the stage that ends with the loss block: its forward has no other use than its own backward, so it moves there and both
// (with the backward_weight) become one L.
Program fuse_loss(const Program& program, int loss_block);

// An R before each I or B of the blocks with recomputed[block]: the block's forward runs again, its Saved was cleared after the
// first. Not for L.
Program insert_recompute(const Program& program, const std::vector<bool>& recomputed);

// What the blocks use, for the ZeRO passes; indexed by block. Blocks of other ranks have no elements.
struct BlockParameters {
  std::vector<std::vector<int>> weights_of;    // blocks whose weights it reads (itself first; others: tied)
  std::vector<std::vector<int>> gradients_of;  // blocks whose gradients it adds to
  std::vector<int64_t> sharded_elements;       // of its own parameters that UNSHARD gathers (0: none)
  std::vector<int64_t> gradient_elements;      // of its own parameters that REDUCE reduces (0: none)
  std::vector<int> stage_of;                   // empty: a REDUCE gets the stage of the instruction before it
};

// A weight that two blocks use and that each has gradients of (zero/shard_layout.h, Note: tied weights).
struct Tie {
  int owner_block = 0, user_block = 0;
};
// A TIE for each at the end of the program, when all of this rank's other work for the step is done: the two ranks of a TIE
// wait for each other, and nothing else may wait behind that. Before insert_reduce where gradients are accumulated whole, after
// it where they are reduced every microbatch.
Program insert_tie(const Program& program, const std::vector<Tie>& ties, const std::vector<int>& stage_of_block);

// SUM_LOSS at the end.
Program insert_sum_loss(const Program& program);

enum class ReduceWhen {
  LastMicrobatch,   // gradients are accumulated whole; one reduction a step (stages 0 and 1)
  EveryMicrobatch,  // only a shard is kept, so each microbatch's gradient is reduced at once (stages 2 and 3)
};
// A REDUCE of block b directly after the last instruction (of the program, or of the microbatch) that adds to b's gradients; a
// TIE in the program adds to those of its owner.
Program insert_reduce(const Program& program, const BlockParameters& parameters, ReduceWhen when,
                      const std::vector<Tie>& ties = {});

struct UnshardLimits {
  UnshardRelease release = UnshardRelease::Distance;  // zero_optimization.stage3_release
  int64_t max_live_elements = 1'000'000'000;          // zero_optimization.stage3_max_live_parameters
  int64_t max_reuse_distance =
      1'000'000'000;  // ...stage3_max_reuse_distance: kept whole if fewer elements are used before the next use
  int64_t prefetch_elements = 50'000'000;  // ...stage3_prefetch_bucket_size
};
// UNSHARD before the first use of a block's weights and RESHARD after a use where `release` says so, when keeping them would
// exceed max_live_elements, or when it is the last.
Program insert_unshard(const Program& program, const BlockParameters& parameters, const UnshardLimits& limits);

// Moves each UNSHARD before earlier computations, as long as the elements gathered ahead of their use stay within
// prefetch_elements and the whole ones within max_live_elements. The order of UNSHARDs does not change.
Program prefetch(const Program& program, const BlockParameters& parameters, const UnshardLimits& limits);

// What a program with its UNSHARDs gathers, and how much of it is whole at once.
struct WholeWeights {
  int64_t gathered_elements = 0, peak_elements = 0;
};
WholeWeights whole_weights(const Program& program, const BlockParameters& parameters);

}  // namespace trivet::pipeline
