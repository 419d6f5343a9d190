#include "autotune/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "engine/config/context_kind.h"
#include "engine/config/refuse.h"
#include "kernels/sums.h"

namespace trivet::autotune {
namespace {

// The most elements that one operation of the data axis moves on any rank.
int64_t largest_group(const Plan& plan) {
  int64_t largest = 0;
  for (const RankPlan& rank : plan.ranks)
    for (const zero::BlockLayout& block : rank.layout.blocks)
      for (const zero::FlatGroup& group : block.groups) largest = std::max(largest, group.whole_elements);
  return largest;
}

// Refuses values that the search never sets but that a config may have.
void check_layout_described(const Config& config) {
  const auto refuse = [&](const char* key, const std::string& what) { config::refuse(config, key, what); };
  if (!config.pipeline.schedule_file.empty())
    refuse("pipeline.schedule",
           "the cost model has no formula for a schedule from a file; name a schedule, or leave --cluster out");
  if (config.recompute != Recompute::None && config.recompute_every != 1)
    refuse("activation_checkpointing.every",
           fmt::format("{} is not described by the cost model; use 1, or leave --cluster out", config.recompute_every));
  if (config.partitions_inputs())
    refuse("activation_checkpointing.partition_activations",
           "true is not described by the cost model; use false or parallel.sequence_parallel, or leave --cluster out");
  const OffloadOptimizerConfig& offload = config.zero.offload_optimizer;
  if (offload.device == OffloadDevice::Nvme)
    refuse(
        "zero_optimization.offload_optimizer.device",
        "\"nvme\" is not described by the cost model, which knows no disks; use \"cpu\" or \"none\", or leave --cluster out");
  if (offload.device == OffloadDevice::Cpu && offload.ratio < 1)
    refuse("zero_optimization.offload_optimizer.ratio",
           fmt::format("{} is not described by the cost model; use 1, or leave --cluster out", offload.ratio));
}

}  // namespace

std::string to_string(const Layout& layout) {
  std::string text = fmt::format("pipeline {} x data {}{} x tensor {}", layout.pipeline, layout.data,
                                 layout.context > 1 ? fmt::format(" x context {}", layout.context) : "", layout.tensor);
  if (layout.expert > 1) text += fmt::format(", expert {}", layout.expert);
  if (layout.pipeline > 1)
    text +=
        fmt::format(", {}{}", name_of(layout.schedule), layout.chunks > 1 ? fmt::format(" with {} chunks", layout.chunks) : "");
  text += fmt::format(", ZeRO-{}, microbatch {} x {}", layout.zero_stage, layout.microbatch, layout.microbatches);
  if (layout.recompute != Recompute::None) text += fmt::format(", recompute {}", name_of(layout.recompute));
  if (layout.sequence_parallel) text += ", sequence parallel";
  if (layout.offload_optimizer) text += ", optimizer offloaded";
  if (!layout.prefetch) text += ", no prefetch";
  return text;
}

void check_described(const Config& config) {
  const auto refuse = [&](const char* key, const std::string& what) { config::refuse(config, key, what); };
  if (config.pipeline.partition != pipeline::PartitionMethod::Cost || !config.pipeline.cost_file.empty())
    refuse("pipeline.partition", "is not how the cost model partitions stages; leave out either this key or --cluster");
  if (config.parallel.rank_order != ParallelConfig{}.rank_order)
    refuse("parallel.rank_order", "is not the order of ranks in the cost model; leave out either this key or --cluster");
  if (config.zero.offload_param.device != OffloadDevice::None)
    refuse("zero_optimization.offload_param.device",
           fmt::format("\"{}\" is not described by the cost model; use \"none\", or leave --cluster out",
                       name_of(config.zero.offload_param.device)));
  if (config.cpu_checkpointing)
    refuse("activation_checkpointing.cpu_checkpointing",
           "true is not described by the cost model; use false, or leave --cluster out");
  const ZeroConfig& zero = config.zero;
  const auto expect = [&](const char* key, int64_t value, int64_t described) {
    if (value != described)
      refuse(key, fmt::format("{} is not described by the cost model; use {}, or leave --cluster out", value, described));
  };
  if (config.fixes_token_sums() && config.parallel.context > 1)
    refuse("parallel.context",
           fmt::format("{} with reproducible \"layout\" is not described by the cost model, which has no sums over leaves of a "
                       "sequence; use 1, or leave --cluster out",
                       config.parallel.context));
  expect("activation_checkpointing.mlp_slice_tokens", config.mlp_slice_tokens, 0);
  if (zero.stage > 0 && zero.mics_shard_size > 0) expect("zero_optimization.mics_shard_size", zero.mics_shard_size, -1);
  if (zero.stage == 3) expect("zero_optimization.zero_hpz_partition_size", zero.zero_hpz_partition_size, 1);
  for (const auto& [key, given] :
       {std::pair{"zero_optimization.zero_quantized_weights", zero.stage == 3 && zero.zero_quantized_weights},
        {"zero_optimization.zero_quantized_nontrainable_weights", zero.stage == 3 && zero.zero_quantized_nontrainable_weights},
        {"zero_optimization.zero_quantized_gradients", zero.stage > 0 && zero.zero_quantized_gradients}})
    if (given) refuse(key, "true is not described by the cost model; use false, or leave --cluster out");
  if (config.zero.stage > 0 && !config.zero.reduce_scatter)
    refuse("zero_optimization.reduce_scatter", "false is not described by the cost model; use true, or leave --cluster out");
  if (config.zero.stage > 0 && !config.zero.allgather_partitions)
    refuse("zero_optimization.allgather_partitions",
           "false is not described by the cost model; use true, or leave --cluster out");
}

Layout layout_of(const Plan& plan) {
  const Config& config = plan.config;
  check_described(config);
  check_layout_described(config);
  const ZeroConfig& zero = config.zero;
  const int64_t largest = largest_group(plan);
  const bool offload = config.updates_on_host();
  const int data = plan.mesh.size(Axis::Data);
  // On one rank, the shard is the whole tensor.
  const int stage = plan.shards(Sharing::Dense) > 1 ? zero.stage : offload ? 1 : 0;
  // On one pipeline rank all schedules are the same, except GPipe, which keeps all microbatches (engine/program.h).
  const bool alone = config.parallel.pipeline == 1 && config.pipeline.schedule != ScheduleKind::GPipe;
  const ScheduleKind schedule = alone ? ScheduleKind::OneForwardOneBackward : config.pipeline.schedule;
  const bool can_prefetch = zero.stage3_prefetch_bucket_size >= largest && zero.stage3_max_live_parameters >= 2 * largest;
  return {.data = data,
          .context = plan.mesh.size(Axis::Context),
          .tensor = plan.mesh.size(Axis::Tensor),
          .pipeline = plan.mesh.size(Axis::Pipeline),
          .chunks = chunks_of(config.pipeline),
          .expert = config.parallel.expert,
          .schedule = schedule,
          .zero_stage = stage,
          .microbatch = plan.batch.micro_batch_size,
          .microbatches = plan.batch.gradient_accumulation_steps,
          .recompute = config.recompute,
          .sequence_parallel = config.parallel.sequence_parallel && config.parallel.tensor > 1,
          .context_kind = config::context_kind(config),
          .context_neighbours = config::context_neighbours(config),
          .overlap = zero.overlap_comm,
          .offload_optimizer = offload,
          .prefetch = stage < 3 || can_prefetch,
          .reduce_bucket = zero.reduce_bucket_size < largest ? zero.reduce_bucket_size : 0,
          .gather_bucket = zero.allgather_bucket_size < largest ? zero.allgather_bucket_size : 0};
}

ConfigKeys config_keys(const Layout& layout, const KeyOptions& options) {
  const auto boolean = [](bool value) { return value ? "true" : "false"; };
  const auto quoted = [](std::string_view name) { return fmt::format("\"{}\"", name); };
  const ZeroConfig defaults;
  // Includes room for the padding of parameters and shards (zero/shard_layout.h).
  const int64_t whole = options.largest_block + (layout.shards() + 64) * kernels::kSumBlock;
  const auto bucket = [&](int64_t elements) {
    return std::to_string(elements > 0 ? elements : std::max(whole, defaults.reduce_bucket_size));
  };
  ConfigKeys keys{{"parallel.context", std::to_string(layout.context)},
                  {"parallel.tensor", std::to_string(layout.tensor)},
                  {"parallel.pipeline", std::to_string(layout.pipeline)},
                  {"parallel.sequence_parallel", boolean(layout.sequence_parallel)},
                  {"pipeline.schedule", quoted(name_of(layout.schedule))},
                  {"pipeline.chunks", std::to_string(layout.chunks)},
                  {"train_batch_size", std::to_string(layout.global_batch())},
                  {"train_micro_batch_size_per_gpu", std::to_string(layout.microbatch)},
                  {"gradient_accumulation_steps", std::to_string(layout.microbatches)},
                  {"activation_checkpointing.mode", quoted(name_of(layout.recompute))},
                  {"zero_optimization.stage", std::to_string(layout.zero_stage)},
                  {"zero_optimization.overlap_comm", boolean(layout.overlap)},
                  {"zero_optimization.reduce_bucket_size", bucket(layout.reduce_bucket)},
                  {"zero_optimization.allgather_bucket_size", bucket(layout.gather_bucket)},
                  {"zero_optimization.offload_optimizer.device", quoted(layout.offload_optimizer ? "cpu" : "none")}};
  const auto add = [&](const char* key, const std::string& value) { keys.emplace_back(key, value); };
  if (options.has_experts) add("parallel.expert", std::to_string(layout.expert));
  if (layout.context_kind != ContextKind::Ulysses) add("parallel.context_kind", quoted(name_of(layout.context_kind)));
  if (layout.context_kind == ContextKind::UlyssesRing)
    add("parallel.context_ulysses", std::to_string(layout.context_neighbours));
  if (layout.recompute != Recompute::None) add("activation_checkpointing.every", "1");
  if (layout.recompute == Recompute::Full) add("activation_checkpointing.partition_activations", "false");
  if (layout.zero_stage == 3) {
    add("zero_optimization.stage3_prefetch_bucket_size", std::to_string(layout.prefetch ? whole : 0));
    add("zero_optimization.stage3_max_live_parameters", std::to_string(std::max(2 * whole, options.max_live)));
  }
  if (layout.offload_optimizer) add("zero_optimization.offload_optimizer.ratio", "1");
  if (options.sets_device) add("device", quoted("cuda"));
  const std::array values{std::to_string(layout.context), std::to_string(layout.tensor), std::to_string(layout.pipeline),
                          std::string(boolean(layout.offload_optimizer)), std::to_string(layout.expert)};
  for (const std::string& name : options.other_names)
    add(name.c_str(), values[std::ranges::find(kOtherNames, name) - kOtherNames.begin()]);
  return keys;
}

}  // namespace trivet::autotune
