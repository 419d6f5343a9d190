#include "trainer/replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/finite.h"
#include "core/printable.h"
#include "engine/checkpoint/loaded_step.h"
#include "engine/checkpoint/steps.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "engine/host_pieces.h"
#include "report/monitor/loss_bits.h"
#include "trainer/config_checks.h"
#include "trainer/initial_weights.h"
#include "trainer/resume.h"
#include "trainer/run.h"
#include "zero/staging.h"

namespace trivet {
namespace {

using checkpoint::LoadedStep;
using checkpoint::Piece;

// ---- what there is to compare with

struct Checkpoints {
  std::optional<LoadedStep> start;  // the newest before the step; none: the run is started over
  std::optional<LoadedStep> end;    // the step itself
  std::optional<LoadedStep> later;  // the first after the step, if the data grows
  // The first that knows what the step read, or else the newest before it; null: there is none.
  const LoadedStep* of_data() const {
    for (const auto* step : {&end, &later, &start})
      if (*step) return &**step;
    return nullptr;
  }
};

Checkpoints open_checkpoints(const std::string& directory, int64_t step, bool grows) {
  Checkpoints found;
  if (directory.empty()) return found;
  std::string newest;
  for (const checkpoint::StepDirectory& saved : checkpoint::readable_steps(real_file_system(), directory)) {
    if (saved.step < step) newest = saved.name;
    if (saved.step == step) found.end.emplace(real_file_system(), directory + "/" + saved.name);
    if (grows && saved.step > step && !found.later) found.later.emplace(real_file_system(), directory + "/" + saved.name);
  }
  if (!newest.empty()) found.start.emplace(real_file_system(), directory + "/" + newest);
  return found;
}

void refuse_another_layout(const Config& config, int ranks, const LoadedStep& step) {
  if (config.reproducible == Reproducible::Layout) return;
  const auto refuse_to = [&](const std::string& what) {
    throw ConfigError(
        fmt::format("{}: replay with reproducible \"run\" needs the layout of the run, but {} in {}; use the same, or "
                    "reproducible \"layout\" for runs that can be replayed on any layout",
                    config.source, what, step.directory()));
  };
  if (const int then = static_cast<int>(step.manifest().ranks); then != ranks)
    refuse_to(fmt::format("there are {} ranks here and {} (--ranks {})", ranks, then, then));
  if (step.config().empty()) return;
  for (const ConfigDifference& change : diff(parse_config(step.config(), step.directory()), config))
    for (const char* section : {"parallel.", "zero_optimization.", "gradient_accumulation_steps",
                                "train_micro_batch_size_per_gpu", "activation_checkpointing.mlp_slice_tokens"})
      if (change.path.starts_with(section) && change.path != "parallel.context_grain")  // only layout mode has leaves
        refuse_to(fmt::format("{} is {} here and {}", change.path, change.after, change.before));
}

// Keys which a replay must have as they were. From a checkpoint on, those of model and data are checked with it.
std::string changed_keys(const Config& config, const Checkpoints& checkpoints) {
  const auto& recorded = checkpoints.start ? checkpoints.start : checkpoints.end;
  return recorded ? trainer::changed_keys(config, *recorded, !checkpoints.start) : "";
}

// ---- losses

// Runs the steps up to `last` and returns the bits of their losses.
std::map<int64_t, uint32_t> run_steps(trainer::Run& run, int64_t last) {
  std::map<int64_t, uint32_t> bits;
  while (run.steps_done() < last) {
    run.intake.before_step(run.steps_done());
    const StepResult result = run.engine.train_batch(run.batches.fill(run.steps_done()));
    bits[run.steps_done()] = std::bit_cast<uint32_t>(static_cast<float>(result.loss));
  }
  return bits;
}

// The bits that the run wrote for the steps after `done`.
std::map<int64_t, uint32_t> recorded_losses(const ReplayOptions& options, int64_t done) {
  if (options.metrics_file.empty()) return {};
  auto recorded = monitor::read_loss_bits(options.metrics_file, done + 1, options.step);
  if (!recorded.contains(options.step))
    throw DataError(ExitCode::Usage,
                    fmt::format("{}: has no loss of step {}: the run did not reach it, or it had no targets; use "
                                "the metrics of a run that did, or another step",
                                options.metrics_file, options.step));
  return recorded;
}

std::string loss_difference(const std::map<int64_t, uint32_t>& recorded, const std::map<int64_t, uint32_t>& replayed,
                            const std::string& file) {
  for (const auto& [step, bits] : recorded)
    if (const uint32_t now = replayed.at(step); bits != now)
      return fmt::format("the loss of step {} is {} (bits {:08x}) and was {} (bits {:08x}) according to {}", step,
                         std::bit_cast<float>(now), now, std::bit_cast<float>(bits), bits, file);
  return "";
}

// ---- weights and optimizer states

// The index of an element of a box in the tensor that the box is part of.
std::vector<int64_t> index_in_tensor(const Piece& piece, int64_t element) {
  std::vector<int64_t> index(piece.box_shape.dims());
  for (int dim = piece.box_shape.dims() - 1; dim >= 0; --dim) {
    index[dim] = piece.box_start[dim] + element % piece.box_shape[dim];
    element /= piece.box_shape[dim];
  }
  return index;
}

struct TensorComparison {
  int64_t different = 0;  // elements
  std::string first;      // "blocks.0.mlp.up.weight[3, 17] is 0.25 and was 0.5"; empty: all are equal
};

// Compares the elements of the piece from element `done`.
void compare_elements(const Piece& piece, int64_t done, ConstTensorView now, ConstTensorView saved, TensorComparison& result) {
  const int64_t size = size_of(now.dtype);
  const auto* const ours = static_cast<const std::byte*>(now.data);
  const auto* const theirs = static_cast<const std::byte*>(saved.data);
  for (int64_t i = 0; i < now.elements(); ++i) {
    if (std::memcmp(ours + i * size, theirs + i * size, size) == 0 || result.different++ > 0) continue;
    result.first =
        fmt::format("{}[{}] is {} and was {}", piece.name, fmt::join(index_in_tensor(piece, piece.first + done + i), ", "),
                    value_at(now, i), value_at(saved, i));
  }
}

// Compares what this rank would save with the checkpoint.
TensorComparison compare_with(Engine& engine, const LoadedStep& step) {
  constexpr int64_t kMost = int64_t{1} << 20;  // elements at a time
  const HostPieces on_host(engine.backend(), engine.pieces_to_save());
  zero::StagedTensorReader reader;
  std::vector<std::byte> memory;
  TensorComparison result;
  for (const Piece& piece : on_host.pieces())
    for (int64_t done = 0; done < piece.count; done += kMost) {
      const int64_t count = std::min(kMost, piece.count - done);
      memory.resize(count * size_of(piece.data.dtype));
      Piece saved = piece;
      saved.first += done;
      saved.count = count;
      saved.data = {memory.data(), piece.data.dtype, {count}};
      saved.staged = nullptr;
      step.read({&saved, 1});
      const ConstTensorView now =
          piece.staged ? reader.read(*piece.staged, piece.staged_first + done, count) : piece.data.slice(done, count);
      compare_elements(piece, done, now, saved.data, result);
    }
  return result;
}

std::string state_difference(const Engine& engine, const LoadedStep& step) {
  const checkpoint::RunState now = engine.state();
  const checkpoint::RunState& then = step.run_state();
  if (now.updates != then.updates)
    return fmt::format("{} steps were skipped, and {} were then", now.steps - now.updates, then.steps - then.updates);
  if (now.loss_scale && then.loss_scale && *now.loss_scale != *then.loss_scale)
    return fmt::format("the loss scale is {}, and was {}", now.loss_scale->scale, then.loss_scale->scale);
  return "";
}

// Describes what differs on this rank; empty: nothing.
std::string checkpoint_difference(Engine& engine, const LoadedStep& step, int rank) {
  const TensorComparison tensors = compare_with(engine, step);
  if (tensors.different > 0)
    return fmt::format("{} according to {} ({} elements differ on rank {})", tensors.first, step.directory(), tensors.different,
                       rank);
  const std::string state = state_difference(engine, step);
  return state.empty() ? "" : fmt::format("{} according to {}", state, step.directory());
}

// ---- the replay

void check_can_compare(const trainer::Run& run, const ReplayOptions& options, const Checkpoints& checkpoints,
                       const std::string& directory) {
  if (options.step > run.total_steps())
    throw ConfigError(fmt::format("--step {}: the run ends at step {}; use at most that", options.step, run.total_steps()));
  if (!checkpoints.end && options.metrics_file.empty())
    throw ConfigError(
        fmt::format("--step {}: there is nothing to compare with: {}, and --metrics is not given; give the metrics of "
                    "the run, or a step that has a checkpoint",
                    options.step,
                    directory.empty() ? "checkpoint.directory is not given"
                                      : fmt::format("\"{}\" has no checkpoint of that step", directory)));
}

// Random weights would differ from the first step on.
void refuse_without_first_weights(const Config& config, const Checkpoints& checkpoints) {
  if (!config.model_from.empty() || !checkpoints.end || checkpoints.end->config().empty()) return;
  const Config then = parse_config(checkpoints.end->config(), checkpoints.end->directory() + "/manifest.json");
  if (!then.model_from.empty())
    throw ConfigError(
        fmt::format("{}: the run began with the weights of {}, and there is no checkpoint before the step; give them with "
                    "--init-from, or as model.from",
                    config.source, printable(then.model_from)));
}

std::string start_text(const Checkpoints& checkpoints) {
  return checkpoints.start ? checkpoints.start->directory() : "the beginning, because there is no earlier checkpoint";
}

}  // namespace

std::string replay(const Config& config, comm::World& world, const ReplayOptions& options) {
  const TrainOptions train_options{.threads = options.threads, .local_rank = options.local_rank};
  trainer::check_complete(config);
  trainer::check_same_config(config, world, train_options);
  const std::string directory = options.directory.empty() ? config.checkpoint.directory : options.directory;
  const Checkpoints checkpoints = open_checkpoints(directory, options.step, config.data.grows);
  for (const auto* step : {&checkpoints.start, &checkpoints.end})
    if (*step) refuse_another_layout(config, world.size(), **step);
  trainer::Run run(config, world, train_options);
  check_can_compare(run, options, checkpoints, directory);
  if (checkpoints.start) {
    trainer::continue_from(run, *checkpoints.start);
  } else {
    refuse_without_first_weights(config, checkpoints);
    trainer::load_initial_weights_if_asked(run);
  }
  run.intake.follow(checkpoints.of_data());
  trainer::compute_references_if_needed(run);
  const auto recorded = run.is_first_rank() ? recorded_losses(options, run.steps_done()) : std::map<int64_t, uint32_t>{};

  const auto replayed = run_steps(run, options.step);
  std::string difference = loss_difference(recorded, replayed, options.metrics_file);
  if (checkpoints.end)
    if (const std::string found = checkpoint_difference(run.engine, *checkpoints.end, world.rank()); !found.empty())
      difference += (difference.empty() ? "" : "; ") + found;
  const std::string changed = changed_keys(config, checkpoints);
  for (const std::string& text : comm::over_group(world.group()).gather(difference))
    if (!text.empty())
      throw CommError(
          ExitCode::RanksDisagree,
          fmt::format("replay of step {} from {}: {}; {}", options.step, start_text(checkpoints), text,
                      changed.empty() ? "a value changed without an error in this run or in the other one: replay once "
                                        "more, on other hosts, to see which"
                                      : "the config is another one: " + changed));
  std::vector<std::string> equal;
  if (!options.metrics_file.empty())
    equal.push_back(fmt::format("{} equal to {}",
                                recorded.size() == 1 ? "1 loss is" : fmt::format("{} losses are", recorded.size()),
                                options.metrics_file));
  if (checkpoints.end)
    equal.push_back(
        fmt::format("{} tensors are equal to {}", checkpoints.end->manifest().tensors.size(), checkpoints.end->directory()));
  return fmt::format("replay of step {} from {}: {}", options.step, start_text(checkpoints), fmt::join(equal, ", "));
}

}  // namespace trivet
