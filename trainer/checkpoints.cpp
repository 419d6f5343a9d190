#include "trainer/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string_view>

#include "core/file_system.h"
#include "engine/checkpoint/checkpoint.h"

namespace trivet::trainer {
namespace {

std::string text_of_variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

}  // namespace

std::string data_digest(const data::TrainingData& data) {
  const std::string validation = data.validation_digest();
  return data.train_digest() + (validation.empty() ? "" : " / " + validation);
}

std::chrono::seconds lock_patience() {
  constexpr int kUsual = 10, kToEndRanks = 4, kLongest = 86400;
  const char* text = std::getenv("TRIVET_HOST_TIMEOUT");
  return std::chrono::seconds(text ? std::clamp(std::atoi(text) + kToEndRanks, kUsual, kLongest) : kUsual);
}

Checkpoints::Checkpoints(Run& run) : run_(run), group_(run.world.group().subgroup(all_ranks(run.world), "checkpoint.async")) {
  // Distinguishes this run's files from those of other runs; all ranks use rank 0's.
  run_id_ = ranks().gather(fmt::format("{:08x}", std::random_device{}())).front();
  const std::string& directory = run.config.checkpoint.directory;
  if (directory.empty()) return;
  hosts_ = checkpoint::find_hosts(*group_, run.world.host());
  warn_of_missing_replicas();
  store_ = std::make_unique<checkpoint::CheckpointStore>(real_file_system(), own_store_options());
  if (run.config.checkpoint.saves_to_memory())
    memory_ = std::make_unique<MemoryCheckpoints>(run, run_id_, disk(), staging());
  else
    store_->acquire(ranks());
  data_digest_ = data_digest(*run.data);
  if (const auto tokenizer = run.data->tokenizer()) tokenizer_ = tokenizer->to_text();
  saver_ = std::make_unique<checkpoint::AsyncSaver>(*store_, ranks(), staging_memory_, run.log, staging());
}

checkpoint::CheckpointStoreOptions Checkpoints::store_options(const std::string& directory) const {
  return {.directory = directory,
          .run_id = run_id_,
          .job = text_of_variable("TRIVET_LAUNCH_ID"),
          .start_of_job = std::atoll(text_of_variable("TRIVET_EPOCH").c_str()),
          .keep = run_.config.checkpoint.keep,
          .lock_patience = lock_patience(),
          .log = run_.log};
}

checkpoint::CheckpointStoreOptions Checkpoints::own_store_options() const {
  checkpoint::CheckpointStoreOptions options = store_options(run_.config.checkpoint.directory);
  options.replicas = std::min(run_.config.checkpoint.replicas, hosts_.count());
  options.hosts = hosts_;
  return options;
}

// A job that goes on with fewer hosts keeps as many copies as it can.
void Checkpoints::warn_of_missing_replicas() const {
  const int wanted = run_.config.checkpoint.replicas;
  if (wanted < hosts_.count() || wanted == 0 || !run_.is_first_rank()) return;
  run_.log.warning(fmt::format("checkpoint.replicas: {} copies need {} hosts, and this job has {}: every file is kept on {}",
                               wanted, wanted + 1, hosts_.count(), hosts_.count() == 1 ? "this host alone" : "each of them"));
}

checkpoint::Staging Checkpoints::staging() {
  if (run_.engine.backend().device() == Device::Cpu) return {};
  return {run_.engine.backend().staging_allocator(),
          [this](ConstTensorView from, TensorView to) { run_.engine.kernels().to_host(from, to); }, true};
}

bool Checkpoints::is_due() const {
  const int64_t done = run_.steps_done(), every = run_.config.checkpoint.every_steps;
  return (every > 0 && done % every == 0) || run_.evaluations.keeps(done) ||
         data::completes_epoch(run_.batches.sampler(), done, run_.config.checkpoint.every_epochs);
}

std::string Checkpoints::state_to_save() {
  checkpoint::RunState state = run_.engine.state();
  if (run_.evaluations.decides()) state.evaluations = run_.evaluations.state();
  state.steps_per_epoch = run_.batches.sampler().steps_per_epoch();
  state.data_files = run_.intake.state();
  state.data = state.data_files.empty() ? data_digest_ : data_digest(*run_.data);  // data that grows has another one
  state.reference = run_.references.to_text();
  state.tokenizer = tokenizer_;
  return to_text(state);
}

// Weights that several ranks hold are not compared each time: that would cost more than the rest. A resume has only the values
// that were saved, on all ranks.
void Checkpoints::save_to_memory() {
  const auto pieces = run_.engine.pieces_to_save();
  memory_->save({.step = run_.steps_done(), .pieces = pieces, .state = state_to_save(), .config = run_.options.config_text});
}

void Checkpoints::save(checkpoint::OnFailure on_failure) {
  if (memory_) memory_->report_next_failure();
  run_.engine.audit_weights();
  const auto pieces = run_.engine.pieces_to_save();
  const bool waits = !run_.config.checkpoint.asynchronous;
  saver_->start({.step = run_.steps_done(), .pieces = pieces, .state = state_to_save(), .config = run_.options.config_text},
                waits ? checkpoint::OnFailure::End : on_failure);
  if (waits) saver_->finish();
  last_saved_ = run_.steps_done();
}

std::optional<checkpoint::LoadedStep> Checkpoints::open_newest() {
  auto step = memory_ ? memory_->open_newest(disk()) : store_->open_latest(ranks());
  const bool from_disk = step && std::string_view(step->directory()).starts_with(store_->directory() + "/step-");
  if (from_disk) resumed_from_disk_ = step->step();
  return step;
}

void Checkpoints::finish() {
  if (saver_) saver_->finish();
  if (memory_) memory_->finish();
}

bool Checkpoints::is_on_disk() const { return last_saved_ == run_.steps_done() || resumed_from_disk_ == run_.steps_done(); }

void Checkpoints::remove_from_memory() {
  if (memory_ && is_on_disk()) memory_->remove();
}

MemoryBytes Checkpoints::staging_memory() const {
  MemoryBytes bytes = staging_memory_.peak();
  if (!memory_) return bytes;
  const MemoryBytes of_memory = memory_->staging_memory();
  for (int i = 0; i < kMemoryCategories; ++i) bytes.by_category[i] += of_memory.by_category[i];
  return bytes;
}

}  // namespace trivet::trainer
