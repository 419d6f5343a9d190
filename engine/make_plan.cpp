#include "engine/make_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "engine/backend/cuda_module.h"
#include "engine/config/curriculum.h"
#include "engine/config/load.h"
#include "engine/config/refuse.h"
#include "engine/partitioned_input.h"
#include "engine/rehearsal.h"
#include "engine/timeline/block_costs.h"
#include "model/count_flops.h"
#include "pipeline/stages.h"
#include "pipeline/validate.h"
#include "zero/place_groups.h"

namespace trivet {
namespace {

std::vector<zero::NamedParameters> named_parameters(const model::Model& model) {
  std::vector<zero::NamedParameters> layers;
  for (size_t i = 0; i < model.layers.size(); ++i)
    layers.push_back({model.names[i], model.layers[i]->parameters(), model.layers[i]->role()});
  return layers;
}

// Running averages are stored, sent and reduced with the parameters and gradients around them.
void check_running_average(const Config& config, const std::string& name) {
  const auto refuse = [&](const std::string& setting, const char* reason) {
    throw ConfigError(fmt::format("{}: {} is not accepted, because {} is a running average: {} or group_norm", config.source,
                                  setting, name, reason));
  };
  if (config.optimizer.type == OptimizerType::Lamb)
    refuse("optimizer.type \"Lamb\"", "LAMB does not move it; use another optimizer");
  if (config.gradient_dtype() == DType::Float16)
    refuse("fp16.enabled true",
           "what a step adds to it may not fit into float16; use bf16, data_types.grad_accum_dtype \"fp32\"");
  if (config.zero.zero_quantized_gradients)
    refuse("zero_optimization.zero_quantized_gradients true",
           "it would be rounded together with gradients of another size; use false");
  if (config.zero.zero_quantized_weights)
    refuse("zero_optimization.zero_quantized_weights true",
           "it would be rounded together with weights of another size; use false");
}

// The engine wraps blocks of its own models only.
void check_own_layers(const Config& config) {
  if (config.model.token_drop.enabled)
    config::refuse(config, "data_efficiency.data_routing.random_ltd.enabled",
                   "true has no effect on a list of your own layers; wrap them in model::DroppedTokens "
                   "(model/dropped_tokens.h), or use false");
}

// The section "model" says nothing about a list of your own layers, so its keys are not checked against the others; the model
// itself is asked instead.
void check_model(const Config& config, const model::Model& model) {
  model.description ? check(config) : check_without_model(config);
  if (!model.description) check_own_layers(config);
  const auto refuse = [&](const std::string& what) { throw ConfigError(fmt::format("{}: {}", config.source, what)); };
  if (model.layers.empty() || model.layers.size() != model.names.size())
    refuse(
        fmt::format("the model has {} layers and {} names; give each layer a name", model.layers.size(), model.names.size()));
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const bool loss = model.layers[i]->role() == LayerRole::Loss, last = i + 1 == model.layers.size();
    if (loss != last)
      refuse(fmt::format("layer {} {}; the last layer of a model computes the loss, and no other (Layer::role in core/layer.h)",
                         model.names[i],
                         loss ? "computes the loss, but is not the last" : "is the last, but computes no loss"));
    for (const ParameterSpec& parameter : model.layers[i]->parameters()) {
      if (parameter.update.kind == ParameterUpdate::Kind::RunningAverage)
        check_running_average(config, model.names[i] + "." + parameter.name);
      if (parameter.update.kind == ParameterUpdate::Kind::ExpertBalance && parameter.trainable)
        refuse(fmt::format("{}.{} has a gradient, but an update that needs none; let it not be trainable", model.names[i],
                           parameter.name));
    }
  }
  config::check_curriculum(config, model.sample.is_sequence() ? model.sample.input[0] : 0);
  if (model.sample.targets.elements() < 1 || model.sample.classes < 1)
    refuse("the model does not say what a sample is; fill in Model::sample (core/sample.h)");
}

// The layer whose output has the most elements for one sample.
std::pair<std::string, int64_t> largest_output(const model::Model& model) {
  std::pair<std::string, int64_t> largest{"", 1};
  Shape shape = model.sample.inputs_of(1);
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    shape = model.layers[layer]->output_shape(shape);
    if (shape.elements() > largest.second) largest = {model.names[layer], shape.elements()};
  }
  return largest;
}

