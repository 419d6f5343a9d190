// The plan for one rank: its part of the parameters, its programs, the memory it needs and what it sends.
//
// Ranks with the same plan_coordinates() (engine/plan.h) share one.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/process_group.h"
#include "core/memory.h"
#include "engine/mesh.h"
#include "engine/program.h"
#include "kernels/interface.h"
#include "zero/shard_layout.h"

namespace trivet {

// The size of a file for offloading, and what a step reads from it and writes to it.
struct FilePlan {
  int64_t bytes = 0, bytes_read = 0, bytes_written = 0;
};

struct RankPlan {
  Coordinates coordinates;  // plan_coordinates of its ranks
  zero::ShardLayout layout;
  Programs programs;
  int64_t activation_arena_bytes = 0, buffer_arena_bytes = 0;
  int64_t workspace_bytes = 0;   // scratch memory of kernels on a GPU
  int64_t checkpoint_bytes = 0;  // size of this rank's part of a checkpoint, without the header of its file
  // Device memory at its peak. On a CPU, buffers include the staging buffers of asynchronous saves, to disk and to memory.
  MemoryBytes memory;
  // Traffic of one step, line by line, in the order of the table of channels (engine/channel_table.h).
  std::vector<std::pair<std::string, comm::Traffic>> traffic;
  const comm::Traffic& traffic_of(std::string_view line) const;  // std::logic_error if there is no such line
  // Offloaded weights, states and inputs of blocks, and buffers that stage them.
  MemoryBytes host_memory;
  int64_t host_staging_bytes = 0;    // the staging buffers alone
  int64_t offloaded_bytes = 0;       // inputs of blocks that a step copies to host memory, and back
  FilePlan weight_file, state_file;  // weights; master weights and optimizer states
  kernels::Counters step_counters;   // for one step
};

}  // namespace trivet
