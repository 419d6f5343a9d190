// Attention in bfloat16 with the loops of attention_pairs.h: the same tiles in the same order as in attention.cpp and
// attention_backward.cpp, but operands are read in place or copied as pairs instead of being widened to float32.
#pragma once

#include "kernels/cpu/attention_pairs.h"
#include "kernels/cpu/attention_tiles.h"

namespace trivet::kernels::cpu {

// The loops to use, or null if these sizes, this type or this processor need the float32 loops.
const AttentionPairLoops* pair_loops_for(const AttentionPart& part, DType dtype);

// Computes one query head of one document on the calling thread.
void attention_in_pairs(const AttentionPairLoops& loops, const Attention& args, const AttentionPart& part, int64_t head);
// Computes one key/value head of one document on the calling thread.
void attention_backward_in_pairs(const AttentionPairLoops& loops, const AttentionBackward& args, const AttentionPart& part,
                                 int64_t key_value_head);

}  // namespace trivet::kernels::cpu