// The layer with the most numbers inside, for one sample: activations that it keeps, and temporaries.
std::pair<std::string, int64_t> largest_inside(const model::Model& model) {
  std::pair<std::string, int64_t> largest{"", 1};
  const std::vector<int64_t> bytes = model::count_inner_bytes(model);
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    if (const int64_t numbers = bytes[layer] / size_of(DType::Float32); numbers > largest.second)
      largest = {model.names[layer], numbers};
  return largest;
}

// No machine can go beyond these limits, and counting bytes and instructions would overflow or never end.
void check_batch(const Config& config, const model::Model& model, const ResolvedBatch& batch) {
  const auto refuse = [&](const std::string& what) { throw ConfigError(fmt::format("{}: {}", config.source, what)); };
  const int64_t values = std::max(model.sample.inputs_of(1).elements(), model.sample.targets_of(1).elements());
  if (batch.micro_batch_size > kMaxValues / values)
    refuse(
        fmt::format("train_micro_batch_size_per_gpu: a microbatch of {} samples of {} values is more than {} values; use a "
                    "smaller one and gradient_accumulation_steps",
                    batch.micro_batch_size, values, kMaxValues));
  if (const auto& [layer, outputs] = largest_output(model); batch.micro_batch_size > kMaxOutputs / outputs)
    refuse(
        fmt::format("train_micro_batch_size_per_gpu: {} samples of {} outputs of layer {} are more than {}; use a smaller one "
                    "and gradient_accumulation_steps",
                    batch.micro_batch_size, outputs, layer, kMaxOutputs));
  if (const auto& [layer, numbers] = largest_inside(model); batch.micro_batch_size > kMaxOutputs / numbers)
    refuse(
        fmt::format("train_micro_batch_size_per_gpu: {} samples of {} numbers inside of layer {} are more than {}; use a "
                    "smaller one and gradient_accumulation_steps",
                    batch.micro_batch_size, numbers, layer, kMaxOutputs));
  if (batch.gradient_accumulation_steps > kMaxMicrobatches)
    refuse(fmt::format("gradient_accumulation_steps: {} is more than {}; use a larger train_micro_batch_size_per_gpu",
                       batch.gradient_accumulation_steps, kMaxMicrobatches));
  if (const std::string problem = model::training_problem(model, batch.micro_batch_size); !problem.empty())
    refuse(fmt::format("train_micro_batch_size_per_gpu: {} is not accepted: {}", batch.micro_batch_size, problem));
}

// Checks a model that the caller built; a model that the config describes has been checked.
void check_own_tokens(const Config& config, const model::Model& model) {
  if (!config.parallel.sequence_parallel || config.parallel.tensor == 1) return;
  const std::string problem = model::token_split_problem(model, static_cast<int>(config.parallel.tensor));
  if (!problem.empty()) config::refuse(config, "parallel.sequence_parallel", "true " + problem);
}

// Likewise. Attention itself refuses numbers of ranks that do not divide its heads.
void check_own_context(const Config& config, const model::Model& model) {
  const int64_t ranks = config.parallel.context, grain = config.parallel.context_grain;
  if (config.fixes_token_sums() && (!model.sample.is_sequence() || model.sample.input[0] % grain != 0))
    config::refuse(config, "parallel.context_grain",
                   fmt::format("{} needs samples that are sequences of tokens, whose number it divides; use 1", grain));
  if (ranks == 1) return;
  const auto refuse = [&](const std::string& what) {
    config::refuse(config, "parallel.context", fmt::format("{} is not accepted: {}; use 1", ranks, what));
  };
  if (!model.sample.is_sequence()) refuse("the samples of the model are no sequences of tokens");
  if (model.sample.input[0] % ranks != 0) refuse(fmt::format("it does not divide {} tokens", model.sample.input[0]));
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    if (!model.layers[layer]->allows_context_parallelism())
      refuse(fmt::format("layer {} needs all tokens (Layer::allows_context_parallelism in core/layer.h)", model.names[layer]));
}

