#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/printable.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/converted_source.h"
#include "engine/checkpoint_pieces.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "engine/config/mistakes.h"
#include "engine/config/refuse.h"
#include "engine/divergence.h"
#include "engine/gradient_audit.h"
#include "engine/host_pieces.h"
#include "engine/memory_advice.h"
#include "engine/optimizer/lr_schedule.h"
#include "engine/resumed_config.h"
#include "engine/same_on_all_ranks.h"
#include "engine/weight_audit.h"

namespace trivet {
namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

const ParameterSpec* find_parameter(const model::Model& model, const std::string& name) {
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (const ParameterSpec& spec : model.layers[layer]->parameters())
      if (spec.tied_to.empty() && model.names[layer] + "." + spec.name == name) return &spec;
  return nullptr;
}

// Empty: all.
std::set<comm::Operation> logged_operations(const CommsLoggerConfig& config) {
  std::set<comm::Operation> operations;
  if (config.prof_all) return operations;
  for (const auto& [name, operation] : EnumNames<comm::Operation>::table)
    if (std::ranges::find(config.prof_ops, name) != config.prof_ops.end()) operations.insert(operation);
  return operations;
}

}  // namespace

Engine::Engine(Plan plan, model::Model model, comm::World& world, const EngineOptions& options)
    : plan_(std::move(plan)), model_(std::move(model)), world_(world), control_(plan_.config, plan_.batch) {
  if (world.size() != plan_.mesh.size())
    throw ConfigError(fmt::format("engine: the plan is for {} ranks, {} were started; make the plan with world.size()",
                                  plan_.mesh.size(), world.size()));
  check_steps_are_known(plan_.config);
  checkpoint_group_ = world.group().subgroup(all_ranks(world.size()), "checkpoint");
  refuse_different_devices();
  open_backend(options);
  make_channels();
  activations_ = std::make_unique<Arena>("activations", backend_->allocator(), meter_, MemoryCategory::Activations,
                                         rank_plan().activation_arena_bytes);
  buffers_ = std::make_unique<Arena>("buffers", backend_->allocator(), meter_, MemoryCategory::Buffers,
                                     rank_plan().buffer_arena_bytes);
  memory_phases_ = std::make_unique<MemoryPhases>(meter_, *activations_, *buffers_);
  offload_ = std::make_unique<OffloadPlaces>(plan_.config, OffloadOptions{.planned = rank_plan(),
                                                                          .world_rank = world.rank(),
                                                                          .files = *options.files,
                                                                          .backend = *backend_,
                                                                          .kernels = kernels(),
                                                                          .host_threads = options.threads});
  worker_ = std::make_unique<Worker>(plan_.config, plan_.stages, rank_plan(), model_, plan_.batch, resources());
  if (options.memory_taken) options.memory_taken();
  parameters().initialize(static_cast<uint64_t>(plan_.config.training.seed));
}

void Engine::open_backend(const EngineOptions& options) {
  backend_ =
      make_backend(plan_.config.compute_device(), {.world = *checkpoint_group_,
                                                   .meter = meter_,
                                                   .threads = options.threads,
                                                   .local_rank = options.local_rank >= 0 ? options.local_rank : world_.rank(),
                                                   .workspace_bytes = rank_plan().workspace_bytes});
  if (options.observer) observed_kernels_ = kernels::make_observed_kernels(backend_->kernels(), *options.observer);
  check_fits(plan_, model_, world_.rank(), backend_->free_bytes(), backend_->description());
}

void Engine::wait_for_collectives() {
  for (const Channel& channel : channels_->all())
    if (channel.stream) channel.stream->synchronize();
}

void Engine::make_channels() {
  recorder_ = std::make_unique<timeline::Recorder>(backend_->make_clock());
  const auto make_stream = [this](pipeline::Queue queue, bool overlaps) {
    return recorder_->observe(backend_->make_stream(queue, overlaps), queue, overlaps);
  };
  if (plan_.config.comms_logger.logs())
    operation_log_ =
        std::make_unique<timeline::OperationLog>(backend_->make_clock(), logged_operations(plan_.config.comms_logger));
  const auto place = [this](Group host) {
    Group group = backend_->place(std::move(host));
    return operation_log_ ? timeline::make_logged_group(std::move(group), *operation_log_) : std::move(group);
  };
  channels_ = std::make_unique<Channels>(world_.group(), plan_.mesh, plan_.channels(),
                                         ChannelMakers{.place = place, .make_stream = make_stream});
}

