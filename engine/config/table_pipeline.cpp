// pipeline.*, activation_checkpointing.*
#include <fmt/format.h>

#include <stdexcept>

#include "core/regular_expression.h"
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

using pipeline::PartitionMethod;

const std::string kFile = "file:", kType = "type:", kCost = "cost:";

void set_schedule(Config& config, const JsonNode& node) {
  config.pipeline.schedule_file.clear();
  if (node.text.starts_with(kFile))
    config.pipeline.schedule_file = node.text.substr(kFile.size());
  else
    from_json(config.pipeline.schedule, node);
}

std::string get_schedule(const Config& config) {
  const PipelineConfig& pipeline = config.pipeline;
  return pipeline.schedule_file.empty() ? as_json(pipeline.schedule) : quoted(kFile + pipeline.schedule_file);
}

void check_regex(const std::string& text) {
  try {
    const RegularExpression expression(text);
  } catch (const std::invalid_argument& wrong) {
    throw std::invalid_argument(
        fmt::format("use a regular expression after \"type:\", such as \"type:transformer\": {}", wrong.what()));
  }
}

// With "best", DeepSpeed chooses what to balance; Trivet balances the cost.
void set_partition(Config& config, const JsonNode& node) {
  PipelineConfig& pipeline = config.pipeline;
  const bool type = node.text.starts_with(kType);
  if (type) check_regex(node.text.substr(kType.size()));
  pipeline.cost_file = node.text.starts_with(kCost) ? node.text.substr(kCost.size()) : "";
  pipeline.partition_regex = type ? node.text.substr(kType.size()) : "";
  pipeline.partition = type ? PartitionMethod::Type : from_name<PartitionMethod>(node.text).value_or(PartitionMethod::Cost);
}

std::string get_partition(const Config& config) {
  const PipelineConfig& pipeline = config.pipeline;
  if (!pipeline.cost_file.empty()) return quoted(kCost + pipeline.cost_file);
  return pipeline.partition == PartitionMethod::Type ? quoted(kType + pipeline.partition_regex) : as_json(pipeline.partition);
}

void set_stages(Config& config, const JsonNode& node) {
  if (node.kind == JsonKind::String && node.text == "auto") return;  // DeepSpeed's default
  if (!node.is_integer || node.integer < 1) throw std::invalid_argument("use a positive integer");
  config.parallel.pipeline = node.integer;
}

// Checks for several microbatches per step on a rank. With both batch sizes, the world size decides (resolve_batch).
bool accumulates(const BatchConfig& batch) {
  if (batch.gradient_accumulation_steps > 0) return batch.gradient_accumulation_steps > 1;
  return batch.micro_batch_size > 0 && batch.train_batch_size > batch.micro_batch_size;
}

void add_schedule(Section<PipelineConfig>& pipeline) {
  using P = PipelineConfig;
  pipeline
      .custom("schedule", KeyType::Enum,
              "the order in which a stage processes its microbatches; \"gpipe\" keeps the activations of all of them, even "
              "with a single stage; \"file:PATH\" reads the programs from a file",
              set_schedule, get_schedule)
      .own()
      .names(names_of<ScheduleKind>())
      .ignores_case()
      .open_names({"file:PATH"})
      .active_when("a step has several microbatches or parallel.pipeline is more than 1",
                   [](const Config& c) { return c.parallel.pipeline > 1 || accumulates(c.batch); });
  pipeline
      .key("chunks", &P::chunks,
           "stages per rank: any number with \"interleaved\", 2 with \"zb-v\", 1 with the other schedules; 0: the number that "
           "the schedule needs, 2 with \"interleaved\"")
      .at_least(0)
      .own()
      .active_when("pipeline.schedule is not a file", [](const Config& c) { return c.pipeline.schedule_file.empty(); });
}

