#include "engine/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.h"
#include "engine/config/context_kind.h"
#include "engine/config/curriculum.h"
#include "engine/config/gradient_sum.h"
#include "engine/config/optimizer_traits.h"
#include "pipeline/event_graph.h"

namespace trivet {
namespace {

// Counts how often a step executes `op` with each block.
std::vector<int> times_of_blocks(const pipeline::Program& program, pipeline::Op op, size_t blocks) {
  std::vector<int> times(blocks, 0);
  for (const pipeline::Instruction& i : program) times[std::max(i.block, 0)] += i.op == op;
  return times;
}

zero::ParameterOptions parameter_options(const Config& config, const RankPlan& rank) {
  return {.zero_stage = config.zero.stage,
          .dtype = config.model_dtype(),
          .gradient_dtype = config.gradient_dtype(),
          .fixed_point = config.reproducible == Reproducible::Layout,
          .microbatches = rank.programs.microbatches,
          .gathers = times_of_blocks(rank.programs.train, pipeline::Op::Unshard, rank.layout.blocks.size()),
          .reductions = times_of_blocks(rank.programs.train, pipeline::Op::Reduce, rank.layout.blocks.size()),
          .optimizer_states = optimizer_states(config.optimizer),
          .staging_buffers = config.zero.offload_param.buffer_count,
          .staging_buffer_elements = config.zero.offload_param.buffer_size};
}

std::vector<zero::TieChannel> tie_channels(const zero::ShardLayout& layout, const Channels& channels) {
  std::vector<zero::TieChannel> ties;
  for (const zero::TiedWeight& tied : layout.ties) {
    if (tied.owner_rank == tied.user_rank) {
      ties.push_back({});
      continue;
    }
    const bool user = layout.blocks[tied.user_block].here;
    const Channel& channel = channels.to(Purpose::Tied, user ? tied.owner_rank : tied.user_rank);
    ties.push_back({channel.group.get(), 1 - channel.group->rank(), channel.stream});
  }
  return ties;
}

// The axes over which layers communicate.
std::array<std::optional<comm::RankAxis>, kAxes> layer_axes(const Config& config, const Channels& channels) {
  std::array<std::optional<comm::RankAxis>, kAxes> axes;
  for (const Channel& channel : channels.all())
    if (channel.spec.purpose == Purpose::Layers)
      axes[static_cast<size_t>(*channel.spec.axis)].emplace(
          comm::RankAxis{.group = *channel.group,
                         .stream = *channel.stream,
                         .splits_tokens = channel.spec.splits_tokens,
                         .fixed_sums = config.reproducible == Reproducible::Layout,
                         .context_kind = config::context_kind(config),
                         .cut = config::context_cut(config)});
  if (config::context_neighbours(config) > 1) {
    comm::RankAxis& context = *axes[static_cast<size_t>(Axis::Context)];
    context.neighbours = &channels.group(Purpose::Neighbours);
    context.across_neighbours = &channels.group(Purpose::AcrossRuns);
  }
  if (auto& experts = axes[static_cast<size_t>(Axis::Expert)]; experts && config.fixes_token_sums()) {
    experts->of_one_microbatch = static_cast<int>(std::min(config.parallel.context, config.parallel.expert));
    if (const Channel* const sums = channels.find(Purpose::TokenSums)) experts->same_experts = sums->group.get();
  }
  return axes;
}

// Empty if no layer has experts.
std::vector<CountedLayer> counted_layers(const model::Model& model) {
  std::vector<CountedLayer> layers;
  for (size_t i = 0; i < model.layers.size(); ++i) layers.push_back({model.names[i], model.layers[i]->experts()});
  const auto has_experts = [](const CountedLayer& layer) { return layer.experts > 0; };
  return std::ranges::any_of(layers, has_experts) ? layers : std::vector<CountedLayer>{};
}

}  // namespace

StepResult result_of(const StepLoss& loss, const StepOutcome& outcome) {
  return {.loss = loss.mean(),
          .targets = loss.targets,
          .correct = loss.correct,
          .chosen_reward = loss.mean_of(loss.chosen_reward_sum),
          .rejected_reward = loss.mean_of(loss.rejected_reward_sum),
          .grad_norm = outcome.grad_norm,
          .skipped = outcome.skipped,
          .experts = loss.experts};
}

StepOutcome Worker::outcome() const {
  if (results_.loss().targets == 0) return {std::numeric_limits<double>::quiet_NaN(), true, true};
  return {results_.grad_norm(), !results_.applied()};
}

Worker::Worker(const Config& config, const StageMap& stages, const RankPlan& rank, const model::Model& model,
               const ResolvedBatch& batch, const RankResources& resources)
    : config_(config),
      programs_(rank.programs),
      sample_(model.sample),
      batch_(batch),
      gradient_divisor_(static_cast<double>(batch.micro_batch_size * model.sample.counted_targets())),
      resources_(resources),
      layer_axes_(layer_axes(config, resources.channels)),
      results_(resources.allocator, resources.meter, std::max(rank.programs.microbatches, 1), model.sample.pairs,
               counted_layers(model)),
      evaluation_(resources.allocator, resources.meter, 1, model.sample.pairs),
      links_(resources.channels),
      parameters_(rank.layout, parameter_options(config, rank),
                  {.kernels = resources.kernels,
                   .allocator = resources.allocator,
                   .meter = resources.meter,
                   .buffers = resources.buffers,
                   .axes = resources.shard_axes(),
                   .collectives = resources.collectives,
                   .tensor_group = &resources.channels.group(Purpose::LayersReduce),
                   .refused = results_.refused(),
                   .offload = resources.offload},
                  tie_channels(rank.layout, resources.channels)),
      executor_(
          {.model = model, .parameters = parameters_, .stages = stages, .links = links_, .axes = axes()}, resources_,
          {.dtype = config.model_dtype(),
           .reductions_in_flight = config.zero.overlap_comm ? pipeline::kReductionsInFlight : 0,
           .mlp_slice_tokens = config.mlp_slice_tokens,
           .counts_loss = rank.coordinates[Axis::Tensor] == 0,
           .leaves = config.fixes_token_sums() ? static_cast<int>(config.parallel.context_grain / config.parallel.context) : 0,
           .partitions_inputs = config.partitions_inputs()}),
      optimizer_(config.optimizer, parameters_, results_, resources_.for_updates()) {
  SequencePart part;
  if (const comm::RankAxis* context = axes()[Axis::Context]) part = context->part();
  const bool reads_callers_memory = config.compute_device() == Device::Cpu;
  if (!reads_callers_memory || part.ranks > 1)
    batches_.emplace(resources.allocator, resources.meter, std::max(rank.programs.microbatches, 1), batch.micro_batch_size,
                     model.sample, part);
  if (!reads_callers_memory) scalars_.emplace(resources.allocator, resources.meter);
}

RankAxes Worker::axes() const {
  RankAxes axes;
  for (const auto& [name, axis] : EnumNames<Axis>::table)
    if (const auto& shared = layer_axes_[static_cast<size_t>(axis)]) axes[axis] = &*shared;
  return axes;
}

std::vector<Microbatch> Worker::own_part(std::span<const Microbatch> microbatches) {
  std::vector<Microbatch> views(microbatches.begin(), microbatches.end());
  for (size_t i = 0; batches_ && i < views.size(); ++i)
    views[i] = batches_->copy(resources_.kernels, static_cast<int>(i), microbatches[i]);
  return views;
}

StepScalars Worker::on_device(const StepNumbers& numbers) {
  StepScalars scalars = step_scalars(numbers, config_.optimizer);
  if (config::sums_gradients(config_)) {
    const int64_t of_rank = batch_.micro_batch_size * batch_.gradient_accumulation_steps;
    scalars.inverse_loss_scale = static_cast<double>(batch_.train_batch_size / of_rank) / numbers.loss_scale;
  }
  return scalars_ ? scalars_->copy(resources_.kernels, scalars) : scalars;
}

Worker::Step Worker::begin_step(std::span<const Microbatch> microbatches, const StepNumbers& numbers) {
  if (static_cast<int>(microbatches.size()) != programs_.microbatches)
    throw DataError(ExitCode::Usage,
                    fmt::format("engine: {} microbatches were given, but a step has {} (gradient_accumulation_steps)",
                                microbatches.size(), programs_.microbatches));
  const SampleSpec sample = sample_of_step(config_.curriculum, sample_, numbers.step);
  for (const Microbatch& microbatch : microbatches) check(microbatch, sample, batch_.micro_batch_size);
  if (resources_.recorder) resources_.recorder->begin_step();
  return {.microbatches = own_part(microbatches), .seed = numbers.seed, .scalars = on_device(numbers)};
}

// `step` must outlive the result.
StepInputs Worker::training_inputs(const Step& step, StepResults& results) const {
  return {.microbatches = step.microbatches,
          .results = &results,
          .seed = step.seed,
          .scalars = step.scalars,
          .gradient_divisor = gradient_divisor_,
          .training = true};
}

void Worker::run_program(const Step& step, const ProgramWatch& watch) {
  timeline::Recorder* const recorder = resources_.recorder;
  results_.begin(resources_.kernels);
  parameters_.begin_step();
  if (watch.audited_microbatch) parameters_.begin_audit(*watch.audited_microbatch);
  StepInputs inputs = training_inputs(step, results_);
  inputs.recorder = recorder && recorder->recording() ? recorder : nullptr;
  inputs.memory = memory_phases();
  if (inputs.memory) inputs.memory->begin();
  inputs.search = watch.search;
  executor_.run(programs_.train, programs_.recompute, inputs);
  if (watch.audited_microbatch) parameters_.digest_totals();
  if (recorder) recorder->end_program();
}

void Worker::run_optimizer(const StepScalars& scalars) {
  optimizer_.run({.scalars = scalars,
                  .unit = gradient_divisor_,
                  .microbatches = static_cast<double>(batch_.train_batch_size / batch_.micro_batch_size),
                  .clipping = config_.gradient_clipping,
                  .check_finite = !config_.bf16.enabled || config_.bf16.check_grad_overflow});
  if (resources_.recorder) resources_.recorder->end_step();
  if (MemoryPhases* const memory = memory_phases()) memory->end();
}

// Returns the key that, with the config, determines what a step launches: arenas with the same number of bytes in use
// hand out the same views.
RepeatKey Worker::repeat_key(const Step& step) const {
  RepeatKey key{resources_.activations.used_bytes(), resources_.buffers.used_bytes(), static_cast<int64_t>(step.seed)};
  for (const Microbatch& microbatch : step.microbatches) {
    key.push_back(microbatch.first_sample);
    key.push_back(microbatch.input.elements());
  }
  return key;
}

// A recorded step runs directly, because the recording shows the time of each instruction; so does one whose memory is
// looked at.
void Worker::run_whole(const Step& step) {
  const auto work = [&] {
    run_program(step);
    run_optimizer(step.scalars);
  };
  const bool recording = resources_.recorder && resources_.recorder->recording();
  if (!resources_.repeats_steps || recording || memory_phases()) return work();
  resources_.repeats_steps->repeat(repeat_key(step), work);
}

StepLoss Worker::forward_backward(std::span<const Microbatch> microbatches, const StepNumbers& numbers,
                                  const ProgramWatch& watch) {
  run_program(begin_step(microbatches, numbers), watch);
  results_.read(resources_.kernels);
  return results_.loss();
}

// Its loss goes where evaluations put theirs, and is not used.
void Worker::recompute(const Microbatch& microbatch, const StepNumbers& numbers) {
  check(microbatch, sample_of_step(config_.curriculum, sample_, numbers.step), batch_.micro_batch_size);
  const Step step{.microbatches = own_part({&microbatch, 1}), .seed = numbers.seed, .scalars = on_device(numbers)};
  parameters_.begin_recomputation();
  executor_.run(programs_.audit, programs_.recompute, training_inputs(step, evaluation_));
}

StepOutcome Worker::update(const StepNumbers& numbers) {
  run_optimizer(on_device(numbers));
  results_.read(resources_.kernels);
  return outcome();
}

StepResult Worker::train_step(std::span<const Microbatch> microbatches, const StepNumbers& numbers) {
  run_whole(begin_step(microbatches, numbers));
  results_.read(resources_.kernels);
  return result_of(results_.loss(), outcome());
}

StepResult Worker::evaluate(int64_t microbatches, const std::function<Microbatch(int64_t)>& make, LogitsReader* logits) {
  evaluation_.begin(resources_.kernels);
  for (int64_t i = 0; i < microbatches; ++i) {
    const Microbatch microbatch = make(i);
    check(microbatch, sample_, batch_.micro_batch_size);
    const std::vector<Microbatch> batch = own_part({&microbatch, 1});
    executor_.run(programs_.evaluate, programs_.recompute,
                  {.microbatches = batch, .results = &evaluation_, .training = false, .logits = logits});
  }
  evaluation_.sum_losses_over(resources_.channels.group(Purpose::Control), resources_.channels.stream(Purpose::Control));
  evaluation_.read(resources_.kernels);
  return result_of(evaluation_.loss());
}

}  // namespace trivet
