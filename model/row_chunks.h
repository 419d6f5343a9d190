// Parts of a microbatch's rows that a layer works on one after another, so that it needs memory for what is large in one part
// only.
//
//   8 rows, at most 3 at a time            0 1 2 | 3 4 5 | 6 7          gradients: (first + second) + third, in place
//   the same in two leaves of 4 rows       0 1 2 | 3   4 5 6 | 7        gradients: (first + second) + (third + fourth)
//
// Where sums over tokens have a fixed order (core/layer.h, TokenLeaves), no chunk is in two leaves, so that chunks and sums are
// the same on any number of context ranks.
#pragma once

#include <functional>

#include "core/layer.h"

namespace trivet::model {

struct RowChunk {
  int64_t first = 0, rows = 0;
};

// What to do with one chunk: the context to do it in, and where to add its gradients.
using ChunkWork = std::function<void(Context&, const RowChunk&, Gradients)>;

// Runs `work` for chunks of at most `most` of the `rows`, in order. Adds the leaves' gradients in a balanced tree, which a
// TreeSum over context ranks completes. Gradients may be absent.
void for_each_chunk(Context& context, int64_t rows, int64_t most, Gradients gradients, const ChunkWork& work);

}  // namespace trivet::model