void add_pipeline(KeyTable& table) {
  Section<PipelineConfig> pipeline(table, "pipeline", [](Config& c) -> PipelineConfig& { return c.pipeline; });
  add_schedule(pipeline);
  pipeline
      .custom("stages", KeyType::Any, "the same as parallel.pipeline", set_stages,
              [](const Config& c) { return std::to_string(c.parallel.pipeline); })
      .default_json("\"auto\"")
      .alias_of("parallel.pipeline");
  pipeline
      .custom("partition", KeyType::Enum,
              "what is balanced when blocks are assigned to stages: their compute cost (\"cost\" and \"best\"; \"cost:PATH\" "
              "takes the costs.json that a run with timeline.step has measured), their number (\"uniform\"), their parameters, "
              "or the number of blocks whose type or name matches a regular expression (\"type:REGEX\")",
              set_partition, get_partition)
      .names({"best", "uniform", "parameters", "cost"})
      .open_names({"type:REGEX", "cost:PATH"})
      .refuses({"profile"})
      .default_json("\"best\"")
      .active_when("there is more than one stage",
                   [](const Config& c) { return c.parallel.pipeline > 1 || chunks_of(c.pipeline) != 1; });
  pipeline.unsupported("seed_layers", "false", "one seed per layer");
  pipeline.unused("activation_checkpoint_interval", "0", "layers per checkpoint")
      .instead("activation_checkpointing.mode and activation_checkpointing.every");
  pipeline.unused("pipe_partitioned", "true", "split activations over the tensor axis before sending");
  pipeline.unused("grad_partitioned", "true", "split gradients over the tensor axis before sending");
  pipeline.inert("use_reentrant", "true", "PyTorch's kind of recompute", "there is one kind of recompute");
}

void add_activation_checkpointing(KeyTable& table) {
  Section<Config> recompute(table, "activation_checkpointing", [](Config& c) -> Config& { return c; });
  recompute
      .key("mode", &Config::recompute,
           "\"full\": the backward pass recomputes each block's activations instead of keeping them; \"selective\": it "
           "recomputes only what attention computes from queries, keys and values")
      .own();
  recompute
      .key("every", &Config::recompute_every,
           "the first of every N transformer layers is recomputed; the others keep their activations")
      .at_least(1)
      .own()
      .active_when("activation_checkpointing.mode is not \"none\"",
                   [](const Config& c) { return c.recompute != Recompute::None; });
  recompute
      .key("partition_activations", &Config::partition_activations,
           "each tensor rank keeps only its share of a recomputed block's input; the ranks gather the input before they "
           "recompute the block")
      .active_when(
          "activation_checkpointing.mode is \"full\", parallel.tensor is more than 1 and parallel.sequence_parallel is false",
          [](const Config& c) {
            return c.recompute == Recompute::Full && c.parallel.tensor > 1 && !c.parallel.sequence_parallel;
          });
  recompute
      .key("cpu_checkpointing", &Config::cpu_checkpointing,
           "the inputs of recomputed blocks wait for the backward pass in host memory; the copies overlap with computation; "
           "needs activation_checkpointing.mode \"full\"")
      .active_when("the device has its own memory", [](const Config& c) { return c.compute_device() == Device::Cuda; });
  recompute
      .key("mlp_slice_tokens", &Config::mlp_slice_tokens,
           "the MLP of a transformer block works on at most so many tokens of a rank at a time, keeps only its input, and "
           "computes the rest again in the backward pass, so that a long sequence needs memory for the MLP's wide "
           "activations of one slice; part of the mathematics with reproducible \"layout\"; 0: on all tokens at once")
      .at_least(0)
      .own();
  recompute.unused("number_checkpoints", "null", "number of kept activations; Trivet keeps one per block");
  recompute.unused("contiguous_memory_optimization", "false", "keep activations in one buffer");
  recompute.unused("synchronize_checkpoint_boundary", "false", "wait for the device at each block");
  recompute.unused("profile", "false", "time forward and backward of each block").instead("timeline.step");
}

}  // namespace

void add_pipeline_keys(KeyTable& table) {
  add_pipeline(table);
  add_activation_checkpointing(table);
}

}  // namespace trivet::config
