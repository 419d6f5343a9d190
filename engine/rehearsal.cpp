#include "engine/rehearsal.h"

#include "engine/checkpoint/async_saver.h"
#include "engine/checkpoint_pieces.h"

namespace trivet {
namespace {

std::unique_ptr<comm::ProcessGroup> alone(const std::string& name) { return comm::make_meta_group(0, 1, name); }

FilePlan file_plan(const zero::offload::FileStore& files) {
  return {files.allocated_bytes(), files.bytes_read(), files.bytes_written()};
}

void add(const comm::Traffic& traffic, comm::Traffic& sum) {
  sum.operations += traffic.operations;
  sum.bytes_sent += traffic.bytes_sent;
}

std::unique_ptr<Stream> make_stream(const RehearsalParts& parts, pipeline::Queue queue, bool overlaps) {
  return parts.make_stream ? parts.make_stream(queue, overlaps) : make_inline_stream();
}

}  // namespace

Rehearsal::Rehearsal(const Plan& plan, const RankPlan& rank, const model::Model& model, const RehearsalParts& parts)
    : plan_(plan),
      rank_(rank),
      model_(model),
      own_kernels_(parts.kernels ? nullptr : kernels::make_meta_kernels()),
      kernels_(parts.kernels ? *parts.kernels : *own_kernels_),
      world_(comm::make_meta_group(world_rank(), plan.mesh.size(), "world")),
      groups_(make_groups(*world_, plan.mesh, plan.stages, plan.tied_ranks(), {.alone = alone, .place = parts.place})),
      control_(make_stream(parts, pipeline::Queue::Meet, false)),
      gather_(make_stream(parts, pipeline::Queue::Gather, plan.config.zero.overlap_comm)),
      reduce_(make_stream(parts, pipeline::Queue::Reduce, plan.config.zero.overlap_comm)),
      tensor_(make_stream(parts, pipeline::Queue::Tensor, plan.mesh.size(Axis::Tensor) > 1)),
      host_kernels_(kernels::make_meta_kernels()),
      host_side_(*host_kernels_),
      weight_files_(zero::offload::make_meta_file_store()),
      state_files_(zero::offload::make_meta_file_store()),
      worker_(plan.config, plan.stages, rank, model, plan.batch.micro_batch_size, resources(parts)) {}

WorkerResources Rehearsal::resources(const RehearsalParts& parts) {
  return {.kernels = kernels_,
          .allocator = meta_allocator(),
          .meter = meter_,
          .activations = activations_,
          .buffers = buffers_,
          .groups = groups_,
          .control_stream = *control_,
          .gather_stream = *gather_,
          .reduce_stream = *reduce_,
          .tensor_stream = *tensor_,
          .make_link_stream = [parts] { return make_stream(parts, pipeline::Queue::Send, true); },
          .recorder = parts.recorder,
          .weight_files = weight_files_.get(),
          .state_files = state_files_.get(),
          .host_side = plan_.config.uses_host_side() ? &host_side_ : nullptr};
}

int Rehearsal::world_rank() const {
  Mesh::Coordinates coordinates{};
  coordinates[static_cast<size_t>(Axis::Pipeline)] = rank_.pipeline_rank;
  coordinates[static_cast<size_t>(Axis::Tensor)] = rank_.tensor_rank;
  return plan_.mesh.rank_at(coordinates);
}

// A microbatch of the planned shape that has no memory.
Microbatch Rehearsal::microbatch() const {
  const Shape shape{plan_.batch.micro_batch_size, model_.sequence_length};
  return {{nullptr, DType::Int32, shape}, {nullptr, DType::Int32, shape}, 0};
}

void Rehearsal::train_step() {
  const std::vector<Microbatch> microbatches(static_cast<size_t>(plan_.batch.gradient_accumulation_steps), microbatch());
  worker_.train_step(microbatches, {});
}

void Rehearsal::measure(RankPlan& rank) {
  train_step();
  count_step(rank);
  worker_.evaluate(1, [&](int64_t) { return microbatch(); });
  worker_.parameters().initialize(0);  // stages frozen weights, too
  if (plan_.config.compute_device() == Device::Cuda) add_backend_memory(rank);
  rank.activation_arena_bytes = activations_.peak_bytes();
  rank.buffer_arena_bytes = buffers_.peak_bytes();
  rank.host_staging_bytes = host_side_.staging().peak_bytes();
  rank.host_memory = host_side_.meter().peak();
  rank.host_memory[MemoryCategory::Buffers] += rank.host_staging_bytes;
  rank.memory = meter_.peak();
  rank.memory[MemoryCategory::Activations] += activations_.peak_bytes();
  rank.memory[MemoryCategory::Buffers] += buffers_.peak_bytes() + staging_bytes();
}

void Rehearsal::count_step(RankPlan& rank) const {
  rank.step_counters = kernels_.counters();
  rank.weight_file = file_plan(*weight_files_);
  rank.state_file = file_plan(*state_files_);
  rank.gather = groups_.gather->traffic();
  rank.reduce = groups_.reduce->traffic();
  rank.tensor = groups_.tensor->traffic();
  if (groups_.tensor_reduce) add(groups_.tensor_reduce->traffic(), rank.tensor);
  for (const auto& [key, link] : groups_.links) add(link->traffic(), rank.pipeline);
}

// The memory that a GPU's backend takes for itself: scratch memory of kernels, and of groups that sum floats in rank order.
void Rehearsal::add_backend_memory(RankPlan& rank) {
  rank.workspace_bytes = kernels_.counters().workspace_bytes;
  meter_.add(MemoryCategory::Buffers, rank.workspace_bytes);
  const auto add_group = [&](const comm::ProcessGroup* group) {
    if (group && group->size() > 1) meter_.add(MemoryCategory::Buffers, comm::kDeviceGroupBytes);
  };
  for (const Groups::Group* group : {&groups_.control, &groups_.data, &groups_.gather, &groups_.reduce, &groups_.part,
                                     &groups_.tensor, &groups_.tensor_reduce})
    add_group(group->get());
  for (const auto& [key, link] : groups_.links) add_group(link.get());
  for (const auto& [key, tie] : groups_.ties) add_group(tie.get());
  const bool sums_gradients = plan_.config.reproducible == Reproducible::Run;
  const auto add_staging = [&](const comm::ProcessGroup* group, bool sums_floats) {
    if (group && group->size() > 1 && sums_floats) meter_.add(MemoryCategory::Buffers, comm::kDeviceStagingBytes);
  };
  add_staging(groups_.reduce.get(), sums_gradients);
  add_staging(groups_.tensor.get(), true);
  add_staging(groups_.tensor_reduce.get(), sums_gradients && plan_.config.parallel.sequence_parallel);
}

// The size of the staging buffer of asynchronous saves.
int64_t Rehearsal::staging_bytes() {
  if (plan_.config.checkpoint.directory.empty() || plan_.config.compute_device() != Device::Cpu) return 0;
  return checkpoint::AsyncSaver::staging_bytes_for(checkpoint_pieces(worker_.parameters(), plan_.config.optimizer, 0));
}

}  // namespace trivet
