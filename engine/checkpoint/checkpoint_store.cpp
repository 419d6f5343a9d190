#include "engine/checkpoint/checkpoint_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/error.h"
#include "engine/checkpoint/run_state.h"
#include "engine/checkpoint/shard_file.h"

namespace trivet::checkpoint {
namespace {

constexpr std::string_view kTemporary = ".tmp-", kTrash = ".trash-";
constexpr const char* kLatest = "latest";
constexpr const char* kLock = ".lock";
constexpr std::chrono::milliseconds kLockInterval{50};

std::string holder_text(const std::string& run_id) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {'?'};
  return fmt::format("run {} (process {} on {})", run_id, ::getpid(), host.data());
}

[[noreturn]] void throw_not_written(const std::string& text) { throw CheckpointError(ExitCode::CheckpointNotWritten, text); }

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

CheckpointStore::CheckpointStore(FileSystem& files, CheckpointStoreOptions options)
    : files_(files), options_(std::move(options)) {
  if (!is_safe_run_id(options_.run_id))
    throw ConfigError(fmt::format("checkpoint: run id \"{}\" is not accepted; it must be of the form [A-Za-z0-9._-]{{1,64}}",
                                  options_.run_id));
}

void CheckpointStore::warn(const std::string& text) {
  warnings_.push_back(text);
  options_.log.warning(text);
}

template <typename Work>
void CheckpointStore::best_effort(const char* what, Work&& work) {
  try {
    work();
  } catch (const FileError& error) {
    warn(fmt::format("checkpoint: {}: {}", what, error.what()));
  }
}

void CheckpointStore::acquire(const Participants& ranks) {
  const auto newest = together(ranks, [&]() -> std::string {
    if (ranks.rank != 0) return "";
    create_directories(files_, options_.directory);
    take_lock();
    clear_leftovers();
    const auto steps = list_steps(files_, options_.directory);
    return std::to_string(steps.empty() ? -1 : steps.back().step);
  });
  last_committed_ = std::stoll(newest[0]);
  acquired_ = true;
}

void CheckpointStore::take_lock() {
  const auto deadline = options_.clock->now() + options_.lock_patience;
  for (bool told = false;; told = true) {
    LockAttempt attempt = files_.lock(path(kLock), holder_text(options_.run_id));
    lock_ = std::move(attempt.lock);
    if (lock_) return;
    const std::string others =
        fmt::format("{}: checkpoints of {} are being written here", options_.directory, escape_control(attempt.holder));
    if (options_.clock->now() >= deadline) throw_not_written(others + "; choose another checkpoint.directory or end that run");
    if (!told)
      warn(fmt::format("{}; waiting up to {:.3g} s for it to end", others,
                       static_cast<double>(options_.lock_patience.count()) / 1000));
    options_.clock->sleep(kLockInterval);
  }
}

void CheckpointStore::clear_leftovers() {
  for (const DirectoryEntry& entry : files_.list(options_.directory)) {
    best_effort("clearing leftovers", [&] {
      if (entry.name.starts_with(kTemporary) || entry.name.starts_with(kTrash)) return remove_if_there(entry.name);
      if (!entry.name.starts_with(kDisplaced)) return;
      const std::string committed = entry.name.substr(kDisplaced.size());
      if (files_.kind(path(committed)) != EntryKind::Missing) return remove_if_there(entry.name);
      files_.rename(path(entry.name), path(committed));
      files_.sync_directory(options_.directory);
    });
  }
}

void CheckpointStore::remove_if_there(const std::string& name) {
  const EntryKind kind = files_.kind(path(name));
  if (kind == EntryKind::Directory)
    remove_tree(files_, path(name));
  else if (kind != EntryKind::Missing)
    files_.remove(path(name));
}

void CheckpointStore::save(const SaveRequest& request, const Participants& ranks) {
  if (!acquired_) acquire(ranks);
  const SavedStep saved = describe(request);
  const std::string temporary = fmt::format("{}{}-{}", kTemporary, step_directory_name(request.step), options_.run_id);
  const auto on_rank_0 = [&](auto&& work) {
    together(ranks, [&]() -> std::string {
      if (ranks.rank == 0) work();
      return "";
    });
  };
  const auto discard = [&] {
    if (ranks.rank == 0) best_effort("removing what was written", [&] { remove_if_there(temporary); });
  };
  try {
    on_rank_0([&] {
      remove_if_there(temporary);
      files_.create_directory(path(temporary));
    });
    const auto shares = together(ranks, [&] { return write_share(request, path(temporary), ranks.rank); });
    on_rank_0([&] { commit(request, temporary, shares); });
  } catch (const NumericsError& error) {
    discard();
    throw NumericsError(fmt::format("step {} is not saved: {}; resume from an earlier step with a lower optimizer.params.lr",
                                    request.step, error.what()));
  } catch (const CheckpointError& error) {
    discard();
    throw_not_written(
        fmt::format("checkpoint of step {} was not written: {}{}", request.step, error.what(), state_of_last_step(ranks)));
  }
  last_committed_ = request.step;
  if (ranks.rank == 0) tidy_up(saved);
}

// What is saved must be loadable; anything else is a bug in the caller.
SavedStep CheckpointStore::describe(const SaveRequest& request) {
  try {
    check_config(request.config, "what is to be saved");
    const RunState state = parse_run_state(request.state, "state");
    if (state.steps == request.step) return {request.step, SavedStep::Content{state.updates, state.clean()}};
    throw std::logic_error(fmt::format("checkpoint: step {} is saved with the state of step {}", request.step, state.steps));
  } catch (const CheckpointError& error) {
    throw std::logic_error(
        fmt::format("checkpoint: step {} is saved with a config or state that cannot be read: {}", request.step, error.what()));
  }
}

// For the message of a save that failed. The last step is opened again: whatever broke this save may have broken it, too.
std::string CheckpointStore::state_of_last_step(const Participants& ranks) const {
  if (last_committed_ < 0) return "";
  return together(ranks, [&]() -> std::string {
    if (ranks.rank != 0) return "";
    try {
      return fmt::format("; step {} is intact", open(last_committed_).step());
    } catch (const std::runtime_error& error) {
      return fmt::format("; step {}, which was saved before, cannot be read any more: {}", last_committed_, error.what());
    }
  })[0];
}

std::string CheckpointStore::write_share(const SaveRequest& request, const std::string& temporary, int rank) const {
  try {
    return to_text(write_shard(files_, temporary, {options_.run_id, request.step, rank}, request.pieces));
  } catch (const FileError& error) {
    if (error.error_number() != ENOSPC) throw;
    int64_t needed = 0;
    for (const Piece& piece : request.pieces) needed += piece.data.bytes();
    throw_not_written(fmt::format("{}; this rank needs {:.1f} MiB, {:.1f} MiB are free", error.what(), mib(needed),
                                  mib(files_.free_bytes(options_.directory))));
  }
}

void CheckpointStore::commit(const SaveRequest& request, const std::string& temporary, const std::vector<std::string>& shares) {
  Manifest manifest;
  manifest.run_id = options_.run_id;
  manifest.step = request.step;
  manifest.created = options_.clock->unix_seconds();
  manifest.ranks = static_cast<int64_t>(shares.size());
  manifest.config = request.config;
  manifest.state = request.state;
  for (const std::string& share : shares) merge(manifest, parse_share(share, "a rank's share"));
  check_partition(manifest, "the ranks' shares");
  write_text(files_, path(temporary) + "/" + kManifestName, to_text(manifest));
  files_.sync_directory(path(temporary));

  const std::string final_name = step_directory_name(request.step);
  if (files_.kind(path(final_name)) != EntryKind::Missing) {
    const std::string aside = broken_.contains(request.step) ? broken_name(request.step) : displaced_name(request.step);
    remove_if_there(aside);
    files_.rename(path(final_name), path(aside));
  }
  files_.rename(path(temporary), path(final_name));
  files_.sync_directory(options_.directory);
}

void CheckpointStore::tidy_up(const SavedStep& saved) {
  const int64_t committed = saved.step;
  contents_[committed] = *saved.content;
  broken_.erase(committed);
  best_effort("removing the step that was replaced", [&] { remove_if_there(displaced_name(committed)); });
  best_effort("writing the pointer to the newest step", [&] {
    const std::string temporary = std::string(kTemporary) + kLatest;
    write_text(files_, path(temporary), step_directory_name(committed) + "\n");
    files_.rename(path(temporary), path(kLatest));
  });
  best_effort("setting a broken step aside", [&] { set_broken_aside(); });
  best_effort("looking for later steps", [&] { warn_of_later_steps(committed); });
  best_effort("removing old steps", [&] { apply_retention(committed); });
}

void CheckpointStore::set_broken_aside() {
  while (!broken_.empty()) {
    const int64_t step = *broken_.begin();
    broken_.erase(broken_.begin());
    if (files_.kind(path(step_directory_name(step))) == EntryKind::Missing) continue;
    remove_if_there(broken_name(step));
    files_.rename(path(step_directory_name(step)), path(broken_name(step)));
  }
}

void CheckpointStore::warn_of_later_steps(int64_t committed) {
  const auto steps = list_steps(files_, options_.directory);
  if (steps.empty() || steps.back().step <= committed || warned_of_later_steps_) return;
  warned_of_later_steps_ = true;
  warn(fmt::format(
      "checkpoint: {} is later than step {}, which was just saved: a resume takes the latest; move it away if it belongs "
      "to an earlier run",
      path(steps.back().name), committed));
}

// Steps after the committed one belong to an abandoned line of training (after a resume from an earlier step); it is up to the
// user to remove them.
void CheckpointStore::apply_retention(int64_t committed) {
  if (options_.keep <= 0) return;
  std::map<int64_t, std::string> names;
  std::vector<SavedStep> steps;
  for (const StepDirectory& step : list_steps(files_, options_.directory)) {
    if (step.step > committed) continue;
    names[step.step] = step.name;
    steps.push_back({step.step, content_of(step)});
  }
  for (int64_t step : steps_to_remove(steps, options_.keep)) {
    const std::string trash = std::string(kTrash) + step_directory_name(step);
    remove_if_there(trash);
    files_.rename(path(names.at(step)), path(trash));
    remove_if_there(trash);
    contents_.erase(step);
  }
}

// This run knows the contents of the steps that it saved. Steps of an earlier run are read once.
std::optional<SavedStep::Content> CheckpointStore::content_of(const StepDirectory& step) {
  if (const auto known = contents_.find(step.step); known != contents_.end()) return known->second;
  try {
    const LoadedStep loaded(files_, path(step.name));
    return contents_[step.step] = {loaded.run_state().updates, loaded.run_state().clean()};
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

std::optional<LoadedStep> CheckpointStore::open_latest(const Participants& ranks) {
  const auto names = together(ranks, [&]() -> std::string {  // all ranks use rank 0's view of the directory
    std::string text;
    if (ranks.rank == 0)
      for (const StepDirectory& step : readable_steps(files_, options_.directory)) text.insert(0, step.name + "\n");
    return text;
  })[0];
  std::string reasons;
  for (size_t at = 0; at < names.size();) {
    const std::string name = names.substr(at, names.find('\n', at) - at);
    at += name.size() + 1;
    std::optional<LoadedStep> step;
    try {
      together(ranks, [&]() -> std::string {
        step.emplace(files_, path(name));
        step->verify(ranks.rank, ranks.size);
        return "";
      });
      return step;
    } catch (const CheckpointError& error) {
      if (error.exit_code() != ExitCode::CheckpointCorrupt) throw;
      reasons += fmt::format("\n  {}", error.what());
      if (const auto number = parse_step(name)) broken_.insert(*number);
      if (ranks.rank == 0) warn(fmt::format("{}; trying the step before it", error.what()));
    }
  }
  if (reasons.empty()) return std::nullopt;
  throw CheckpointError(ExitCode::CheckpointCorrupt, fmt::format("{}: no step is valid:{}", options_.directory, reasons));
}

LoadedStep CheckpointStore::open(int64_t step) const {
  const auto steps = readable_steps(files_, options_.directory);
  const auto found = std::find_if(steps.begin(), steps.end(), [&](const StepDirectory& known) { return known.step == step; });
  if (found == steps.end()) {
    std::string known;
    for (const StepDirectory& other : steps) known += fmt::format("{}{}", known.empty() ? "" : ", ", other.step);
    throw CheckpointError(ExitCode::Usage, fmt::format("{}: there is no step {}; there are: {}", options_.directory, step,
                                                       known.empty() ? "none" : known));
  }
  return LoadedStep(files_, path(found->name));
}

}  // namespace trivet::checkpoint
