// Attention in bfloat16 by the loops of attention_pairs.h: the same tiles in the same order as attention.cpp and
// attention_backward.cpp, with operands read where they lie or copied in pairs instead of widened to float32.
#pragma once

#include "kernels/cpu/attention_pairs.h"
#include "kernels/cpu/attention_tiles.h"

namespace trivet::kernels::cpu {

// The loops to use, or null where these lengths, this type or this processor need those of float32.
const AttentionPairLoops* pair_loops_for(const AttentionSizes& sizes, DType dtype);

// One query head of one sequence, by one thread.
void attention_in_pairs(const AttentionPairLoops& loops, const Attention& args, const AttentionSizes& sizes, int64_t sequence,
                        int64_t head);
// One key/value head of one sequence, by one thread.
void attention_backward_in_pairs(const AttentionPairLoops& loops, const AttentionBackward& args, const AttentionSizes& sizes,
                                 int64_t sequence, int64_t key_value_head);

}  // namespace trivet::kernels::cpu
