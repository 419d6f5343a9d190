// Describes how a model's step is laid out over devices. The StepModel predicts for layouts, and the search chooses among them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/config.h"
#include "engine/plan.h"

namespace trivet::autotune {

struct Layout {
  int64_t data = 1, context = 1, tensor = 1, pipeline = 1, chunks = 1;  // chunks: stages per pipeline rank
  int64_t expert = 1;  // consecutive data and context ranks that share the experts of each block
  ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;
  int zero_stage = 0;
  int64_t microbatch = 1, microbatches = 1;  // samples; per data rank and step
  Recompute recompute = Recompute::None;
  bool recompute_outputs = false;  // Full repeats all of a block's forward, as Megatron-LM does, and not only what is kept
  bool sequence_parallel = false;
  ContextKind context_kind = ContextKind::Ulysses;  // not Auto
  int64_t context_neighbours = 1;                   // that exchange heads; for UlyssesRing
  bool overlap = true;                              // the data axis overlaps computation
  bool overlap_tensor = true;      // so does the tensor axis, where layers start operations before they need results
  bool offload_optimizer = false;  // master weights and optimizer states in host memory, updated there
  // ZeRO-3: the next block's weights are gathered while a block computes, so two blocks are whole instead of one.
  bool prefetch = true;
  // Elements that one operation of the data axis covers; 0: a block. A larger block is sent in pieces (docs/planning.md).
  int64_t reduce_bucket = 0, gather_bucket = 0;

  int64_t devices() const { return shards() * tensor * pipeline; }
  int64_t shards() const { return data * context; }            // ranks among which ZeRO divides the states
  int64_t expert_shards() const { return shards() / expert; }  // and those of experts that ranks share
  int64_t global_batch() const { return data * microbatch * microbatches; }
  bool operator==(const Layout&) const = default;
};

// "pipeline 8 x data 16 x tensor 8, interleaved with 2 chunks, ZeRO-1, microbatch 1 x 16, recompute full, sequence parallel"
std::string to_string(const Layout& layout);

// The layout of a plan; the effect of the bucket sizes depends on the plan's largest block. Throws ConfigError that names a key
// whose value a Layout cannot describe.
Layout layout_of(const Plan& plan);

// Throws ConfigError for keys that neither a Layout nor the search describes and that would change the prediction: stages that
// are not partitioned by counted costs, a different order of ranks, weights in host memory or files ...
void check_described(const Config& config);

// Pairs like {"zero_optimization.stage", "2"}, as --set takes them.
using ConfigKeys = std::vector<std::pair<std::string, std::string>>;
struct KeyOptions {
  int64_t largest_block = 0;                  // elements on a tensor rank, which bucket sizes must cover
  int64_t max_live = 1'000'000'000;           // the config's stage3_max_live_parameters, raised if prefetching needs more
  bool sets_device = true;                    // to "cuda"; false: the config states the device
  std::vector<std::string> other_names = {};  // kOtherNames that the config gives
  bool has_experts = false;                   // the model
};
// DeepSpeed's and older names of keys that a layout decides.
inline constexpr std::array kOtherNames{"sequence_parallel_size", "tensor_parallel.autotp_size", "pipeline.stages",
                                        "zero_optimization.cpu_offload", "expert_parallel.autoep_size"};
// The keys that give a config this layout.
ConfigKeys config_keys(const Layout& layout, const KeyOptions& options);

}  // namespace trivet::autotune
