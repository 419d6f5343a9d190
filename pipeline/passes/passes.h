// Passes turn a compute order into the program that a rank actually runs. Each is a pure function Program -> Program (or
// Schedule -> Schedule); engine/program.cpp applies them in the order of this list.
//
//   gpipe/1f1b        0F0 0I0 0W0
//   expand_blocks     0.0F0 0.1F0 0.1B0 0.0B0               one instruction per block; an I and the W right after it become B
//   fuse_loss         0.0F0 0.1L0 0.0B0                     the last block of the last stage computes the loss: F joins its I
//   insert_recompute  0.0F0 0.1L0 0.0R0 0.0B0
//   insert_tie        ... 0.1TIE                            sums the gradients of weights that two blocks share
//   insert_reduce     ... 0.1REDUCE 0.0B0 0.0REDUCE         as soon as a block's gradients are complete
//   insert_unshard    0.0UNSHARD 0.0F0 0.0RESHARD ...       ZeRO-3: weights are whole only around their uses
//   prefetch          0.0UNSHARD 0.1UNSHARD 0.0F0 ...       gathers start early enough to overlap
//   insert_offload    0.1OFFLOAD0 0.1F0 0.2F0 0.1FETCH0 0.3L0 0.2R0 ...  inputs of recomputed blocks wait in host memory
//   insert_sum_loss   ... 0SUM_LOSS
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/instruction.h"
#include "pipeline/passes/unshard_release.h"

namespace trivet::pipeline {

// Checks whether the instruction at `at` is an I that is directly followed by the W of the same stage and microbatch.
bool weight_follows(const Program& program, size_t at);

enum class BackwardSends {
  AfterWeights,  // an I and the W right after it form one backward, a B; gradients are sent after it (1F1B and its relatives)
  AfterInput,    // gradients are sent before any W (zero-bubble schedules)
};
// Inserts a SEND_F after each F and a SEND_B after each I whose result goes to another rank. The receiving rank gets a RECV
// before the computation that precedes its use. The receives of a link are in the order of its sends.
Schedule insert_send_receive(const Schedule& schedule, BackwardSends sends);

// Replaces instructions of whole stages by one per block: F in ascending, I and W in descending order. An I that is directly
// followed by the W of the same microbatch becomes one B per block. Stage s has the blocks from first_blocks[s] up to, but not
// including, first_blocks[s + 1].
Program expand_blocks(const Program& program, const std::vector<int>& first_blocks);

// Replaces the F, I and W of the loss block, the last one of the last stage, by one L where its I was. The only use of that
// block's forward is its own backward, so nothing else waits for it.
Program fuse_loss(const Program& program, int loss_block);

// Inserts an R before each I or B of the blocks with recomputed[block]: the block's forward runs again, because its Saved was
// cleared after the first run. An L gets no R.
Program insert_recompute(const Program& program, const std::vector<bool>& recomputed);

// Inserts an OFFLOAD before each F of the blocks with offloaded[block], which are recomputed, and a FETCH before the
// computation that precedes the R, so that both copies overlap with a computation. An input that would be on the device during
// all computations between F and R stays there.
Program insert_offload(const Program& program, const std::vector<bool>& offloaded);

// The weights and gradients that blocks use, for the ZeRO passes; indexed by block. Blocks of other ranks have no elements.
struct BlockParameters {
  std::vector<std::vector<int>> weights_of;    // blocks whose weights it reads: itself first, then tied ones
  std::vector<std::vector<int>> gradients_of;  // blocks whose gradients it adds to
  std::vector<int64_t> sharded_elements;       // elements of its own parameters that UNSHARD gathers (0: none)
  std::vector<int64_t> gradient_elements;      // elements of its own parameters that REDUCE reduces (0: none)
  std::vector<int> stage_of;                   // empty: a REDUCE gets the stage of the instruction before it
};

// A weight that two blocks use and for which both compute gradients (zero/shard_layout.h, Note: tied weights).
struct Tie {
  int owner_block = 0, user_block = 0;
};
// Appends a TIE for each to the program, after all of this rank's other work for the step: the two ranks of a TIE wait for each
// other, and nothing else may be held up by that. Runs before insert_reduce if gradients are accumulated whole, after it if
// they are reduced every microbatch.
Program insert_tie(const Program& program, const std::vector<Tie>& ties, const std::vector<int>& stage_of_block);

// Appends a SUM_LOSS.
Program insert_sum_loss(const Program& program);

enum class ReduceWhen {
  LastMicrobatch,   // gradients are accumulated whole; one reduction per step (ZeRO stages 0 and 1)
  EveryMicrobatch,  // only a shard is kept, so each microbatch's gradient is reduced at once (ZeRO stages 2 and 3)
};
// Inserts a REDUCE of block b directly after the last instruction (of the program, or of the microbatch) that adds to b's
// gradients; a TIE in the program adds to the gradients of its owner.
Program insert_reduce(const Program& program, const BlockParameters& parameters, ReduceWhen when,
                      const std::vector<Tie>& ties = {});

struct UnshardLimits {
  UnshardRelease release = UnshardRelease::Distance;  // zero_optimization.stage3_release
  int64_t max_live_elements = 1'000'000'000;          // zero_optimization.stage3_max_live_parameters
  // ...stage3_max_reuse_distance: weights stay whole if fewer elements are used before their next use.
  int64_t max_reuse_distance = 1'000'000'000;
  int64_t prefetch_elements = 50'000'000;  // ...stage3_prefetch_bucket_size
};
// Inserts an UNSHARD before the first use of a block's weights, and a RESHARD after a use if `release` says so, if keeping the
// weights whole would exceed max_live_elements, or if it is their last use.
Program insert_unshard(const Program& program, const BlockParameters& parameters, const UnshardLimits& limits);

// Moves each UNSHARD before earlier computations, as long as the elements gathered ahead of their use stay within
// prefetch_elements and all whole elements within max_live_elements. The order of UNSHARDs does not change.
Program prefetch(const Program& program, const BlockParameters& parameters, const UnshardLimits& limits);

// The most elements that are whole at once in a program.
int64_t most_whole_elements(const Program& program, const BlockParameters& parameters);

}  // namespace trivet::pipeline
