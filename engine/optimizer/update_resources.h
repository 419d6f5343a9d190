// Parts of a rank that updates need: kernels, memory, places for what is offloaded, and ranks to sum over.
#pragma once

#include <array>
#include <stdexcept>

#include "comm/process_group.h"
#include "core/arena.h"
#include "core/buffer.h"
#include "core/parameter_spec.h"
#include "core/stream.h"
#include "kernels/interface.h"
#include "zero/resources.h"

namespace trivet {

// Owns nothing.
struct UpdateResources {
  kernels::Kernels& kernels;
  Allocator& allocator;  // for the memory that the kernels work on
  MemoryMeter& meter;    // counts that memory
  Arena& buffers;
  zero::CollectiveOptions collectives;
  zero::OffloadResources offload;
  comm::ProcessGroup& all;       // every rank
  comm::ProcessGroup& of_stage;  // ranks with the same layers
  // [Sharing] Those that divide parameters with this sharing into shards; null: no parameter has it.
  std::array<comm::ProcessGroup*, kSharings> shards;
  Stream& stream;  // runs the operations of these groups

  // Throws std::logic_error if no parameter has this sharing.
  comm::ProcessGroup& shard_group(Sharing sharing) const {
    comm::ProcessGroup* const group = shards[static_cast<size_t>(sharing)];
    if (!group) throw std::logic_error("optimizer: no group of ranks has shards of these parameters");
    return *group;
  }
};

}  // namespace trivet
