// The ranks that divide the flat groups of one sharing into shards, as one of them sees them: all that a parameter group needs
// to know of the mesh.
//
// They hold the same elements, so what they sum and gather is the whole group. They may be fewer than all ranks with the same
// elements: then the shards have replicas (hybrid sharding, Zhao et al. 2023; MiCS, Zhang et al. 2022):
//
//   4 ranks with the same elements, 2 shards     shards {0 1} {2 3}     replicas {0 2} {1 3}
//
// Gradients are then summed in two steps: over the shards with every reduction, and over the replicas once a step, with the
// last.
#pragma once

#include <array>

#include "comm/process_group.h"
#include "core/parameter_spec.h"
#include "core/stream.h"

namespace trivet::zero {

struct ShardAxis {
  comm::ProcessGroup& gather;
  Stream& gather_stream;
  comm::ProcessGroup& reduce;  // the same ranks; separate, because the two streams have no common order
  Stream& reduce_stream;

  comm::ProcessGroup* replicas = nullptr;  // the ranks that hold this shard, on reduce_stream; null: only this one
  // Fewer of the ranks of `gather`, on gather_stream. After the first gather of a step they keep the whole weights in shards of
  // their own, and gather from these until the step ends (hpZ; Wang et al. 2023). Null: every gather is over `gather`.
  comm::ProcessGroup* secondary = nullptr;
  // A run of the ranks of `reduce`, and those at the same place of all runs, for sums of quantized gradients in two hops
  // (zero/collectives.h); on reduce_stream. Null: one hop.
  comm::ProcessGroup *near = nullptr, *far = nullptr;

  int rank() const { return gather.rank(); }
  int size() const { return gather.size(); }
  // The ranks whose gradients are summed.
  int contributors() const { return size() * (replicas ? replicas->size() : 1); }
  // The first replica of a shard counts in sums over ranks and is saved; the others are not.
  bool is_counted() const { return !replicas || replicas->rank() == 0; }
};

// The number of ranks that divide a group, by its sharing.
struct ShardCounts {
  std::array<int, kSharings> counts;
  ShardCounts() : ShardCounts(1) {}
  explicit ShardCounts(int dense, int expert = 1) : counts{dense, expert} {}
  int operator[](Sharing sharing) const { return counts[static_cast<size_t>(sharing)]; }
};

}  // namespace trivet::zero