// Nothing is kept of experts' work that ranks share, so gradients of their weights are made with those of their inputs.
void check_experts(const Config& config, const model::Model& model, const std::vector<RankPlan>& ranks) {
  if (config.parallel.expert == 1) return;
  const auto refuse = [&](const std::string& why) {
    config::refuse(config, "parallel.expert", fmt::format("{} is not accepted{}; use 1", config.parallel.expert, why));
  };
  const auto shared = [](const ParameterSpec& parameter) { return parameter.sharing == Sharing::Expert; };
  if (std::ranges::none_of(model.layers, [&](const auto& layer) { return std::ranges::any_of(layer->parameters(), shared); }))
    refuse(": no layer of the model has experts");
  const auto waits = [](const pipeline::Instruction& instruction) { return instruction.op == pipeline::Op::BackwardWeight; };
  if (std::ranges::any_of(ranks, [&](const RankPlan& rank) { return std::ranges::any_of(rank.programs.train, waits); }))
    refuse(" with a schedule in which gradients of weights come later than those of inputs, as in \"zb-h1\"");
}

StageMap make_stages(const Config& config, const model::Model& model, const ResolvedBatch& batch,
                     const pipeline::Schedule& schedule) {
  StageMap stages;
  stages.rank_of_stage = pipeline::stage_ranks(schedule);
  const auto facts = block_facts(config.pipeline, model, batch.micro_batch_size);
  stages.first_blocks = pipeline::partition(facts, stages.stages(), config.pipeline.partition, config.pipeline.partition_regex);
  return stages;
}

// On a CPU, host memory is the device's memory, so only files are a different place.
zero::PlacementOptions placement_options(const Config& config) {
  const ZeroConfig& zero = config.zero;
  const zero::Placement host = config.compute_device() == Device::Cpu ? zero::Placement::Device : zero::Placement::Host;
  const auto place = [&](OffloadDevice device) {
    if (device == OffloadDevice::Nvme) return zero::Placement::File;
    return device == OffloadDevice::Cpu ? host : zero::Placement::Device;
  };
  const bool weights_in_files = zero.offload_param.device == OffloadDevice::Nvme;
  return {.states = place(zero.offload_optimizer.device),
          .states_ratio = zero.offload_optimizer.ratio,
          .weights = place(zero.offload_param.device),
          .weights_in_memory = weights_in_files ? zero.offload_param.max_in_cpu : 0,
          .kept_weights = host};
}

zero::ShardLayout make_layout(const Plan& plan, const model::Model& model, const Coordinates& rank) {
  const Config& config = plan.config;
  const int dense = plan.shards(Sharing::Dense);
  const bool layout_mode = config.reproducible == Reproducible::Layout;
  // Two contributions that are added in float32, in a fixed order, need no separate accumulator.
  const bool one_of_each = plan.batch.gradient_accumulation_steps == 1 && config.model_dtype() == DType::Float32 &&
                           (config.zero.stage < 2 || dense == 1);
  zero::LayoutOptions options{
      .shards = zero::ShardCounts(dense, plan.shards(Sharing::Expert)),
      .persistence_threshold = config.zero.stage >= 3 ? config.zero.stage3_param_persistence_threshold : 0,
      .persistence_limit = config.zero.stage3_model_persistence_threshold,
      .tensor_rank = rank[Axis::Tensor],
      .tensor_size = plan.mesh.size(Axis::Tensor),
      .expert_rank = rank[Axis::Expert],
      .expert_size = static_cast<int>(config.parallel.expert),
      .sequence_parallel = config.parallel.sequence_parallel && !layout_mode,  // there, sums over tokens are complete
      .pipeline_rank = rank[Axis::Pipeline],
      .quantized = config.zero.stage == 3 && config.zero.zero_quantized_weights,
      .quantized_frozen =
          config.zero.stage == 3 && (config.zero.zero_quantized_weights || config.zero.zero_quantized_nontrainable_weights),
      .separate_tied_gradients = !layout_mode && !one_of_each};
  for (int block = 0; block < plan.stages.blocks(); ++block)
    options.pipeline_rank_of_block.push_back(plan.stages.rank_of_block(block));
  zero::ShardLayout layout = zero::make_shard_layout(named_parameters(model), options);
  zero::place_groups(layout, placement_options(config));
  return layout;
}

// Checks that the programs of all ranks of one pipeline can run together.
void validate_programs(const Plan& plan) {
  pipeline::Schedule train, evaluate, audit;
  for (const RankPlan& rank : plan.ranks) {
    if (rank.coordinates[Axis::Tensor] != 0 || rank.coordinates[Axis::Expert] != 0) continue;
    train.push_back(rank.programs.train);
    evaluate.push_back(rank.programs.evaluate);
    audit.push_back(rank.programs.audit);
  }
  pipeline::validate(train, static_cast<int>(plan.batch.gradient_accumulation_steps));
  pipeline::validate_forward(evaluate, 1);
  if (plan.config.audit.every_steps > 0) pipeline::validate(audit, 1);
}

