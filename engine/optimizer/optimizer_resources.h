// What the optimizer step works with.
#pragma once

#include <vector>

#include "comm/process_group.h"
#include "engine/step_results.h"
#include "kernels/kernels.h"
#include "zero/staged_walk.h"

namespace trivet {

struct OptimizerResources {
  kernels::Kernels& kernels;
  Allocator& allocator;
  MemoryMeter& meter;
  Arena& buffers;
  comm::ProcessGroup& control_group;              // all ranks
  comm::ProcessGroup& part_group;                 // ranks that have the same blocks
  std::vector<comm::ProcessGroup*> shard_groups;  // [Sharing] ranks that divide such parameters into shards
  StepResults& results;
  Stream& stream;
  zero::CollectiveOptions collectives;
  zero::StagingOptions staging;    // an update handles at most staging.most_elements at once (zero_optimization.sub_group_size)
  zero::HostSide* host = nullptr;  // null: nothing is offloaded to a device's host; null on all ranks or none

  comm::ProcessGroup& shard_group(const zero::ParameterGroup& group) const {
    return *shard_groups[static_cast<size_t>(group.layout().sharing)];
  }
};

}  // namespace trivet
