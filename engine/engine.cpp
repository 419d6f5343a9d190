#include "engine/engine.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint_pieces.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "engine/lr_schedule.h"

namespace trivet {
namespace {

std::unique_ptr<comm::ProcessGroup> data_group(comm::World& world, const Mesh& mesh, const std::string& name) {
  return world.group().subgroup(mesh.group_of(world.rank(), Axis::Data), name);
}

std::unique_ptr<Stream> communication_stream(const Config& config, const std::string& name) {
  return config.zero.overlap_comm ? make_thread_stream(name) : make_inline_stream();
}

}  // namespace

Engine::Engine(Plan plan, model::Model model, comm::World& world, const EngineOptions& options)
    : plan_(std::move(plan)), model_(std::move(model)), world_(world), loss_scale_(plan_.config.fp16) {
  if (world.size() != plan_.mesh.size())
    throw ConfigError(fmt::format("engine: the plan is for {} ranks, {} were started; make the plan with world.size()",
                                  plan_.mesh.size(), world.size()));
  kernels_ = kernels::make_cpu_kernels(options.threads);
  control_group_ = data_group(world, plan_.mesh, "data");
  gather_group_ = data_group(world, plan_.mesh, "data.gather");
  reduce_group_ = data_group(world, plan_.mesh, "data.reduce");
  checkpoint_group_ = data_group(world, plan_.mesh, "checkpoint");
  control_stream_ = make_inline_stream();
  gather_stream_ = communication_stream(plan_.config, "trivet.gather");
  reduce_stream_ = communication_stream(plan_.config, "trivet.reduce");
  activations_ = std::make_unique<Arena>("activations", host_allocator(), meter_, MemoryCategory::Activations,
                                         plan_.activation_arena_bytes);
  buffers_ = std::make_unique<Arena>("buffers", host_allocator(), meter_, MemoryCategory::Buffers, plan_.buffer_arena_bytes);
  worker_ = std::make_unique<Worker>(plan_.config, plan_.programs, plan_.layout, model_, plan_.batch.micro_batch_size,
                                     WorkerResources{.kernels = *kernels_,
                                                     .allocator = host_allocator(),
                                                     .meter = meter_,
                                                     .activations = *activations_,
                                                     .buffers = *buffers_,
                                                     .control_group = *control_group_,
                                                     .control_stream = *control_stream_,
                                                     .gather_group = *gather_group_,
                                                     .gather_stream = *gather_stream_,
                                                     .reduce_group = *reduce_group_,
                                                     .reduce_stream = *reduce_stream_});
  worker_->parameters().initialize(static_cast<uint64_t>(plan_.config.training.seed));
}

// The last step's gathers may still run: they end before what they read and write is freed.
Engine::~Engine() {
  gather_stream_.reset();
  reduce_stream_.reset();
}

double Engine::learning_rate() const { return numbers().lr; }
double Engine::loss_scale() const { return loss_scale_.value(); }
MemoryBytes Engine::measured_memory() const { return meter_.peak(); }

StepNumbers Engine::numbers() const {
  const Betas betas = betas_at(plan_.config.scheduler, plan_.config.optimizer, progress_.updates);
  return {.seed = static_cast<uint64_t>(plan_.config.training.seed),
          .step = progress_.steps,
          .update = progress_.updates + 1,
          .lr = lr_at(plan_.config, plan_.batch.train_batch_size, progress_.updates),
          .beta1 = betas.beta1,
          .beta2 = betas.beta2,
          .loss_scale = loss_scale_.value()};
}

StepResult Engine::train_batch(std::span<const Microbatch> microbatches) {
  refuse_to_skip_for_ever();
  const StepResult result = worker_->train_step(microbatches, numbers());
  finish_step({result.grad_norm, result.skipped});
  return result;
}

StepLoss Engine::forward_backward(std::span<const Microbatch> microbatches) {
  refuse_to_skip_for_ever();
  return worker_->forward_backward(microbatches, numbers());
}

StepOutcome Engine::step() {
  const int64_t microbatches = plan_.batch.gradient_accumulation_steps * plan_.mesh.size(Axis::Data);
  const StepOutcome outcome = worker_->update(numbers(), microbatches);
  finish_step(outcome);
  return outcome;
}

void Engine::finish_step(const StepOutcome& outcome) {
  ++progress_.steps;
  loss_scale_.update(outcome.skipped);
  if (!outcome.skipped) {
    ++progress_.updates;
    progress_.skipped_in_a_row = 0;
    return;
  }
  ++progress_.skipped_in_a_row;
}

// Before a step rather than after the last skipped one, so that each skipped step is reported first.
void Engine::refuse_to_skip_for_ever() const {
  const int64_t limit = plan_.config.training.stop_after_skipped;
  if (loss_scale_.dynamic() || limit == 0 || progress_.skipped_in_a_row < limit) return;
  throw NumericsError(
      fmt::format("step {}: gradients were not finite {} times in a row (training.stop_after_skipped {}); lower {} and "
                  "resume from a checkpoint",
                  progress_.steps, progress_.skipped_in_a_row, limit,
                  plan_.config.fp16.enabled ? "fp16.loss_scale" : "optimizer.params.lr or gradient_clipping"));
}

StepResult Engine::evaluate(std::span<const Microbatch> microbatches) {
  return evaluate(static_cast<int64_t>(microbatches.size()), [&](int64_t i) { return microbatches[static_cast<size_t>(i)]; });
}

StepResult Engine::evaluate(int64_t microbatches, const std::function<Microbatch(int64_t)>& make) {
  return worker_->evaluate(microbatches, make);
}

// ---- checkpoints

std::vector<checkpoint::Piece> Engine::pieces_to_save() {
  return checkpoint_pieces(parameters(), plan_.config.optimizer, control_group_->rank(), PieceRange::Shard);
}

std::string Engine::state() const {
  nlohmann::ordered_json json;
  json["steps"] = progress_.steps;
  json["updates"] = progress_.updates;
  json["skipped_in_a_row"] = progress_.skipped_in_a_row;
  json["seed"] = plan_.config.training.seed;
  json["train_batch_size"] = plan_.batch.train_batch_size;
  json["train_micro_batch_size_per_gpu"] = plan_.batch.micro_batch_size;
  const LossScaleState& scale = loss_scale_.state();
  if (loss_scale_.dynamic())
    json["loss_scale"] = {{"scale", scale.scale}, {"clean_steps", scale.clean_steps}, {"hysteresis", scale.hysteresis}};
  return json.dump();
}

// Gathers that still run read what is about to be written.
void Engine::wait_for_gathers() {
  parameters().for_each_group([](int, zero::ParameterGroup& group) { group.wait(); });
}

namespace {

// What is computed with the weights, and which samples come in which order, is not seen in any shape.
void refuse_another_model(const Config& config, const checkpoint::LoadedStep& step) {
  if (step.config().empty()) return;
  for (const auto& change : diff(parse_config(step.config(), step.directory()), config)) {
    const bool may_change = change.path == "model.dropout" || change.path == "model.initializer_range" ||
                            change.path == "model.vocabulary";  // another way to name the same tokens; sizes are compared
    if (may_change || (!change.path.starts_with("model.") && change.path != "data.shuffle")) continue;
    throw ConfigError(fmt::format("{}: {}: {} does not continue {}, which was made with {}; set it to {}", config.source,
                                  change.path, change.after, step.directory(), change.before, change.before));
  }
}

}  // namespace

void Engine::restore(const checkpoint::LoadedStep& step) {
  const auto state = nlohmann::json::parse(step.state());
  const auto must_continue = [&](const char* key, const char* stored, int64_t now) {
    const int64_t then = state.at(stored);
    if (then != now)
      throw ConfigError(fmt::format("{}: {}: {} does not continue {}, which was made with {}; set it to {}",
                                    plan_.config.source, key, now, step.directory(), then, then));
  };
  must_continue("train_batch_size", "train_batch_size", plan_.batch.train_batch_size);  // the data order depends on these two
  must_continue("training.seed", "seed", plan_.config.training.seed);
  if (plan_.config.reproducible == Reproducible::Layout)  // a microbatch's gradient is what is rounded
    must_continue("train_micro_batch_size_per_gpu", "train_micro_batch_size_per_gpu", plan_.batch.micro_batch_size);
  refuse_another_model(plan_.config, step);
  wait_for_gathers();
  const auto wanted = checkpoint_pieces(parameters(), plan_.config.optimizer, control_group_->rank(), PieceRange::Owned);
  step.read(wanted);
  progress_ = {state.at("steps"), state.at("updates"), state.at("skipped_in_a_row")};
  if (state.contains("loss_scale")) {  // else it was not an fp16 run: the scale starts as the config says
    const auto& scale = state.at("loss_scale");
    loss_scale_.restore({scale.at("scale"), scale.at("clean_steps"), scale.at("hysteresis")});
  }
  parameters().for_each_group([&](int, zero::ParameterGroup& group) {
    const zero::OwnedRange range = group.owned();
    if (!range.copy_out.absent()) kernels_->copy(range.master, range.copy_out);
    group.publish();
  });
}

void Engine::save(const std::string& directory) {
  const auto ranks = checkpoint::over_group(*checkpoint_group_);
  checkpoint::Store store(real_file_system(), {.directory = directory, .run_id = "engine"});
  const auto pieces = pieces_to_save();
  store.save({.step = progress_.steps, .pieces = pieces, .state = state(), .config = explain_as_json(plan_.config)}, ranks);
}

bool Engine::load(const std::string& directory) {
  const auto ranks = checkpoint::over_group(*checkpoint_group_);
  checkpoint::Store store(real_file_system(), {.directory = directory, .run_id = "engine"});
  const auto newest = store.open_latest(ranks);
  if (newest) restore(*newest);
  return newest.has_value();
}

std::vector<float> Engine::weight(const std::string& name) {
  std::vector<float> values;
  parameters().for_each_group([&](int, zero::ParameterGroup& group) {
    for (const zero::FlatParameter& parameter : group.layout().parameters) {
      if (parameter.name != name) continue;
      values.assign(static_cast<size_t>(parameter.elements()), 0.0f);
      const zero::OwnedRange range = group.owned();
      const zero::Overlap part = zero::overlap(parameter, range.first, range.count);
      const bool first_owner = group.options().lifetimes.shard_optimizer || control_group_->rank() == 0;
      const TensorView all{values.data(), DType::Float32, {parameter.elements()}};
      if (part.count > 0 && first_owner)
        kernels_->copy(range.master.slice(part.first_in_range, part.count), all.slice(part.first_in_parameter, part.count));
      control_group_->all_reduce(all, comm::ReduceOp::Sum, *control_stream_);
    }
  });
  if (values.empty()) throw std::logic_error(fmt::format("engine: no parameter is named \"{}\"", name));
  return values;
}

}  // namespace trivet
