#include "embed/sharded_optimizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "embed/agreement.h"
#include "embed/refusals.h"
#include "embed/reserved_memory.h"
#include "embed/usage.h"
#include "engine/config/optimizer_states.h"
#include "engine/lr_schedule.h"
#include "engine/weight_audit.h"
#include "pipeline/event_graph.h"

namespace trivet::embed {
namespace {

// What buffers can need at most, for each element: a whole copy of the weights and, in layout mode, integer sums and a float32
// contribution, each staged once more by a collective. Only addresses are reserved (embed/reserved_memory.h).
constexpr int64_t kReservedPerElement = 48, kReservedAtLeast = int64_t{64} << 20;

std::vector<int> ranks_of(const comm::World& world) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size(); ++rank) ranks.push_back(rank);
  return ranks;
}

// The batch is the trainer's affair; what the config has to say is the number of microbatches.
ResolvedBatch batch_of(const Config& config, int ranks) {
  BatchConfig batch = config.batch;
  if (batch.train_batch_size == 0 && batch.micro_batch_size == 0) batch.micro_batch_size = 1;
  return resolve_batch(batch, ranks, config.source);
}

std::vector<int> gradients_of(std::span<const Unit> units, std::span<const Parameter> parameters) {
  std::vector<int> counts;
  for (const Unit& unit : units)
    counts.push_back(static_cast<int>(
        std::ranges::count_if(unit.parameters, [&](int parameter) { return parameters[parameter].trainable; })));
  return counts;
}

}  // namespace

// Other ranks may be waiting for data that this one will no longer send, so they are told the reason at once.
template <typename Work>
auto ShardedOptimizer::abort_others_on_error(Work&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    world_.abort(error.what());
    throw;
  }
}

ShardedOptimizer::ShardedOptimizer(const Config& config, std::span<const Parameter> parameters, comm::World& world,
                                   const Options& options)
    : config_(config),
      world_(world),
      units_(make_units(parameters, options.bucket_elements)),
      places_(places_of(units_, parameters.size())),
      mesh_(config.parallel, world.size()),
      batch_(batch_of(config, world.size())),
      microbatches_(static_cast<int>(batch_.gradient_accumulation_steps)),
      kernels_(kernels::make_cpu_kernels(options.threads)),
      reducer_(config.zero.overlap_comm ? pipeline::kReductionsInFlight : 0),
      states_(units_.size()),
      arrivals_(gradients_of(units_, parameters)),
      arrived_(parameters.size()),
      loss_scale_(config.fp16) {
  refuse_unused(config_, parameters);
  checkpoint_group_ = world.group().subgroup(ranks_of(world), "checkpoint");
  check_agreement(config_, parameters, units_, comm::over_group(*checkpoint_group_));
  for (const Unit& unit : units_)
    for (const int i : unit.parameters)
      specs_.push_back({.name = parameters[i].name,
                        .shape = parameters[i].shape,
                        .init = parameters[i].init,
                        .decay = parameters[i].decay,
                        .trainable = parameters[i].trainable});
  make_layout();
  make_parameters();
  set_initial_values(parameters);
}

// specs_ has the parameters of one unit after those of another.
void ShardedOptimizer::make_layout() {
  std::vector<zero::NamedParameters> layers;
  size_t first = 0;
  for (const Unit& unit : units_) {
    layers.push_back({"", std::span(specs_).subspan(first, unit.parameters.size()), unit.role});
    first += unit.parameters.size();
  }
  const ZeroConfig& zero = config_.zero;
  const Sharding sharding = sharding_of(config_, mesh_);
  layout_ = zero::make_shard_layout(
      layers,
      {.shards = zero::ShardCounts(sharding.shards),
       .persistence_threshold = zero.stage >= 3 ? zero.stage3_param_persistence_threshold : 0,
       .persistence_limit = zero.stage3_model_persistence_threshold,
       .quantized = zero.stage == 3 && zero.zero_quantized_weights,
       .quantized_frozen = zero.stage == 3 && (zero.zero_quantized_weights || zero.zero_quantized_nontrainable_weights)});
  for (size_t unit = 0; unit < units_.size(); ++unit) layout_.blocks[unit].name = units_[unit].name;
}

