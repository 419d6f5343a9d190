// Two questions about ranks that have one answer while data parallelism is the only axis that copies weights: which ranks hold
// the same elements of a parameter, and which read different samples.
//
// Experts have a mesh of their own over the same ranks (Mesh::view): there the expert axis takes some of the ranks that are
// data, context and tensor ranks to dense parameters. So in both views, ranks that hold equal elements differ along the same
// axes.
//
//   8 ranks, data 4 x tensor 2, expert 4       dense: equal along data      {0 2 4 6} {1 3 5 7}
//                                              experts: equal along data    {0 4} {1 5} {2 6} {3 7}
#pragma once

#include "core/axis.h"
#include "core/parameter_spec.h"

namespace trivet {

// The axes of Mesh::view(sharing) along which ranks hold the same elements of such a parameter, so that ZeRO may divide them,
// and sum gradients over them.
constexpr AxisSet equal_over(Sharing) { return {Axis::Data, Axis::Context}; }

// The axes of the mesh along which ranks read different samples: their product times the accumulation and the micro batch is
// the global batch. Context ranks read different parts of the same samples.
constexpr AxisSet batch_axes() { return Axis::Data; }

}  // namespace trivet