RankResources Engine::resources() {
  const bool repeats_steps = plan_.step_graph.used && !observed_kernels_;
  return {.kernels = kernels(),
          .allocator = backend_->allocator(),
          .meter = meter_,
          .activations = *activations_,
          .buffers = *buffers_,
          .channels = *channels_,
          .collectives = collective_options(plan_.config.zero),
          .offload = offload_->resources(),
          .recorder = recorder_.get(),
          .memory = &watched_memory_,
          .repeats_steps = repeats_steps ? backend_.get() : nullptr};
}

// "auto" may find a GPU on one host and none on another.
void Engine::refuse_different_devices() {
  if (!plan_.found_device || world_.size() == 1) return;
  const auto found = comm::over_group(*checkpoint_group_).gather(*plan_.found_device);
  for (size_t rank = 1; rank < found.size(); ++rank)
    if (found[rank] != found[0])
      throw CommError(ExitCode::RanksDisagree,
                      fmt::format("device: \"auto\" is {} on rank 0 and {} on rank {}; set device to \"cpu\" or \"cuda\"",
                                  found[0], found[rank], rank));
}

// Gathers of the last step may still be running, here and on other ranks; they must end before the memory that they use is
// freed. A rank that leaves with an error does not wait for other ranks.
Engine::~Engine() {
  if (std::uncaught_exceptions() == exceptions_at_start_) try {
      backend_->close();
    } catch (const std::exception&) {  // another rank failed, which the world reports
    }
  if (channels_) channels_->close_streams();
}

void Engine::watch_memory(bool on) { watched_memory_ = on ? memory_phases_.get() : nullptr; }

MemoryBytes Engine::measured_memory() const { return meter_.peak(); }
MemoryBytes Engine::measured_host_memory() const { return offload_->host_memory(); }

// Other ranks may be waiting for data that this one will no longer send, so they are told the reason at once.
template <typename Work>
auto Engine::abort_others_on_error(Work&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    world_.abort(error.what());
    throw;
  }
}

// Keeps the step's numbers, so that search_last_step() can repeat the step.
StepNumbers Engine::begin_step() {
  check_skipped_in_a_row();
  if (plan_.config.audit.every_steps > 0 && !microbatch_source_)
    throw ConfigError(
        fmt::format("{}: audit.every_steps: {} needs microbatches of other ranks; call "
                    "Engine::set_microbatch_source(), or use 0",
                    plan_.config.source, plan_.config.audit.every_steps));
  last_numbers_ = control_.numbers();
  return *last_numbers_;
}

StepResult Engine::train_batch(std::span<const Microbatch> microbatches) {
  const StepNumbers numbers = begin_step();
  const StepResult result = abort_others_on_error([&] {
    if (!audits(numbers)) return worker_->train_step(microbatches, numbers);
    const StepLoss loss = audited_program(microbatches, numbers);
    return result_of(loss, worker_->update(numbers));
  });
  keep_loss(result.loss, result.targets);
  finish_step({result.grad_norm, result.skipped, result.targets == 0});
  return result;
}

StepLoss Engine::forward_backward(std::span<const Microbatch> microbatches) {
  const StepNumbers numbers = begin_step();
  const StepLoss loss = abort_others_on_error([&] {
    return audits(numbers) ? audited_program(microbatches, numbers) : worker_->forward_backward(microbatches, numbers);
  });
  keep_loss(loss.mean(), loss.targets);
  return loss;
}

StepOutcome Engine::step() {
  const StepOutcome outcome = abort_others_on_error([&] { return worker_->update(control_.numbers()); });
  finish_step(outcome);
  return outcome;
}

