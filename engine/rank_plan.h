// What the plan knows of one rank: its part of the parameters, its programs, the memory it needs and what it sends.
//
// Ranks that differ along the data axis only have the same one.
#pragma once

#include "comm/process_group.h"
#include "core/memory.h"
#include "engine/program.h"
#include "kernels/kernels.h"
#include "zero/shard_layout.h"

namespace trivet {

// A file that something is offloaded to; what a step reads and writes.
struct FilePlan {
  int64_t bytes = 0, bytes_read = 0, bytes_written = 0;
};

struct RankPlan {
  int pipeline_rank = 0, tensor_rank = 0;
  zero::ShardLayout layout;
  Programs programs;
  int64_t activation_arena_bytes = 0, buffer_arena_bytes = 0;
  int64_t workspace_bytes = 0;  // of kernels on a GPU, for each stream that launches some
  // At its peak, of the device. On a CPU buffers include what saving beside training stages.
  MemoryBytes memory;
  // Bytes sent in one step, by what for: gathering and reducing over the data axis, sums over the tensor axis, activations and
  // gradients to neighbouring stages.
  comm::Traffic gather, reduce, tensor, pipeline;
  MemoryBytes host_memory;           // beside the device's: offloaded weights and states, and buffers that stage them
  int64_t host_staging_bytes = 0;    // of these buffers
  FilePlan weight_file, state_file;  // weights; master weights and optimizer states
  kernels::Counters step_counters;   // of one step
};

}  // namespace trivet
