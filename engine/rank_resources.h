// The resources of one rank: kernels, memory, channels to other ranks, and places for what is offloaded. The Engine makes it
// for a device, and a Rehearsal makes one that only counts; all parts of a Worker share it. It owns nothing.
#pragma once

#include "core/arena.h"
#include "engine/backend/backend.h"
#include "engine/channels.h"
#include "engine/config/zero_config.h"
#include "engine/optimizer/update_resources.h"
#include "engine/timeline/recorder.h"
#include "kernels/interface.h"
#include "zero/parameter_group.h"

namespace trivet {

struct Config;
class MemoryPhases;

struct RankResources {
  kernels::Kernels& kernels;
  Allocator& allocator;  // for the memory that the kernels work on
  MemoryMeter& meter;    // counts that memory
  Arena& activations;
  Arena& buffers;
  const Channels& channels;
  zero::CollectiveOptions collectives;
  zero::OffloadResources offload;
  timeline::Recorder* recorder = nullptr;  // null: no step is ever recorded
  MemoryPhases* const* memory = nullptr;   // points to null while nobody asks what memory the phases of a step use
  Backend* repeats_steps = nullptr;        // runs steps through Backend::repeat; null: steps run directly

  UpdateResources for_updates() const;
  // [Sharing] The same ranks, as parameter groups see them; of experts only if ranks share them.
  std::vector<zero::ShardAxis> shard_axes() const;
};

// The options of zero_optimization that bound collectives.
zero::CollectiveOptions collective_options(const ZeroConfig& zero);
// Returns how pieces of offloaded tensors are staged.
zero::StagingOptions staging_options(const Config& config);

}  // namespace trivet
