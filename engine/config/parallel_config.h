// The sections of a Config that say how a step is divided among ranks and microbatches: parallel, pipeline, the batch sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/axis.h"
#include "core/sequence_part.h"
#include "pipeline/partition_method.h"
#include "pipeline/schedules/schedule_kind.h"

namespace trivet {

inline constexpr int64_t kMaxContextGrain = 64;

struct ParallelConfig {  // the data axis gets the ranks that the other axes leave
  int64_t tensor = 1, pipeline = 1, context = 1, expert = 1;
  ContextKind context_kind = ContextKind::Auto;
  int64_t context_ulysses = 0;     // neighbours that exchange heads, for UlyssesRing; 0: the most that heads allow
  int64_t context_grain = 1;       // leaves of each sequence in layout mode; 1: sums over tokens have no fixed order
  bool sequence_parallel = false;  // tensor ranks also split the sequence, for norms, residuals and dropout
  // The order of the axes in rank numbering, slowest-varying first. An axis of size 1 may be left out, but not the data axis.
  std::vector<Axis> rank_order = {Axis::Pipeline, Axis::Data, Axis::Context, Axis::Expert, Axis::Tensor};
};

struct PipelineConfig {
  ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;
  std::string schedule_file;  // if not empty, the programs are read from this file and `schedule` is ignored
  int64_t chunks = 0;         // stages per rank; 0: as many as the schedule needs (chunks_of)
  pipeline::PartitionMethod partition = pipeline::PartitionMethod::Cost;
  std::string partition_regex;  // for PartitionMethod::Type
  std::string cost_file;        // for PartitionMethod::Cost: measured (engine/timeline/block_costs.h); empty: counted FLOPs
};

// The number of stages per rank; 0 if a schedule file decides it.
constexpr int64_t chunks_of(const PipelineConfig& pipeline) {
  if (!pipeline.schedule_file.empty()) return 0;
  if (pipeline.chunks > 0) return pipeline.chunks;
  return traits_of(pipeline.schedule).chunks;
}

struct BatchConfig {  // 0: not given
  int64_t train_batch_size = 0, micro_batch_size = 0, gradient_accumulation_steps = 0;
  // Microbatches of elasticity, otherwise empty. The largest that fits is taken.
  std::vector<int64_t> micro_batch_sizes = {};
  std::vector<int64_t> data_parallel_sizes = {};  // accepted sizes
};

// A batch that many numbers of ranks can train (config/elasticity.h). `ranks` are called GPUs in DeepSpeed.
struct ElasticityConfig {
  bool enabled = false;
  int64_t max_train_batch_size = 0;  // 0: not given
  std::vector<int64_t> micro_batch_sizes = {};
  int64_t min_gpus = 1, max_gpus = 10000;                  // ranks of the job
  int64_t num_gpus_per_node = 1, model_parallel_size = 1;  // version 0.2 only
  double version = 0.2;
  bool prefer_larger_batch = true;
  bool ignore_non_elastic_batch_info = false;  // other keys of the batch are ignored, and not refused
};

// The solution of train = micro x accumulation x data-parallel size. Any two of the three keys determine the third; with only
// one of the batch sizes given, accumulation is 1. resolve_batch throws ConfigError with the numbers and the nearest valid
// values.
struct ResolvedBatch {
  int64_t train_batch_size = 0, micro_batch_size = 0, gradient_accumulation_steps = 0;
};
ResolvedBatch resolve_batch(const BatchConfig& batch, int64_t data_parallel_size, const std::string& source);

}  // namespace trivet