void ShardedOptimizer::make_parameters() {
  const StageMap one_stage{.first_blocks = {0, units()}, .rank_of_stage = {0}};
  channels_ = std::make_unique<Channels>(
      world_.group(), mesh_, channel_table(config_, mesh_, one_stage, {}),
      ChannelMakers{.make_stream = [](pipeline::Queue queue, bool overlaps) {
        return overlaps ? make_thread_stream("trivet." + std::string(pipeline::queue_name(queue))) : make_inline_stream();
      }});
  int64_t elements = 0;
  for (const zero::BlockLayout& block : layout_.blocks)
    for (const zero::FlatGroup& group : block.groups) elements += group.whole_elements;
  activations_ = std::make_unique<Arena>("activations");  // the trainer's own
  buffers_ = std::make_unique<Arena>("buffers", reserved_memory(), reserved_, MemoryCategory::Buffers,
                                     kReservedAtLeast + kReservedPerElement * elements);
  results_ = std::make_unique<StepResults>(host_allocator(), meter_, microbatches_);
  resources_ = std::make_unique<RankResources>(resources());
  parameters_ = std::make_unique<zero::Parameters>(layout_, parameter_options(),
                                                   zero::Resources{.kernels = *kernels_,
                                                                   .allocator = host_allocator(),
                                                                   .meter = meter_,
                                                                   .buffers = *buffers_,
                                                                   .axes = resources_->shard_axes(),
                                                                   .collectives = resources_->collectives,
                                                                   .refused = results_->refused()});
  groups_.resize(units_.size());
  parameters_->for_each_group([&](int unit, zero::ParameterGroup& group) { groups_[unit].push_back(&group); });
  optimizer_ = std::make_unique<OptimizerStep>(config_.optimizer, *parameters_, *results_, *resources_);
}

RankResources ShardedOptimizer::resources() {
  return {.kernels = *kernels_,
          .allocator = host_allocator(),
          .meter = meter_,
          .activations = *activations_,
          .buffers = *buffers_,
          .channels = *channels_,
          .collectives = collective_options(config_.zero)};
}

zero::ParameterOptions ShardedOptimizer::parameter_options() const {
  const int reductions = config_.zero.stage >= 2 ? microbatches_ : 1;
  return {.zero_stage = config_.zero.stage,
          .dtype = config_.model_dtype(),
          .gradient_dtype = config_.gradient_dtype(),
          .fixed_point = config_.reproducible == Reproducible::Layout,
          .microbatches = microbatches_,
          .reductions = std::vector<int>(units_.size(), reductions),
          .optimizer_states = optimizer_states(config_.optimizer.type, config_.optimizer)};
}

// Values pass through a small buffer, so that no rank needs memory for all of them.
void ShardedOptimizer::set_initial_values(std::span<const Parameter> parameters) {
  constexpr int64_t kMost = int64_t{1} << 20;  // elements at a time
  parameters_->for_each_group(
      [&](int, zero::ParameterGroup& group) { group.initialize(static_cast<uint64_t>(config_.training.seed)); });
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t elements = parameters[i].shape.elements();
    for (int64_t first = 0; parameters[i].values && first < elements; first += kMost) {
      const ScopedTensor part(*buffers_, DType::Float32, {std::min(kMost, elements - first)});
      if (world_.rank() == 0) std::copy_n(parameters[i].values + first, part.view().elements(), part.view().as<float>());
      const auto stream = make_inline_stream();
      checkpoint_group_->broadcast(part, 0, *stream);
      set_owned_values(static_cast<int>(i), first, part);
    }
  }
  parameters_->publish(true);
  wait_for_gathers();
  for (int unit = 0; unit < units(); ++unit)
    if (config_.zero.stage < 3) look_at_weights(unit);
  prepare_step();
}

