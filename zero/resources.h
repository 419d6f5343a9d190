// The resources that all parameter groups of a rank share.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/process_group.h"
#include "core/arena.h"
#include "core/buffer.h"
#include "kernels/interface.h"
#include "zero/collectives.h"
#include "zero/offload/file_store.h"
#include "zero/shard_axis.h"

namespace trivet::zero {

class HostSide;
class StagingRing;

// The way in which visits stage tensors that are not in memory.
struct StagingOptions {
  int64_t most_elements = 1'000'000'000;          // per piece
  bool read_ahead = false, write_behind = false;  // while another piece is used
};

// Where groups keep tensors that are outside the memory that kernels reach; null if there are none.
struct OffloadResources {
  offload::FileStore* weights = nullptr;
  offload::FileStore* states = nullptr;
  HostSide* host = nullptr;         // if the device has its own memory and something is placed elsewhere
  HostSide* activations = nullptr;  // the same for activations
  StagingRing* gathers = nullptr;   // for reading weights before they are gathered
  StagingOptions staging;
};

struct Resources {
  kernels::Kernels& kernels;
  Allocator& allocator;
  MemoryMeter& meter;
  Arena& buffers;               // whole copies of sharded weights, gradients in flight, scratch
  std::vector<ShardAxis> axes;  // [Sharing] the ranks that divide groups with it; those that no group has may be left out
  CollectiveOptions collectives;
  comm::ProcessGroup* tensor_group = nullptr;  // for groups that are summed over the tensor axis; on the reduce stream
  TensorView refused;  // int64 [1], layout mode: counts contributions that could not be put on the fixed-point grid
  OffloadResources offload;
};

}  // namespace trivet::zero
