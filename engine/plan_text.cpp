#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "engine/config/context_kind.h"
#include "engine/config/sample_curriculum.h"
#include "engine/plan.h"
#include "kernels/quantization.h"
#include "pipeline/simulate.h"

namespace trivet {
namespace {

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string traffic_line(const std::string& name, const comm::Traffic& traffic) {
  return fmt::format("  {:<10} {:>4} operations {:>10.2f} MiB sent per rank\n", name, traffic.operations,
                     mebibytes(traffic.bytes_sent));
}

// Shows only the beginning and the end of a long program.
std::string shortened(const pipeline::Program& program) {
  constexpr size_t kMost = 60, kEnd = 20;
  if (program.size() <= kMost) return to_string(program);
  const pipeline::Program head(program.begin(), program.begin() + (kMost - kEnd)), tail(program.end() - kEnd, program.end());
  return fmt::format("{} ... ({} more) ... {}", to_string(head), program.size() - kMost, to_string(tail));
}

// "stages    0: embedding .. blocks.1 | 1: blocks.2 .. head"
std::string stages_text(const Plan& plan) {
  const StageMap& stages = plan.stages;
  if (stages.stages() == 1) return "";
  std::string text;
  for (int stage = 0; stage < stages.stages(); ++stage) {
    const auto& blocks = plan.ranks.front().layout.blocks;
    const int first = stages.first_blocks[stage], end = stages.first_blocks[stage + 1];
    text += fmt::format("{}{} on rank {}: {} .. {}", text.empty() ? "" : " | ", stage, stages.rank_of_stage[stage],
                        blocks[first].name, blocks[end - 1].name);
  }
  return fmt::format("stages    {}\n", text);
}

// Simulates stages of equal length whose I and W take as long as F, which shows the cost of the schedule itself.
pipeline::Timeline timeline_of(const Plan& plan) {
  return pipeline::simulate(plan.schedule, {.cost = pipeline::even_costs(plan.schedule, {})});
}

std::string schedule_text(const Plan& plan) {
  if (plan.mesh.size(Axis::Pipeline) == 1) return "";
  const pipeline::Timeline timeline = timeline_of(plan);
  const PipelineConfig& config = plan.config.pipeline;
  return fmt::format(
      "schedule  {}, {} microbatches: bubble {:.1f} % if F, I and W take equally long; at most {} activations on rank 0\n",
      config.schedule_file.empty() ? std::string(name_of(config.schedule)) : config.schedule_file,
      plan.batch.gradient_accumulation_steps, 100 * timeline.bubble_fraction, timeline.peak_microbatches.front());
}

// "recompute selective, the first of every 2 layers"
std::string recompute_text(const Config& config) {
  if (config.recompute == Recompute::None) return "";
  const std::string every =
      config.recompute_every == 1 ? "" : fmt::format(", the first of every {} layers", config.recompute_every);
  return fmt::format("recompute {}{}{}\n", name_of(config.recompute), every,
                     config.partitions_inputs() ? ", kept inputs split over the tensor axis" : "");
}

std::string slices_text(const Config& config) {
  if (config.mlp_slice_tokens == 0) return "";
  return fmt::format("slices    of {} tokens in MLPs, which are computed again in backward\n", config.mlp_slice_tokens);
}

std::string audit_text(const Plan& plan) {
  const int64_t every = plan.config.audit.every_steps;
  if (every == 0) return "";
  return fmt::format(
      "audit     of gradients every {} steps: {} again; memory includes this, communication and compute do not\n", every,
      plan.mesh.size(Axis::Data) > 1 ? "each data rank computes a microbatch of another one"
                                     : "the ranks compute one microbatch");
}

// The largest traffic of this line on any rank.
comm::Traffic most(const Plan& plan, const std::string& line) {
  comm::Traffic traffic;
  for (const RankPlan& rank : plan.ranks)
    if (rank.traffic_of(line).bytes_sent >= traffic.bytes_sent) traffic = rank.traffic_of(line);
  return traffic;
}

// The lines of traffic with the axis of each, in the order of the table of channels. The data axis stands for all axes over
// which parameters are equal.
std::vector<std::pair<std::string, Axis>> traffic_lines(const Plan& plan) {
  std::vector<std::pair<std::string, Axis>> lines;
  for (const ChannelSpec& channel : plan.channels()) {
    const bool known = std::ranges::find(lines, channel.traffic, [](const auto& line) { return line.first; }) != lines.end();
    if (channel.traffic.empty() || known) continue;
    lines.emplace_back(channel.traffic, channel.between_stages ? Axis::Pipeline : channel.axis.value_or(Axis::Data));
  }
  return lines;
}

bool shards_weights(const Plan& plan) { return plan.config.zero.stage == 3 && plan.shards(Sharing::Dense) > 1; }

std::string sharding_text(const Plan& plan) {
  const Sharding sharding = plan.sharding();
  std::string text;
  if (sharding.replicas > 1)
    text += fmt::format("shards    of each parameter are on {} rank{}, and have {} replicas (MiCS)\n", sharding.shards,
                        sharding.shards == 1 ? "" : "s", sharding.replicas);
  const ZeroConfig& zero = plan.config.zero;
  if (zero.stage > 0 && zero.mics_shard_size > 0 && sharding.replicas == 1)
    text += fmt::format("shards    are on all {} ranks that hold the same parameters, so mics_shard_size {} changes nothing\n",
                        sharding.shards, zero.mics_shard_size);
  if (sharding.secondary > 1 && most(plan, "secondary").operations > 0)
    text += fmt::format("gathers   after the first of a step are from a second copy on {} ranks (hpZ)\n", sharding.secondary);
  else if (sharding.secondary > 1)
    text += "gathers   happen once a step, so zero_hpz_partition_size changes nothing\n";
  if (shards_weights(plan) && (zero.zero_quantized_weights || zero.zero_quantized_nontrainable_weights))
    text +=
        fmt::format("gathers   {}send 8 bits of each weight (qwZ)\n", zero.zero_quantized_weights ? "" : "of frozen weights ");
  else if (zero.stage == 3 && zero.zero_quantized_weights)
    text += "weights   are rounded to 8 bits before they are used, as on several ranks (qwZ)\n";
  if (zero.stage > 0 && zero.zero_quantized_gradients) {
    const std::string near = sharding.secondary > 1 ? fmt::format(", first over {} ranks", sharding.secondary) : "";
    text += sharding.shards == 1 ? "gradients are not divided, so zero_quantized_gradients changes nothing\n"
                                 : fmt::format("gradients are summed in 4 bits{} (qgZ){}\n", near,
                                               sharding.replicas > 1 ? ", those of replicas exactly" : "");
  }
  return text;
}

std::string communication_text(const Plan& plan) {
  std::string text = "communication of one step\n";
  for (const auto& [line, axis] : traffic_lines(plan))
    if (axis == Axis::Data || axis == Axis::Expert || plan.mesh.size(axis) > 1) text += traffic_line(line, most(plan, line));
  return text;
}

// The largest file of this kind on any rank.
FilePlan largest(const Plan& plan, FilePlan RankPlan::*file) {
  FilePlan most;
  for (const RankPlan& rank : plan.ranks)
    if ((rank.*file).bytes >= most.bytes) most = rank.*file;
  return most;
}

MemoryBytes host_memory(const Plan& plan) {
  MemoryBytes most;
  for (const RankPlan& rank : plan.ranks)
    if (rank.host_memory.total() > most.total()) most = rank.host_memory;
  return most;
}

std::string host_memory_line(const Plan& plan) {
  const MemoryBytes memory = host_memory(plan);
  return fmt::format(
      "  in memory  {:>10.2f} MiB of host memory per rank: weights {:.2f}, optimizer {:.2f}, activations {:.2f}, buffers "
      "{:.2f}\n",
      mebibytes(memory.total()), mebibytes(memory[MemoryCategory::Parameters]), mebibytes(memory[MemoryCategory::Optimizer]),
      mebibytes(memory[MemoryCategory::Activations]), mebibytes(memory[MemoryCategory::Buffers]));
}

// Inputs of blocks that a step copies to host memory, on the rank that copies most.
int64_t offloaded_bytes(const Plan& plan) {
  int64_t most = 0;
  for (const RankPlan& rank : plan.ranks) most = std::max(most, rank.offloaded_bytes);
  return most;
}

std::string file_line(const Plan& plan, const char* name, FilePlan RankPlan::*file) {
  const FilePlan most = largest(plan, file);
  return fmt::format("  {:<10} {:>10.2f} MiB in a file per rank, {:>10.2f} MiB read and {:>10.2f} MiB written per step\n", name,
                     mebibytes(most.bytes), mebibytes(most.bytes_read), mebibytes(most.bytes_written));
}

std::string offload_text(const Plan& plan) {
  if (!plan.config.offloads_to_files() && !plan.config.uses_host_side()) return "";
  std::string text = plan.config.updates_on_host() ? "offloaded; optimizer states are updated on the host\n" : "offloaded\n";
  if (plan.config.uses_host_side()) text += host_memory_line(plan);
  if (plan.config.offloads_inputs())
    text += fmt::format("  activations{:>10.2f} MiB copied to host memory and back per rank and step\n",
                        mebibytes(offloaded_bytes(plan)));
  if (plan.config.zero.offload_optimizer.device == OffloadDevice::Nvme)
    text += file_line(plan, "optimizer", &RankPlan::state_file);
  if (plan.config.zero.offload_param.device == OffloadDevice::Nvme) {
    text += file_line(plan, "weights", &RankPlan::weight_file);
    if (largest(plan, &RankPlan::weight_file).bytes == 0)
      text += fmt::format("             zero_optimization.offload_param.max_in_cpu {} keeps all of them in memory\n",
                          plan.config.zero.offload_param.max_in_cpu);
  }
  return text;
}

// The cost for the rank that saves most. Two steps are in memory at a time: the kept one, and the one being written.
struct MemoryCheckpointCost {
  int64_t bytes_in_memory = 0, bytes_sent = 0;  // on a host per rank; to other hosts per rank and save
};

MemoryCheckpointCost memory_checkpoint_cost(const Plan& plan) {
  int64_t most = 0;
  for (const RankPlan& rank : plan.ranks) most = std::max(most, rank.checkpoint_bytes);
  const int64_t replicas = plan.config.checkpoint.memory.replicas;
  return {2 * (1 + replicas) * most, replicas * most};
}

std::string memory_checkpoint_text(const Plan& plan) {
  if (!plan.config.checkpoint.saves_to_memory()) return "";
  const MemoryCheckpointConfig& memory = plan.config.checkpoint.memory;
  const MemoryCheckpointCost cost = memory_checkpoint_cost(plan);
  return fmt::format(
      "checkpoints in memory, in {}\n"
      "  {:<12} {:>10.2f} MiB of each host's memory per rank: 2 steps, replicas {}\n"
      "  {:<12} {:>10.2f} MiB to other hosts per rank and save\n",
      memory.directory, "held", mebibytes(cost.bytes_in_memory), memory.replicas, "sent", mebibytes(cost.bytes_sent));
}

nlohmann::ordered_json file_json(const Plan& plan, FilePlan RankPlan::*file) {
  const FilePlan most = largest(plan, file);
  return {{"bytes", most.bytes}, {"bytes_read", most.bytes_read}, {"bytes_written", most.bytes_written}};
}

// The cost of ZeRO-3 if weights are released in this way: the bytes that the rank with the most traffic sends, and the bytes of
// weights that the rank with the most of them has whole at once.
struct ReleaseCost {
  int64_t gather_bytes = 0, whole_bytes = 0;
};

// Bytes that a rank sends to gather a block: from its shards, or from the second copy.
struct GatherBytes {
  int64_t from_shards = 0, from_second_copy = 0;
};

GatherBytes gather_bytes(const Plan& plan, const zero::BlockLayout& block) {
  const Sharding sharding = plan.sharding();
  GatherBytes bytes;
  for (const zero::FlatGroup& group : block.groups) {
    if (group.persistent || group.role == zero::GroupRole::TiedGradients) continue;
    const int64_t element = size_of(group.keeps_float32 ? DType::Float32 : plan.config.model_dtype());
    const int64_t shard = group.whole_elements / group.shards;
    bytes.from_shards += (group.shards - 1) * (group.quantized ? kernels::quantized_bytes(shard, 8) : shard * element);
    bytes.from_second_copy += (sharding.secondary - 1) * (group.whole_elements / sharding.secondary) * element;
  }
  return bytes;
}

ReleaseCost release_cost(const Plan& plan, pipeline::UnshardRelease release) {
  Config config = plan.config;
  config.zero.stage3_release = release;
  ReleaseCost cost;
  for (const RankPlan& rank : plan.ranks) {
    const Programs programs = release == plan.config.zero.stage3_release
                                  ? rank.programs
                                  : make_programs(config, plan.schedule, plan.stages, rank.coordinates[Axis::Pipeline],
                                                  rank.layout, rank.programs.microbatches);
    int64_t gathered = 0;
    std::set<int> seen;
    for (const pipeline::Instruction& i : programs.train) {
      if (i.op != pipeline::Op::Unshard) continue;
      const GatherBytes bytes = gather_bytes(plan, rank.layout.blocks[i.block]);
      const bool first = seen.insert(i.block).second || plan.sharding().secondary == 1;
      gathered += first ? bytes.from_shards : bytes.from_second_copy;
    }
    const int64_t whole = most_whole_elements(programs.train, block_parameters(rank.layout, config.zero.stage));
    cost.gather_bytes = std::max(cost.gather_bytes, gathered);
    cost.whole_bytes = std::max(cost.whole_bytes, whole * size_of(config.model_dtype()));
  }
  return cost;
}

std::string release_text(const Plan& plan) {
  if (!shards_weights(plan)) return "";
  std::string text = "gathered weights, for each zero_optimization.stage3_release\n";
  for (const auto& [name, release] : EnumNames<pipeline::UnshardRelease>::table) {
    const ReleaseCost cost = release_cost(plan, release);
    if (cost.gather_bytes == 0)
      return fmt::format(
          "gathered weights: none, because no parameter has more than the {} elements of zero_optimization.stage3_"
          "param_persistence_threshold; such parameters stay whole\n",
          plan.config.zero.stage3_param_persistence_threshold);
    const bool chosen = release == plan.config.zero.stage3_release;
    const std::string distance = release == pipeline::UnshardRelease::Distance
                                     ? fmt::format(", stage3_max_reuse_distance {}", plan.config.zero.stage3_max_reuse_distance)
                                     : "";
    text += fmt::format("  {:<10} gathers {:>10.2f} MiB per step, {:>10.2f} MiB whole at once{}{}\n", name,
                        mebibytes(cost.gather_bytes), mebibytes(cost.whole_bytes), distance, chosen ? "  <- this config" : "");
  }
  return text;
}

// What attention keeps for each kernel thread of a CPU.
int64_t thread_scratch_bytes(const Plan& plan) {
  if (plan.config.compute_device() != Device::Cpu) return 0;
  int64_t most = 0;
  for (const RankPlan& rank : plan.ranks) most = std::max(most, rank.step_counters.thread_scratch_bytes);
  return most;
}

}  // namespace

std::string to_text(const Plan& plan) {
  std::string text;
  text += fmt::format("mesh      {}, {} ranks\n", to_string(plan.mesh), plan.mesh.size());
  if (plan.mesh.size(Axis::Pipeline) > 1 || plan.mesh.size(Axis::Tensor) > 1) text += to_grid(plan.mesh);
  text +=
      fmt::format("model     {} parameters in {} blocks{}\n", plan.parameters, plan.stages.blocks(),
                  plan.active_parameters == plan.parameters ? "" : fmt::format(", {} compute a token", plan.active_parameters));
  text += stages_text(plan);
  text += schedule_text(plan);
  text += fmt::format("batch     {} = micro {} x accumulation {} x data {}\n", plan.batch.train_batch_size,
                      plan.batch.micro_batch_size, plan.batch.gradient_accumulation_steps, plan.mesh.size(batch_axes()));
  text += fmt::format("precision {}, ZeRO stage {}, reproducible \"{}\"\n", name_of(plan.config.model_dtype()),
                      plan.config.zero.stage, name_of(plan.config.reproducible));
  text += sharding_text(plan);
  if (plan.config.parallel.sequence_parallel && plan.mesh.size(Axis::Tensor) > 1)
    text += "tokens    of every sequence are split over the tensor ranks between blocks (sequence parallelism)\n";
  text += config::describe_context(plan.config);
  text += recompute_text(plan.config);
  text += slices_text(plan.config);
  text += audit_text(plan);
  if (const std::string samples = config::describe_sample_curriculum(plan.config); !samples.empty())
    text += fmt::format("samples   easy ones first: {}\n", samples);
  if (plan.config.compute_device() == Device::Cuda) text += fmt::format("launches  {}\n", to_text(plan.step_graph));
  const RankPlan& heaviest = plan.heaviest();
  text += "memory of the rank that needs most\n";
  for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
    text += fmt::format("  {:<12} {:>10.2f} MiB\n", name, mebibytes(heaviest.memory[category]));
  text += fmt::format("  {:<12} {:>10.2f} MiB\n", "total", mebibytes(heaviest.memory.total()));
  if (const int64_t scratch = thread_scratch_bytes(plan); scratch > 0)
    text += fmt::format("  {:<12} {:>10.2f} MiB more in each kernel thread, at most\n", "attention", mebibytes(scratch));
  text += memory_checkpoint_text(plan);
  text += communication_text(plan);
  text += offload_text(plan);
  text += release_text(plan);
  text += fmt::format("compute   {:.2f} GFLOP per step on all ranks\n", plan.model_flops_per_step / 1e9);
  for (const RankPlan& rank : plan.ranks)
    if (rank.coordinates[Axis::Tensor] == 0 && rank.coordinates[Axis::Expert] == 0)
      text +=
          fmt::format("program   {}{}\n",
                      plan.stages.stages() > 1 ? fmt::format("of pipeline rank {}: ", rank.coordinates[Axis::Pipeline]) : "",
                      shortened(rank.programs.train));
  return text;
}

std::string to_json(const Plan& plan) {
  nlohmann::ordered_json json;
  for (const auto& [name, axis] : EnumNames<Axis>::table) json["mesh"][std::string(name)] = plan.mesh.size(axis);
  for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
    json["memory_bytes"][std::string(name)] = plan.heaviest().memory[category];
  json["memory_bytes"]["total"] = plan.heaviest().memory.total();
  json["thread_scratch_bytes"] = thread_scratch_bytes(plan);
  json["parameters"] = plan.parameters;
  json["active_parameters"] = plan.active_parameters;
  json["train_batch_size"] = plan.batch.train_batch_size;
  json["train_micro_batch_size_per_gpu"] = plan.batch.micro_batch_size;
  json["gradient_accumulation_steps"] = plan.batch.gradient_accumulation_steps;
  for (const auto& [line, axis] : traffic_lines(plan)) json["communication_bytes"][line] = most(plan, line).bytes_sent;
  if (shards_weights(plan))
    for (const auto& [name, release] : EnumNames<pipeline::UnshardRelease>::table) {
      const ReleaseCost cost = release_cost(plan, release);
      json["stage3_release"][std::string(name)] = {{"gather_bytes", cost.gather_bytes}, {"whole_bytes", cost.whole_bytes}};
    }
  if (plan.config.offloads_to_files())
    json["files"] = {{"optimizer", file_json(plan, &RankPlan::state_file)},
                     {"weights", file_json(plan, &RankPlan::weight_file)}};
  if (plan.config.uses_host_side()) json["host_memory_bytes"] = host_memory(plan).total();
  if (plan.config.offloads_inputs()) json["offloaded_activation_bytes"] = offloaded_bytes(plan);
  if (plan.config.checkpoint.saves_to_memory()) {
    const MemoryCheckpointCost cost = memory_checkpoint_cost(plan);
    json["memory_checkpoint"] = {{"bytes_in_memory", cost.bytes_in_memory}, {"bytes_sent", cost.bytes_sent}};
  }
  json["stages"] = plan.stages.first_blocks;
  json["bubble_fraction"] = timeline_of(plan).bubble_fraction;
  json["model_flops_per_step"] = plan.model_flops_per_step;
  json["programs"] = nlohmann::ordered_json::array();
  for (const RankPlan& rank : plan.ranks) {
    if (rank.coordinates[Axis::Tensor] != 0 || rank.coordinates[Axis::Expert] != 0) continue;
    auto& program = json["programs"].emplace_back(nlohmann::ordered_json::array());
    for (const auto& instruction : rank.programs.train) program.push_back(to_string(instruction));
  }
  return json.dump(2);
}

}  // namespace trivet
