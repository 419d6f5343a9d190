// The ranks that divide the flat groups of one sharing into shards, as one of them sees them: all that a parameter group needs
// to know of the mesh.
//
// They hold the same elements, so what they sum and gather is the whole group. They may be fewer than all ranks with the same
// elements; the others then hold replicas of the shards.
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

  int rank() const { return gather.rank(); }
  int size() const { return gather.size(); }
};

// The number of ranks that divide a group, by its sharing.
struct ShardCounts {
  std::array<int, kSharings> counts{};
  ShardCounts(int dense = 1, int expert = 1) : counts{dense, expert} {}
  int operator[](Sharing sharing) const { return counts[static_cast<size_t>(sharing)]; }
};

}  // namespace trivet::zero
