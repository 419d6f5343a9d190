// What a layer knows about the tensor axis: the ranks that hold the other parts of split parameters.
//
// Activations between blocks are whole on every tensor rank, [B, S, H]. With sequence parallelism (Korthikanti et al. 2022)
// each rank has its S / size consecutive tokens of every sequence, [B, S / size, H]; a layer that needs all tokens gathers
// them, and a layer that sums over ranks scatters the sum. Gradients of unsplit parameters are then sums over a rank's own
// tokens only; ZeRO sums them over the axis when it reduces.
#pragma once

#include "comm/process_group.h"
#include "core/stream.h"

namespace trivet::tensor_parallel {

struct TensorAxis {
  comm::ProcessGroup& group;
  Stream& stream;  // runs the group's operations, on another thread if they overlap with computation
  bool sequence_parallel = false;
  // reproducible "layout": sums over a split dim run over kSumChunks fixed chunks in a balanced tree, so that their bits do not
  // depend on how many ranks share the dim.
  bool fixed_sums = false;

  int rank() const { return group.rank(); }
  int size() const { return group.size(); }
};

// All tensor sizes that divide this give the same bits in layout mode.
inline constexpr int kSumChunks = 8;

}  // namespace trivet::tensor_parallel
