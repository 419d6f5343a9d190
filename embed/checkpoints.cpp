// The part of ShardedOptimizer that saves and loads.
#include <fmt/format.h>

#include <algorithm>

#include "core/file_system.h"
#include "embed/sharded_optimizer.h"
#include "embed/usage.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint_pieces.h"
#include "engine/config/explain.h"
#include "engine/optimizer_change.h"
#include "engine/same_on_all_ranks.h"

namespace trivet::embed {
namespace {

checkpoint::CheckpointStore store_in(const std::string& directory) {
  return {real_file_system(), {.directory = directory, .run_id = checkpoint::kEmbeddedRunId}};
}

}  // namespace

void ShardedOptimizer::save(const std::string& directory) {
  refuse_open_step("save()");
  if (directory.empty())
    throw usage_error("save(): no directory is named; give one, such as checkpoint.directory of the config");
  audit_weights();
  const std::vector<checkpoint::Piece> pieces = checkpoint_pieces(*parameters_, config_.optimizer);
  store_in(directory).save(
      {.step = steps_, .pieces = pieces, .state = checkpoint::to_text(run_state()), .config = explain_as_json(config_)},
      comm::over_group(*checkpoint_group_));
}

bool ShardedOptimizer::load(const std::string& directory) {
  refuse_open_step("load()");
  if (directory.empty())
    throw usage_error("load(): no directory is named; give one, such as checkpoint.directory of the config");
  checkpoint::CheckpointStore store = store_in(directory);
  const auto newest = store.open_latest(comm::over_group(*checkpoint_group_));
  if (!newest) return false;
  refuse_other_checkpoints(*newest);
  const auto read = [&](std::span<const checkpoint::Piece> wanted) { newest->read(wanted); };
  abort_others_on_error([&] {
    load_pieces(*parameters_, config_.optimizer,
                {.read = read, .read_on_host = read, .kernels = *kernels_, .buffers = *buffers_, .staging = {}});
    parameters_->publish(true);
    wait_for_gathers();
  });
  restore(newest->run_state());
  return true;
}

// A rank wants only its part of the tensors, so one that lacks a tensor, or finds another one, asks the others before anything
// is changed: all ranks refuse the checkpoint, or none.
void ShardedOptimizer::refuse_other_checkpoints(const checkpoint::LoadedStep& step) {
  if (world_.size() > 1)
    check_same_on_all_ranks({{"load()", step.directory(), fmt::format("xxh3 {}", step.manifest().xxh3)}}, world_);
  refuse_another_optimizer(config_, step);
  checkpoint::together(comm::over_group(*checkpoint_group_), [&] {
    for (const checkpoint::Piece& piece : checkpoint_pieces_to_load(*parameters_, config_.optimizer))
      checkpoint::check_stored(step, piece);
    return std::string();
  });
}

checkpoint::RunState ShardedOptimizer::run_state() const {
  checkpoint::RunState state{.steps = steps_,
                             .updates = updates_,
                             .skipped_in_a_row = skipped_in_a_row_,
                             .seed = config_.training.seed,
                             .train_batch_size = batch_.train_batch_size,
                             .micro_batch_size = batch_.micro_batch_size};
  if (loss_scale_.dynamic()) state.loss_scale = loss_scale_.state();
  return state;
}

// Restores as an Engine does: at least one more step is attempted, however many were skipped before.
void ShardedOptimizer::restore(const checkpoint::RunState& state) {
  const int64_t limit = config_.training.stop_after_skipped;
  steps_ = audited_step_ = state.steps;
  updates_ = state.updates;
  skipped_in_a_row_ = limit > 0 ? std::min(state.skipped_in_a_row, limit - 1) : state.skipped_in_a_row;
  if (state.loss_scale) loss_scale_.restore(*state.loss_scale);
}

}  // namespace trivet::embed