// `values` are the elements of the parameter from `first` on.
void ShardedOptimizer::set_owned_values(int parameter, int64_t first, ConstTensorView values) {
  const zero::OwnedRange range = group(parameter).owned();
  const zero::Intersection part =
      zero::intersection(flat(parameter).offset + first, values.elements(), range.first, range.count);
  if (part.count == 0) return;
  const ConstTensorView own = values.slice(part.first_in_parameter, part.count);
  kernels_->copy(own, range.master.slice(part.first_in_range, part.count));
  if (!range.copy_out.absent()) kernels_->copy(own, range.copy_out.slice(part.first_in_range, part.count));
}

// As in Engine: work that is still queued ends before the memory that it uses is freed.
ShardedOptimizer::~ShardedOptimizer() {
  if (channels_) channels_->close_streams();
}

// ---- where things are

const Unit& ShardedOptimizer::unit(int unit) const {
  if (unit < 0 || unit >= units()) throw usage_error("unit {} does not exist; there are {}, counted from 0", unit, units());
  return units_[unit];
}

const UnitPlace& ShardedOptimizer::place(int parameter) const {
  if (parameter < 0 || parameter >= parameters())
    throw usage_error("parameter {} does not exist; there are {}, counted from 0", parameter, parameters());
  return places_[parameter];
}

const zero::ParameterPlace& ShardedOptimizer::flat_place(int parameter) const {
  const UnitPlace& at = place(parameter);
  return layout_.blocks[at.unit].weights[at.index];
}

const zero::FlatParameter& ShardedOptimizer::flat(int parameter) const {
  const zero::ParameterPlace& at = flat_place(parameter);
  return layout_.blocks[at.block].groups[at.group].parameters[at.index];
}

ShardedOptimizer::UnitState& ShardedOptimizer::state_of(int unit) {
  this->unit(unit);
  return states_[unit];
}

// ---- weights

ConstTensorView ShardedOptimizer::weight(int parameter) const {
  const UnitPlace& at = place(parameter);
  const UnitState& state = states_[at.unit];
  if (state.weights.empty())
    throw usage_error("weight of \"{}\": its unit \"{}\" is not whole; call gather({}) before and release({}) after its use",
                      name(parameter), units_[at.unit].name, at.unit, at.unit);
  return state.weights[at.index];
}

void ShardedOptimizer::look_at_weights(int unit) { states_[unit].weights = parameters_->weights(unit); }

void ShardedOptimizer::prefetch(int unit) {
  UnitState& state = state_of(unit);
  if (state.gathered != Gathered::No) return;
  abort_others_on_error([&] { parameters_->unshard(unit); });
  state.gathered = Gathered::Started;
}

void ShardedOptimizer::gather(int unit) {
  prefetch(unit);
  UnitState& state = state_of(unit);
  if (state.users == 0) abort_others_on_error([&] { look_at_weights(unit); });
  state.gathered = Gathered::Yes;
  ++state.users;
}

void ShardedOptimizer::release(int unit) {
  UnitState& state = state_of(unit);
  if (state.gathered == Gathered::No)
    throw usage_error("release of unit \"{}\", which is not gathered; each release() needs a gather() or prefetch()",
                      units_[unit].name);
  if (state.users > 0) --state.users;
  if (state.users > 0) return;
  abort_others_on_error([&] { parameters_->reshard(unit); });
  state.gathered = Gathered::No;
  if (config_.zero.stage >= 3) state.weights.clear();
}

void ShardedOptimizer::wait_for_gathers() {
  parameters_->for_each_group([](int, zero::ParameterGroup& group) { group.wait(); });
}

