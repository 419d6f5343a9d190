// Chooses where products along a split dim are cut in layout mode, so that their bits do not depend on how many ranks share the
// dim.
//
//   down [H, F], F = 16, size 2, K of x W^T cut into 8 leaves of 2:
//   rank 0  (0 + 1) + (2 + 3)       rank 1  (4 + 5) + (6 + 7)       TreeSum over ranks: the same tree as on one rank
//
// Chunk c of kSumChunks has the units [floor(U c / 8), floor(U (c + 1) / 8)) of each segment; a rank of n holds 8 / n
// consecutive chunks, which is the part that split.h gives it.
#pragma once

#include <vector>

#include "core/parameter_spec.h"
#include "kernels/products.h"

namespace trivet::tensor_parallel {

// All tensor sizes that divide this give the same bits in layout mode.
inline constexpr int kSumChunks = 8;
// The text for messages about a number of ranks that does not divide kSumChunks.
inline constexpr const char* kNoDivisorOfSumChunks =
    "is not 1, 2, 4 or 8, which reproducible \"layout\" requires to add partial sums in a fixed order";

struct SplitCuts {
  std::vector<int64_t> ends;  // ends of the chunks in the rank's part of the dim, segment by segment
  // For products that have the dim as their rows, as their columns, or as the dim that they sum over.
  kernels::ProductCuts rows, cols, sums;
};

// Throws std::logic_error if `size` does not divide kSumChunks or neighbours share a unit.
SplitCuts cuts_of(const Split& split, int rank, int size);

// Returns whether a dim with this split can be cut for `size` ranks.
bool can_cut(const Split& split, int size);

}  // namespace trivet::tensor_parallel