// The coordinates of one rank for each plan, ascending.
std::vector<Coordinates> different_ranks(const Mesh& mesh, bool share_experts) {
  const Mesh of_experts = share_experts ? mesh.view(Sharing::Expert) : mesh;
  std::set<Coordinates> different;
  for (int rank = 0; rank < mesh.size(); ++rank) different.insert(plan_coordinates(mesh, of_experts, rank));
  return {different.begin(), different.end()};
}

// Replaces device "auto" by the device that is found.
void find_device(Plan& plan) {
  if (plan.config.device != DeviceChoice::Auto) return;
  std::string reason;
  const bool gpu = trivet::find_device(reason) == Device::Cuda;
  plan.config.device = gpu ? DeviceChoice::Cuda : DeviceChoice::Cpu;
  plan.found_device = gpu ? "cuda" : fmt::format("cpu ({})", reason);
}

}  // namespace

std::vector<pipeline::BlockFacts> block_facts(const PipelineConfig& config, const model::Model& model, int64_t samples) {
  std::vector<timeline::BlockCosts> measured;
  if (!config.cost_file.empty()) measured = timeline::read_block_costs(config.cost_file, model.names);
  std::vector<model::LayerFlops> flops;
  if (measured.empty()) flops = model::count_flops(model, samples);
  std::vector<pipeline::BlockFacts> facts;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = *model.layers[i];
    int64_t parameters = 0;
    for (const ParameterSpec& spec : layer.parameters()) parameters += spec.tied_to.empty() ? spec.shape.elements() : 0;
    const double cost = measured.empty() ? flops[i].all : measured[i].total_ms();
    facts.push_back({model.names[i], std::string(layer.type()), parameters, cost});
  }
  return facts;
}

Plan make_plan(const Config& given, const model::Model& model, int world_size) {
  check_model(given, model);
  Plan plan;
  plan.config = given;
  find_device(plan);
  // The heads of a program's own layers are not known; attention itself says if they do not suffice.
  if (!model.description && given.parallel.context_kind == ContextKind::Auto)
    plan.config.parallel.context_kind = ContextKind::Ulysses;
  if (!model.description && given.parallel.context_kind == ContextKind::UlyssesRing && given.parallel.context_ulysses == 0 &&
      given.parallel.context > 1)
    config::refuse(given, "parallel.context_ulysses",
                   "0 is not accepted with a program's own layers, whose heads are not known; use the number of context ranks "
                   "that exchange tokens for heads");
  const Config& config = plan.config;
  check_model(config, model);
  plan.mesh = Mesh(config.parallel, world_size);
  plan.step_graph = step_graph(config, plan.mesh);
  plan.batch = resolve_batch(config.batch, plan.mesh.size(batch_axes()), config.source);
  check_batch(config, model, plan.batch);
  model::check_tensor_size(model, plan.mesh.size(Axis::Tensor));
  check_own_tokens(config, model);
  check_own_context(config, model);
  if (config.reproducible == Reproducible::Layout) model::check_fixed_sums(model, plan.mesh.size(Axis::Tensor));
  const int microbatches = static_cast<int>(plan.batch.gradient_accumulation_steps);
  plan.schedule = make_schedule(config, microbatches);
  plan.stages = make_stages(config, model, plan.batch, plan.schedule);
  plan.parameters = model::parameter_count(model);
  plan.active_parameters = model::active_parameter_count(model);
  plan.model_flops_per_step = model::flops_per_sample(model) * static_cast<double>(plan.batch.train_batch_size);
  for (const Coordinates& coordinates : different_ranks(plan.mesh, config.parallel.expert > 1)) {
    RankPlan& rank = plan.ranks.emplace_back();
    rank.coordinates = coordinates;
    rank.layout = make_layout(plan, model, coordinates);
    rank.programs = make_programs(config, plan.schedule, plan.stages, coordinates[Axis::Pipeline], rank.layout, microbatches);
  }
  check_experts(config, model, plan.ranks);
  check_partitioned_inputs(plan, model);
  validate_programs(plan);
  // The ranks of a data group need the same memory, so one of them is measured.
  for (RankPlan& rank : plan.ranks) Rehearsal(plan, rank, model).measure(rank);
  return plan;
}

}  // namespace trivet
