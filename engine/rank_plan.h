// The plan for one rank: its part of the parameters, its programs, the memory it needs and what it sends.
//
// Ranks that differ only along the data axis share the same plan.
#pragma once

#include "comm/process_group.h"
#include "core/memory.h"
#include "engine/program.h"
#include "kernels/kernels.h"
#include "zero/shard_layout.h"

namespace trivet {

// The size of a file for offloading, and what a step reads from it and writes to it.
struct FilePlan {
  int64_t bytes = 0, bytes_read = 0, bytes_written = 0;
};

struct RankPlan {
  int pipeline_rank = 0, tensor_rank = 0;
  zero::ShardLayout layout;
  Programs programs;
  int64_t activation_arena_bytes = 0, buffer_arena_bytes = 0;
  int64_t workspace_bytes = 0;  // scratch memory of kernels on a GPU
  // Device memory at its peak. On a CPU, buffers include the staging buffer of asynchronous saves.
  MemoryBytes memory;
  // Bytes sent in one step, by purpose: gathers and reductions over the data axis, sums over the tensor axis, activations and
  // gradients for neighbouring stages.
  comm::Traffic gather, reduce, tensor, pipeline;
  MemoryBytes host_memory;           // offloaded weights and states, and buffers that stage them
  int64_t host_staging_bytes = 0;    // the staging buffers alone
  FilePlan weight_file, state_file;  // weights; master weights and optimizer states
  kernels::Counters step_counters;   // for one step
};

}  // namespace trivet
