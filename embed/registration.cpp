// The part of ShardedOptimizer that takes the trainer's parameters: their layout, the memory for them, their initial values.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/log.h"
#include "embed/agreement.h"
#include "embed/refusals.h"
#include "embed/reserved_memory.h"
#include "embed/sharded_optimizer.h"
#include "engine/config/optimizer_traits.h"
#include "engine/config/refuse.h"
#include "pipeline/event_graph.h"

namespace trivet::embed {
namespace {

// The bytes that buffers need at most, per element: a copy of the weights and, in layout mode, integer sums and a
// float32 contribution, each also staged by a collective. Only addresses are reserved (embed/reserved_memory.h).
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

// Memory for the losses of all microbatches of a step is allocated at once.
int microbatches_of(const ResolvedBatch& batch, const Config& config) {
  constexpr int64_t kMost = int64_t{1} << 20;
  if (batch.gradient_accumulation_steps > kMost)
    config::refuse(
        config, "gradient_accumulation_steps",
        fmt::format("{} is not accepted for an embedded optimizer; use at most {}", batch.gradient_accumulation_steps, kMost));
  return static_cast<int>(batch.gradient_accumulation_steps);
}

// Before anything is made of the config, because a mesh with other axes may not fit these ranks.
const Config& accepted(const Config& config, std::span<const Parameter> parameters) {
  refuse_unused(config, parameters);
  return config;
}

std::vector<int> gradients_of(std::span<const Unit> units, std::span<const Parameter> parameters) {
  std::vector<int> counts;
  for (const Unit& unit : units)
    counts.push_back(static_cast<int>(
        std::ranges::count_if(unit.parameters, [&](int parameter) { return parameters[parameter].trainable; })));
  return counts;
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(const Config& config, std::span<const Parameter> parameters, comm::World& world,
                                   const Options& options)
    : config_(accepted(config, parameters)),
      world_(world),
      units_(make_units(parameters, options.bucket_elements)),
      places_(places_of(units_, parameters.size())),
      mesh_(config.parallel, world.size()),
      batch_(batch_of(config, world.size())),
      microbatches_(microbatches_of(batch_, config)),
      kernels_(kernels::make_cpu_kernels(options.threads)),
      reducer_(config.zero.overlap_comm ? pipeline::kReductionsInFlight : 0),
      states_(units_.size()),
      arrivals_(gradients_of(units_, parameters)),
      gradients_(parameters.size()),
      control_(config_, batch_) {
  if (const std::vector<std::string> unused = unused_keys(config); world.rank() == 0 && !unused.empty())
    Log().info(fmt::format("embed: without effect in a trainer with a model of its own: {}", fmt::join(unused, ", ")));
  checkpoint_group_ = world.group().subgroup(ranks_of(world), "checkpoint");
  check_agreement(config_, parameters, units_, comm::over_group(*checkpoint_group_));
  for (const Unit& unit : units_)
    for (const int i : unit.parameters)
      specs_.push_back({.name = parameters[i].name,
                        .shape = parameters[i].shape,
                        .init = parameters[i].init,
                        .decay = parameters[i].decay,
                        .trainable = parameters[i].trainable});
  make_layout();  // its refusals are the same on all ranks
  try {
    abort_others_on_error([&] {
      make_parameters();
      set_initial_values(parameters);
    });
  } catch (...) {
    close_streams();  // the destructor does not run
    throw;
  }
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
  optimizer_ = std::make_unique<OptimizerStep>(config_.optimizer, *parameters_, *results_, resources_->for_updates());
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
          .optimizer_states = optimizer_states(config_.optimizer)};
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

ShardedOptimizer::~ShardedOptimizer() { close_streams(); }

// Waits as Engine does, so that queued work ends before the memory that it uses is freed.
void ShardedOptimizer::close_streams() {
  if (channels_) channels_->close_streams();
}

}  // namespace trivet::embed
