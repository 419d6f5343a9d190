#include "engine/rehearsal.h"

#include <algorithm>

#include "engine/checkpoint/async_saver.h"
#include "engine/checkpoint/memory_room.h"
#include "engine/checkpoint_pieces.h"
#include "engine/config/curriculum.h"
#include "model/dropped_tokens.h"

namespace trivet {
namespace {

// The line of the plan with this name, which is added if it is new.
comm::Traffic& line_of(RankPlan& rank, const std::string& name) {
  const auto found = std::ranges::find(rank.traffic, name, [](const auto& line) { return line.first; });
  return found != rank.traffic.end() ? found->second : rank.traffic.emplace_back(name, comm::Traffic{}).second;
}

void add(const comm::Traffic& traffic, comm::Traffic& sum) {
  sum.operations += traffic.operations;
  sum.bytes_sent += traffic.bytes_sent;
}

ChannelMakers makers_of(const RehearsalParts& parts) {
  ChannelMakers makers{.single = [](const std::string& name) { return comm::make_meta_group(0, 1, name); },
                       .place = parts.place};
  if (parts.make_stream) makers.make_stream = parts.make_stream;
  return makers;
}

// A reader of all logits, to count the memory that a layer takes to show them.
class WantsAllLogits final : public LogitsReader {
 public:
  int64_t wants(const Microbatch& microbatch) const override { return microbatch.targets.shape[0]; }
  void read(kernels::Kernels&, const Microbatch&, int64_t, ConstTensorView, int64_t) override {}
};

}  // namespace

Rehearsal::Rehearsal(const Plan& plan, const RankPlan& rank, const model::Model& model, const RehearsalParts& parts)
    : plan_(plan),
      rank_(rank),
      model_(model),
      own_kernels_(parts.kernels ? nullptr : kernels::make_meta_kernels()),
      kernels_(parts.kernels ? *parts.kernels : *own_kernels_),
      world_(comm::make_meta_group(plan.mesh.rank_at(rank.coordinates), plan.mesh.size(), "world")),
      channels_(*world_, plan.mesh, plan.channels(), makers_of(parts)),
      offload_(plan.config),
      worker_(plan.config, plan.stages, rank, model, plan.batch, resources(parts)) {}

RankResources Rehearsal::resources(const RehearsalParts& parts) {
  return {.kernels = kernels_,
          .allocator = meta_allocator(),
          .meter = meter_,
          .activations = activations_,
          .buffers = buffers_,
          .channels = channels_,
          .collectives = collective_options(plan_.config.zero),
          .offload = offload_.resources(),
          .recorder = parts.recorder};
}

// A microbatch of the planned shape that has no memory.
Microbatch Rehearsal::microbatch() const { return model_.sample.without_memory(plan_.batch.micro_batch_size); }

Microbatch Rehearsal::microbatch_of(const StepNumbers& numbers) const {
  return sample_of_step(plan_.config.curriculum, model_.sample, numbers.step).without_memory(plan_.batch.micro_batch_size);
}

// A step of the rest of the run, after all warm-ups.
StepNumbers Rehearsal::longest_step() const {
  const CurriculumConfig& curriculum = plan_.config.curriculum;
  int64_t step = curriculum.enabled ? steps_of_new_difficulty(curriculum).back() - 1 : 0;
  if (const model::TokenDrop* drop = token_drop()) step = std::max(step, model::steps_of_new_kept_tokens(*drop).back());
  return {.step = step};
}

void Rehearsal::train_step() { train_step(longest_step()); }

void Rehearsal::train_step(const StepNumbers& numbers) {
  const std::vector<Microbatch> microbatches(plan_.batch.gradient_accumulation_steps, microbatch_of(numbers));
  worker_.train_step(microbatches, numbers);
}

// Smaller tensors may fit between others in another way, so that the arenas need more for shorter sequences, or for blocks that
// compute fewer tokens.
void Rehearsal::train_earlier_steps() {
  for (const int64_t step : steps_of_new_shapes()) train_step({.step = step});
}

// The first step of each length of the sequences, and of each number of tokens that blocks compute.
std::vector<int64_t> Rehearsal::steps_of_new_shapes() const {
  std::vector<int64_t> steps;
  if (plan_.config.curriculum.enabled)
    for (const int64_t step : steps_of_new_difficulty(plan_.config.curriculum)) steps.push_back(step - 1);
  if (const model::TokenDrop* drop = token_drop())
    for (const int64_t step : model::steps_of_new_kept_tokens(*drop)) steps.push_back(step);
  return steps;
}

// Null: blocks compute all tokens.
const model::TokenDrop* Rehearsal::token_drop() const {
  const auto& description = model_.description;
  return description && description->token_drop.enabled ? &description->token_drop : nullptr;
}

void Rehearsal::audited_step(const StepNumbers& numbers) {
  const std::vector<Microbatch> microbatches(plan_.batch.gradient_accumulation_steps, microbatch_of(numbers));
  worker_.forward_backward(microbatches, numbers, {.audited_microbatch = 0});
  worker_.recompute(microbatch_of(numbers), numbers);
  worker_.update(numbers);
}

void Rehearsal::audited_steps() {
  audited_step(longest_step());
  for (const int64_t step : steps_of_new_shapes()) audited_step({.step = step});
}

void Rehearsal::measure(RankPlan& rank) {
  train_step();
  count_step(rank);
  WantsAllLogits logits;
  worker_.evaluate(
      1, [&](int64_t) { return microbatch(); }, &logits);
  train_earlier_steps();
  if (!rank.programs.audit.empty()) audited_steps();
  worker_.parameters().initialize(0);  // stages frozen weights, too
  if (plan_.config.compute_device() == Device::Cuda) add_backend_memory(rank);
  rank.activation_arena_bytes = activations_.peak_bytes();
  rank.buffer_arena_bytes = buffers_.peak_bytes();
  rank.host_staging_bytes = offload_.host_staging_bytes();
  rank.host_memory = offload_.host_memory();
  rank.host_memory[MemoryCategory::Buffers] += rank.host_staging_bytes;
  rank.host_memory[MemoryCategory::Activations] = offload_.host_activation_bytes();
  rank.memory = meter_.peak();
  rank.memory[MemoryCategory::Activations] += activations_.peak_bytes();
  rank.memory[MemoryCategory::Buffers] += buffers_.peak_bytes() + staging_bytes();
  rank.checkpoint_bytes = checkpoint::bytes_of(checkpoint_pieces(worker_.parameters(), plan_.config.optimizer));
}

void Rehearsal::count_step(RankPlan& rank) const {
  rank.step_counters = kernels_.counters();
  rank.weight_file = offload_.weight_file();
  rank.state_file = offload_.state_file();
  rank.offloaded_bytes = worker_.offloaded_bytes();
  rank.traffic.clear();
  for (const ChannelSpec& spec : plan_.channels())
    if (!spec.traffic.empty()) line_of(rank, spec.traffic);  // also without a group of this rank
  for (const Channel& channel : channels_.all())
    if (!channel.spec.traffic.empty()) add(channel.group->traffic(), line_of(rank, channel.spec.traffic));
}

// The memory that a GPU's backend takes for itself: scratch memory of kernels, and of groups that sum floats in rank order.
void Rehearsal::add_backend_memory(RankPlan& rank) {
  rank.workspace_bytes = kernels_.counters().workspace_bytes;
  meter_.add(MemoryCategory::Buffers, rank.workspace_bytes);
  for (const Channel& channel : channels_.all()) {
    if (channel.group->size() == 1) continue;
    meter_.add(MemoryCategory::Buffers, comm::kDeviceGroupBytes + (channel.spec.sums_floats ? comm::kDeviceStagingBytes : 0));
  }
}

// The size of the staging buffers of asynchronous saves: one for those on disk, one for those in memory.
int64_t Rehearsal::staging_bytes() {
  const CheckpointConfig& config = plan_.config.checkpoint;
  if (config.directory.empty() || plan_.config.compute_device() != Device::Cpu) return 0;
  return (config.saves_to_memory() ? 2 : 1) *
         checkpoint::AsyncSaver::staging_bytes_for(checkpoint_pieces(worker_.parameters(), plan_.config.optimizer));
}

}  // namespace trivet
