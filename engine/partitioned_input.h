// DeepSpeed's partition_activations: the t tensor ranks have the same input of a block, so between the block's forward and its
// recomputation each of them keeps only 1/t of it.
//
//   forward -> | slice 0 | slice 1 | ... | slice t-1 |  -> all_gather -> recompute, backward
//              rank 0     rank 1          rank t-1
//
// Bytes sent: (t-1)/t of an input for each recomputed block and microbatch.
#pragma once

#include "comm/rank_axis.h"
#include "core/arena.h"
#include "kernels/interface.h"
#include "model/model.h"

namespace trivet {

struct Plan;

// Throws ConfigError when the elements of a recomputed block's input cannot be split evenly over the tensor ranks.
void check_partitioned_inputs(const Plan& plan, const model::Model& model);

// This rank's slice of `whole`, and a copy of it.
ConstTensorView slice_of(ConstTensorView whole, const comm::RankAxis&);
ScopedTensor keep_slice(ConstTensorView whole, const comm::RankAxis&, kernels::Kernels&, Arena&);
// Gathers all slices into a tensor of `shape` and waits for it.
ScopedTensor gather_slices(ConstTensorView slice, const Shape& shape, const comm::RankAxis&, Arena&);

}  // namespace trivet