std::optional<NotFinite> Engine::search_last_step(std::span<const Microbatch> microbatches) {
  if (!last_numbers_) throw std::logic_error("engine: search_last_step: this engine has done no step");
  NotFiniteSearch search(model_, kernels(), world_.rank());
  abort_others_on_error([&] { worker_->forward_backward(microbatches, *last_numbers_, {.search = &search}); });
  return search.found();
}

// A step without targets has no loss.
void Engine::keep_loss(double loss, int64_t targets) {
  if (targets > 0) last_loss_ = loss;
}

void Engine::finish_step(const StepOutcome& outcome) {
  control_.finish_step(outcome.skipped, outcome.without_targets);
  const int64_t every = plan_.config.audit.weights_every;
  if (every > 0 && progress().steps % every == 0) audit_weights();
}

bool Engine::audits(const StepNumbers& numbers) const {
  const int64_t every = plan_.config.audit.every_steps;
  return every > 0 && (numbers.step + 1) % every == 0;
}

// Runs the program of a step and compares its gradients (engine/gradient_audit.h).
StepLoss Engine::audited_program(std::span<const Microbatch> microbatches, const StepNumbers& numbers) {
  const AuditChoice choice =
      choose_audit(numbers.seed, numbers.step, rank_plan().programs.microbatches, plan_.mesh.size(Axis::Data));
  const StepLoss loss = worker_->forward_backward(microbatches, numbers, {.audited_microbatch = choice.microbatch});
  const comm::Participants all_ranks = comm::over_group(*checkpoint_group_);
  audit_gradients({.mesh = plan_.mesh,
                   .holders = plan_.mesh.size(equal_over(Sharing::Dense)) /
                              (plan_.config.zero.stage > 0 ? plan_.shards(Sharing::Dense) : 1),
                   .choice = choice,
                   .step = numbers.step + 1,
                   .host = world_.host(),
                   .all_ranks = all_ranks,
                   .recompute = [&](int distance) { return recompute_of_other(numbers, choice.microbatch, distance); },
                   .compare_weights = [this] { compare_weights_of_ranks(); }});
  return loss;
}

std::vector<zero::GradientDigest> Engine::recompute_of_other(const StepNumbers& numbers, int microbatch, int distance) {
  const int data_ranks = plan_.mesh.size(Axis::Data);
  const int of_rank = (plan_.mesh.coordinate_of(world_.rank(), Axis::Data) + distance) % data_ranks;
  worker_->recompute(microbatch_source_(numbers.step, int64_t{microbatch} * data_ranks + of_rank), numbers);
  return parameters().gradient_digests();
}

void Engine::compare_weights_of_ranks() {
  wait_for_gathers();
  compare_weights(plan_.mesh, plan_.shards(Sharing::Dense), digest_weights(parameters(), kernels(), backend_->device()),
                  comm::over_group(*checkpoint_group_), world_.host(), progress().steps, audited_step_);
}

void Engine::audit_weights() {
  if (plan_.config.audit.weights_every == 0 || world_.size() == 1 || audited_step_ == progress().steps) return;
  compare_weights_of_ranks();
  audited_step_ = progress().steps;
}

void Engine::check_skipped_in_a_row() const {
  control_.check_skipped_in_a_row(
      fmt::format("{} and {}", cure_of_overflows(plan_.config, progress().updates),
                  plan_.config.checkpoint.directory.empty() ? "start over" : "resume from a checkpoint"));
}

StepResult Engine::evaluate(std::span<const Microbatch> microbatches) {
  return evaluate(static_cast<int64_t>(microbatches.size()), [&](int64_t i) { return microbatches[i]; });
}

StepResult Engine::evaluate(int64_t microbatches, const std::function<Microbatch(int64_t)>& make, LogitsReader* logits) {
  return abort_others_on_error([&] { return worker_->evaluate(microbatches, make, logits); });
}

// ---- checkpoints

std::vector<checkpoint::Piece> Engine::pieces_to_save() { return checkpoint_pieces(parameters(), plan_.config.optimizer); }

std::vector<checkpoint::Piece> Engine::pieces_to_load() {
  return checkpoint_pieces_to_load(parameters(), plan_.config.optimizer);
}