void ShardedOptimizer::refuse_gathered(const char* call) const {
  for (size_t unit = 0; unit < states_.size(); ++unit)
    if (states_[unit].gathered != Gathered::No)
      throw usage_error("{} while unit \"{}\" is gathered; release it first", call, units_[unit].name);
}

void ShardedOptimizer::refuse_open_step(const char* call) const {
  if (in_step_) throw usage_error("{} after gradients of a step have arrived; call step() first", call);
  refuse_gathered(call);
}

// ---- gradients

Gradient ShardedOptimizer::gradient(int parameter) {
  const zero::FlatParameter& flat = this->flat(parameter);
  if (!flat.spec.trainable) throw usage_error("gradient of \"{}\", which is frozen", flat.name);
  if (microbatch_ == microbatches_)
    throw usage_error(
        "gradient of \"{}\" after {} microbatches, as many as a step has (gradient_accumulation_steps); call step()", flat.name,
        microbatches_);
  if (arrived_[parameter])
    throw usage_error("a second gradient of \"{}\" in one microbatch; call end_microbatch() after each backward pass",
                      flat.name);
  begin_step();
  return abort_others_on_error([&] { return group(parameter).gradient(flat_place(parameter).index); });
}

void ShardedOptimizer::add_gradient(int parameter, ConstTensorView given) {
  const zero::FlatParameter& flat = this->flat(parameter);
  if (given.elements() != flat.elements() || !is_float(given.dtype))
    throw usage_error("gradient of \"{}\" has {} elements of {}; it must have {}, of a floating-point type", flat.name,
                      given.elements(), name_of(given.dtype), flat.elements());
  const Gradient own = gradient(parameter);
  if (!own.accumulate) {
    kernels_->copy(given, own.view);
  } else if (given.dtype == own.view.dtype) {
    kernels_->add(given, own.view);
  } else {
    const ScopedTensor converted(*buffers_, own.view.dtype, own.view.shape);
    kernels_->copy(given, converted);
    kernels_->add(converted, own.view);
  }
  gradient_ready(parameter);
}

void ShardedOptimizer::gradient_ready(int parameter) {
  const int unit = unit_of(parameter);
  if (arrived_[parameter] || !in_step_)
    throw usage_error("gradient_ready of \"{}\" without gradient() before it; call both once in a microbatch", name(parameter));
  arrived_[parameter] = true;
  if (!arrivals_.arrived(unit)) return;
  abort_others_on_error([&] {
    complete_unit(unit);
    sum_complete_units();
  });
}

// In layout mode this rounds the contribution and adds it to the sums.
void ShardedOptimizer::complete_unit(int unit) { parameters_->end_contribution(unit, 1.0 / loss_scale_.value()); }

bool ShardedOptimizer::sums_this_microbatch() const {
  return (config_.zero.stage >= 2 && sharding_of(config_, mesh_).shards > 1) || microbatch_ + 1 == microbatches_;
}

void ShardedOptimizer::sum_complete_units() {
  if (!sums_this_microbatch()) return;
  while (const auto unit = arrivals_.next()) parameters_->reduce(*unit, reducer_);
}

void ShardedOptimizer::end_microbatch(double loss, int64_t count) {
  if (microbatch_ == microbatches_)
    throw usage_error(
        "end_microbatch() after {} microbatches, as many as a step has (gradient_accumulation_steps); call step()",
        microbatches_);
  begin_step();
  abort_others_on_error([&] {
    for (int unit = 0; unit < units(); ++unit)
      if (!arrivals_.is_complete(unit)) complete_unit(unit);
    arrivals_.end_microbatch();
    sum_complete_units();
  });
  double* const sums = results_->losses(microbatches_).as<double>() + 2 * int64_t{microbatch_};
  sums[0] = loss;
  sums[1] = static_cast<double>(count);
  ++microbatch_;
  arrivals_.begin_microbatch();
  std::fill(arrived_.begin(), arrived_.end(), false);
}