// Gathers that are still running read memory that is about to be written.
void Engine::wait_for_gathers() {
  parameters().for_each_group([](int, zero::ParameterGroup& group) { group.wait(); });
}

// Ranks in different working directories, or with local disks, may find different checkpoints at the same path.
void Engine::refuse_different_checkpoints(const checkpoint::LoadedStep& step) {
  if (world_.size() == 1) return;
  const std::string content = fmt::format("step {} of run {}, xxh3 {}", step.step(), step.run_id(), step.manifest().xxh3);
  const std::string path = std::filesystem::absolute(step.directory() + "/" + checkpoint::kManifestName).string();
  check_same_on_all_ranks({{"resume", path, content}}, world_);
}

void Engine::restore(const checkpoint::LoadedStep& step) {
  refuse_different_checkpoints(step);
  refuse_another_run(plan_.config, plan_.batch, step);
  load_values(step, false);
  control_.restore(step.run_state());
  audited_step_ = progress().steps;  // all ranks loaded the same weights
}

void Engine::load_weights(const checkpoint::TensorSource& weights) {
  if (progress().steps != 0) throw std::logic_error("engine: initial weights after the first step");
  load_values(weights, true);
}

void Engine::load_values(const checkpoint::TensorSource& stored, bool weights_alone) {
  const checkpoint::ConvertedSource source(stored);  // frozen weights are stored in the dtype of the run that saved them
  wait_for_gathers();
  load_pieces(parameters(), plan_.config.optimizer,
              {.read = [&](std::span<const checkpoint::Piece> wanted) { read_pieces(source, wanted); },
               .read_on_host = [&](std::span<const checkpoint::Piece> wanted) { source.read(wanted); },
               .kernels = kernels(),
               .buffers = *buffers_,
               .staging = offload_->resources().staging,
               .weights_alone = weights_alone});
  parameters().publish(true);
}

// Reads through host memory if the host cannot reach the device's.
void Engine::read_pieces(const checkpoint::TensorSource& source, std::span<const checkpoint::Piece> wanted) {
  HostPieces on_host(*backend_, {wanted.begin(), wanted.end()}, HostPieces::Contents::None);
  source.read(on_host.pieces());
  on_host.write_back(wanted);
}

void Engine::save(const std::string& directory, const std::string& tokenizer) {
  audit_weights();
  const auto ranks = comm::over_group(*checkpoint_group_);
  checkpoint::CheckpointStore store(real_file_system(), {.directory = directory, .run_id = "engine"});
  const HostPieces on_host(*backend_, pieces_to_save());
  checkpoint::RunState now = state();
  now.tokenizer = tokenizer;
  store.save(
      {.step = progress().steps, .pieces = on_host.pieces(), .state = to_text(now), .config = explain_as_json(plan_.config)},
      ranks);
}

bool Engine::load(const std::string& directory) {
  const auto ranks = comm::over_group(*checkpoint_group_);
  checkpoint::CheckpointStore store(real_file_system(), {.directory = directory, .run_id = "engine"});
  const auto newest = store.open_latest(ranks);
  if (newest) restore(*newest);
  return newest.has_value();
}

// Each element comes from the rank that would write it to a checkpoint; the other ranks contribute zeros.
std::vector<float> Engine::weight(const std::string& name) {
  const ParameterSpec* spec = find_parameter(model_, name);
  if (!spec) throw std::logic_error(fmt::format("engine: no parameter is named \"{}\"", name));
  std::vector<float> values(spec->shape.elements(), 0.0f);
  const TensorView all{values.data(), DType::Float32, {spec->shape.elements()}};
  std::vector<checkpoint::Piece> pieces = pieces_to_save();
  std::erase_if(pieces, [&](const checkpoint::Piece& piece) { return piece.name != name; });
  const HostPieces on_host(*backend_, std::move(pieces));
  const auto host_kernels = kernels::make_cpu_kernels(1);
  for (const checkpoint::Piece& piece : on_host.pieces()) copy_piece(*host_kernels, piece, all);
  const auto stream = make_inline_stream();
  checkpoint_group_->all_reduce(all, comm::ReduceOp::Sum, *stream);
  return values;
}

}  // namespace trivet