// ---- steps

StepNumbers ShardedOptimizer::numbers() const {
  const Betas betas = betas_at(config_.scheduler, config_.optimizer, updates_);
  return {.seed = static_cast<uint64_t>(config_.training.seed),
          .step = steps_,
          .update = updates_ + 1,
          .lr = lr_at(config_, batch_.train_batch_size, updates_),
          .beta1 = betas.beta1,
          .beta2 = betas.beta2,
          .loss_scale = loss_scale_.value()};
}

void ShardedOptimizer::begin_step() {
  if (in_step_) return;
  check_skipped_in_a_row();
  in_step_ = true;
}

// Called between steps, and not with the first gradient of the next: that one's forward gathers already belong to it, and which
// ranks a gather is over (zero/shard_axis.h, `secondary`) must not depend on when a rank's first gradient arrives.
void ShardedOptimizer::prepare_step() {
  results_->begin(*kernels_);
  parameters_->begin_step();
}

StepReport ShardedOptimizer::step() {
  if (microbatch_ != microbatches_)
    throw usage_error("step() after {} of {} microbatches (gradient_accumulation_steps); call end_microbatch() after each",
                      microbatch_, microbatches_);
  refuse_gathered("step()");
  const StepNumbers now = numbers();
  abort_others_on_error([&] {
    reducer_.finish();
    kernels_->sum_losses({.losses = results_->losses(microbatches_), .words = results_->loss_words()});
    results_->sum_losses_over(channels_->group(Purpose::Control), channels_->stream(Purpose::Control));
    optimizer_->run({.scalars = step_scalars(now, config_.optimizer),
                     .unit = 1,
                     .clipping = config_.gradient_clipping,
                     .check_finite = !config_.bf16.enabled || config_.bf16.check_grad_overflow});
    wait_for_gathers();
  });
  results_->read(*kernels_);
  const bool skipped = !results_->applied();
  finish_step(skipped);
  return {.loss = results_->loss().mean(),
          .gradient_norm = results_->grad_norm(),
          .learning_rate = now.lr,
          .skipped = skipped,
          .steps = steps_,
          .updates = updates_};
}

void ShardedOptimizer::finish_step(bool skipped) {
  in_step_ = false;
  microbatch_ = 0;
  prepare_step();
  ++steps_;
  updates_ += skipped ? 0 : 1;
  skipped_in_a_row_ = skipped ? skipped_in_a_row_ + 1 : 0;
  loss_scale_.update(skipped);
  const int64_t every = config_.audit.weights_every;
  if (every > 0 && steps_ % every == 0) audit_weights();
}

void ShardedOptimizer::check_skipped_in_a_row() const {
  const int64_t limit = config_.training.stop_after_skipped;
  if (loss_scale_.dynamic() || limit == 0 || skipped_in_a_row_ < limit) return;
  throw NumericsError(
      fmt::format("step {}: gradients were not finite {} times in a row (training.stop_after_skipped {}); lower "
                  "optimizer.params.lr or gradient_clipping and resume from a checkpoint",
                  steps_, skipped_in_a_row_, limit));
}

// Also finds a trainer that writes to weights on some ranks only.
void ShardedOptimizer::audit_weights() {
  if (config_.audit.weights_every == 0 || world_.size() == 1 || audited_step_ == steps_) return;
  abort_others_on_error([&] {
    compare_weights(mesh_, sharding_of(config_, mesh_).shards, digest_weights(*parameters_, *kernels_, Device::Cpu),
                    comm::over_group(*checkpoint_group_), world_.host(), steps_, audited_step_);
  });
  audited_step_ = steps_;
}

MemoryBytes ShardedOptimizer::measured_memory() const {
  MemoryBytes bytes = meter_.peak();
  bytes[MemoryCategory::Buffers] += buffers_->peak_bytes();
  return bytes;
}

}  // namespace trivet::embed
