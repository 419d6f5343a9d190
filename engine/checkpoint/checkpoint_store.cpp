#include "engine/checkpoint/checkpoint_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "engine/checkpoint/run_state.h"
#include "engine/checkpoint/sharing.h"

namespace trivet::checkpoint {

CheckpointStore::CheckpointStore(FileSystem& files, CheckpointStoreOptions options)
    : directory_(files, std::move(options)), lock_(directory_), writer_(directory_), kept_(directory_) {
  if (!is_safe_run_id(directory_.options.run_id))
    throw ConfigError(fmt::format("checkpoint: run id \"{}\" is not accepted; it must be of the form [A-Za-z0-9._-]{{1,64}}",
                                  directory_.options.run_id));
}

Lineage CheckpointStore::named_lineage() const {
  return {.origin = lineage_.origin.empty() ? directory_.options.run_id : lineage_.origin, .start = lineage_.start};
}

void CheckpointStore::acquire(const Participants& ranks, const Lineage& known) {
  directory_.on_leaders(ranks, [&] {
    if (!directory_.in_memory()) create_directories(directory_.files, directory_.options.directory);
    return "";
  });
  if (directory_.options.hosts.count() > 1) check_sharing(directory_, ranks);
  directory_.on_leaders(ranks, [&] {
    lock_.take();
    return "";
  });
  if (directory_.per_host()) writer_.finish_commits(ranks);
  const auto newest = directory_.on_leaders(ranks, [&] {
    directory_.clear_leftovers();
    const auto steps = list_steps(directory_.files, directory_.options.directory);
    return std::to_string(steps.empty() ? -1 : steps.back().step);
  });
  for (const std::string& step : newest)
    if (!step.empty()) last_committed_ = std::max<int64_t>(last_committed_, std::stoll(step));
  const FoundSteps found = find_steps(directory_, ranks);
  lineage_ = lineage_after(directory_, found, known);
  newest_found_ = found.newest;
  acquired_ = true;
}

void CheckpointStore::abandon_steps_after(int64_t step, const Participants& ranks) {
  if (!directory_.leads(ranks)) return;
  directory_.best_effort("looking for later steps", [&] {
    for (const StepDirectory& later : list_steps(directory_.files, directory_.options.directory))
      if (later.step > step) broken_.insert(later.step);
  });
}

void CheckpointStore::save(const SaveRequest& request, const Participants& ranks) {
  if (!acquired_) acquire(ranks);
  const auto [saved, best] = describe(request);
  const std::string temporary = writer_.temporary_name(request.step);
  const auto discard = [&] {
    if (directory_.leads(ranks) && directory_.is_in_place())
      directory_.best_effort("removing what was written", [&] { directory_.remove_if_there(temporary); });
  };
  try {
    const auto created = directory_.on_leaders(ranks, [&] {
      directory_.require_in_place();
      lock_.require();
      directory_.remove_if_there(temporary);
      directory_.files.create_directory(directory_.path(temporary));
      return std::to_string(directory_.options.clock->unix_seconds());
    });
    const auto shares = writer_.write_files(request, temporary, ranks);
    const auto manifests = directory_.on_leaders(
        ranks, [&] { return writer_.write_manifest(request, named_lineage(), temporary, shares, std::stoll(created[0])); });
    for (const std::string& manifest : manifests)
      if (!manifest.empty() && manifest != manifests[0])
        throw std::logic_error("checkpoint: hosts have different manifests of a step");
    directory_.on_leaders(ranks, [&] {
      directory_.require_in_place();
      lock_.require();
      writer_.commit(request.step, temporary, broken_.contains(request.step));
      return "";
    });
  } catch (const NumericsError& error) {
    discard();
    throw NumericsError(fmt::format("step {} is not saved: {}; resume from an earlier step with a lower optimizer.params.lr",
                                    request.step, error.what()));
  } catch (const CheckpointError& error) {
    discard();
    const std::string left = state_of_last_step(ranks);
    if (directory_.in_memory()) keep_newest_complete(ranks);
    const std::string text = fmt::format("checkpoint of step {} was not written: {}{}", request.step, error.what(), left);
    if (directory_.per_host() && dynamic_cast<const FailedHere*>(&error))
      throw FailedHere(ExitCode::CheckpointNotWritten, text);
    throw_not_written(text);
  }
  last_committed_ = request.step;
  kept_.set_best_step(best);
  if (directory_.leads(ranks)) tidy_up(saved);
  if (directory_.per_host() && !directory_.in_memory() && directory_.options.keep > 0)
    kept_.apply_agreed_retention(request.step, ranks);
}

// Checks that the request can be loaded later; a request that cannot is a bug in the caller.
CheckpointStore::Described CheckpointStore::describe(const SaveRequest& request) {
  try {
    check_config(request.config, "what is to be saved");
    const RunState state = parse_run_state(request.state, "state");
    if (state.steps == request.step)
      return {{request.step, SavedStep::Content{state.updates, state.clean()}}, state.best_step()};
    throw std::logic_error(fmt::format("checkpoint: step {} is saved with the state of step {}", request.step, state.steps));
  } catch (const CheckpointError& error) {
    throw std::logic_error(
        fmt::format("checkpoint: step {} is saved with a config or state that cannot be read: {}", request.step, error.what()));
  }
}

// Describes the last step for the message of a save that failed. Opens it again: the cause may have broken it, too.
std::string CheckpointStore::state_of_last_step(const Participants& ranks) {
  if (last_committed_ < 0) return "";
  if (directory_.per_host())
    return last_step_is_complete(ranks) ? fmt::format("; step {} is intact", last_committed_)
                                        : fmt::format(
                                              "; not all files of step {}, which was saved before, are on the hosts "
                                              "that are there",
                                              last_committed_);
  return together(ranks, [&]() -> std::string {
    if (ranks.rank != 0) return "";
    try {
      return fmt::format("; step {} is intact", open(last_committed_).step());
    } catch (const std::runtime_error& error) {
      return fmt::format("; step {}, which was saved before, cannot be read any more: {}", last_committed_, error.what());
    }
  })[0];
}

bool CheckpointStore::last_step_is_complete(const Participants& ranks) {
  try {
    const auto versions = gather_versions(directory_.copies, directory_.options.hosts, ranks);
    return std::any_of(versions.begin(), versions.end(),
                       [&](const StepVersion& version) { return version.id.step == last_committed_ && is_usable(version); });
  } catch (const CheckpointError&) {
    return false;
  }
}

void CheckpointStore::tidy_up(const SavedStep& saved) {
  const int64_t committed = saved.step;
  if (directory_.in_memory())
    return directory_.best_effort("removing old steps", [&] { remove_all_but(step_directory_name(committed)); });
  kept_.set_content(saved);
  broken_.erase(committed);
  directory_.best_effort("removing the step that was replaced", [&] { directory_.remove_if_there(displaced_name(committed)); });
  directory_.best_effort("writing the name of the newest step", [&] { kept_.name_newest_step(committed); });
  directory_.best_effort("setting a broken step aside", [&] { set_broken_aside(); });
  directory_.best_effort("writing the name of the best step", [&] { kept_.name_best_step(); });
  directory_.best_effort("looking for later steps", [&] { warn_of_later_steps(committed); });
  if (!directory_.per_host()) directory_.best_effort("removing old steps", [&] { kept_.apply_retention(committed); });
}

// Leaves alone what is not of a store.
void CheckpointStore::remove_all_but(const std::string& kept) {
  directory_.require_in_place();
  for (const DirectoryEntry& entry : directory_.files.list(directory_.options.directory)) {
    const bool left_over = is_left_over(entry.name) || entry.name.starts_with(kDisplaced);
    if (entry.name == kept || (!left_over && !parse_step(entry.name))) continue;
    directory_.remove_if_there(entry.name);
    directory_.copies.forget(entry.name);
  }
}

void CheckpointStore::remove_older_than(const StepAge& age) {
  for (const StepDirectory& step : list_steps(directory_.files, directory_.options.directory)) {
    if (StepAge{directory_.copies.version_of(step).start, step.step} >= age) continue;
    directory_.remove_if_there(step.name);
    directory_.copies.forget(step.name);
  }
}

void CheckpointStore::remove_older_than(const StepAge& age, const Participants& ranks) {
  directory_.on_leaders(ranks, [&] {
    directory_.best_effort("removing older steps", [&] { remove_older_than(age); });
    return "";
  });
}

// After a save that failed, perhaps because steps that nobody will open take the room. Keeps this start's last step, otherwise
// the newest that is complete. If none is, this job has gone on from the disk, and none of those that are here is of use to it.
void CheckpointStore::keep_newest_complete(const Participants& ranks) {
  std::vector<StepVersion> versions;
  try {
    versions = gather_versions(directory_.copies, directory_.options.hosts, ranks);
  } catch (const CheckpointError&) {
    return;  // a directory cannot be listed: nothing is known, and the save's own error is reported
  }
  if (!directory_.leads(ranks) || !directory_.is_in_place()) return;
  std::erase_if(versions, [&](const StepVersion& version) { return !is_usable(version); });
  auto kept = std::find_if(versions.begin(), versions.end(), [&](const StepVersion& version) {
    return version.id.start == lineage_.start && version.id.step == last_committed_;
  });
  if (kept == versions.end()) kept = versions.begin();  // the newest
  const bool here = kept != versions.end() && kept->files.contains(directory_.options.hosts.self());
  directory_.best_effort("removing old steps", [&] { remove_all_but(here ? step_directory_name(kept->id.step) : ""); });
}

void CheckpointStore::remove_everything(const Participants& ranks) {
  directory_.on_leaders(ranks, [&] {
    directory_.best_effort("removing the steps in memory", [&] {
      remove_all_but("");
      directory_.remove_if_there(kDisk);
      directory_.remove_if_there(kLock);
      if (directory_.files.list(directory_.options.directory).empty()) directory_.files.remove(directory_.options.directory);
    });
    return "";
  });
  lock_.release();
  acquired_ = false;
}

void CheckpointStore::set_broken_aside() {
  while (!broken_.empty()) {
    const int64_t step = *broken_.begin();
    broken_.erase(broken_.begin());
    if (directory_.files.kind(directory_.path(step_directory_name(step))) == EntryKind::Missing) continue;
    directory_.remove_if_there(broken_name(step));
    directory_.files.rename(directory_.path(step_directory_name(step)), directory_.path(broken_name(step)));
    directory_.copies.forget(step_directory_name(step));
  }
}

void CheckpointStore::warn_of_later_steps(int64_t committed) {
  const auto steps = list_steps(directory_.files, directory_.options.directory);
  if (steps.empty() || steps.back().step <= committed || warned_of_later_steps_) return;
  warned_of_later_steps_ = true;
  directory_.warn(fmt::format(
      "checkpoint: {} is later than step {}, which was just saved: a resume takes the latest; move it away if it belongs "
      "to an earlier run",
      directory_.path(steps.back().name), committed));
}

std::optional<LoadedStep> CheckpointStore::open_latest(const Participants& ranks) {
  if (directory_.per_host()) return open_latest_of_hosts(ranks);
  const auto names = together(ranks, [&]() -> std::string {  // all ranks use rank 0's view of the directory
    std::string text;
    if (ranks.rank == 0)
      for (const StepDirectory& step : readable_steps(directory_.files, directory_.options.directory))
        text.insert(0, step.name + "\n");
    return text;
  })[0];
  std::string reasons;
  for (size_t at = 0; at < names.size();) {
    const std::string name = names.substr(at, names.find('\n', at) - at);
    at += name.size() + 1;
    std::optional<LoadedStep> step;
    try {
      together(ranks, [&]() -> std::string {
        step.emplace(directory_.files, directory_.path(name));
        step->verify(ranks.rank, ranks.size);
        return "";
      });
      return step;
    } catch (const CheckpointError& error) {
      if (error.exit_code() != ExitCode::CheckpointCorrupt) throw;
      reasons += fmt::format("\n  {}", error.what());
      if (const auto number = parse_step(name)) broken_.insert(*number);
      if (ranks.rank == 0) directory_.warn(fmt::format("{}; trying the step before it", error.what()));
    }
  }
  if (reasons.empty()) return std::nullopt;
  throw CheckpointError(ExitCode::CheckpointCorrupt,
                        fmt::format("{}: no step is valid:{}", directory_.options.directory, reasons));
}

std::optional<LoadedStep> CheckpointStore::open_latest_of_hosts(const Participants& ranks) {
  if (!acquired_) acquire(ranks);
  const auto versions = gather_versions(directory_.copies, directory_.options.hosts, ranks);
  std::string reasons;
  for (const StepVersion& version : versions) {
    std::optional<LoadedStep> step;
    try {
      step.emplace(open_version(version, ranks, {}));
    } catch (const CheckpointError& error) {
      if (error.exit_code() != ExitCode::CheckpointCorrupt) throw;
      reasons += fmt::format("\n  {}", error.what());
      if (ranks.rank == 0) directory_.warn(fmt::format("{}; trying the step before it", error.what()));
      continue;
    }
    // Later steps are of an earlier start, or were just refused. They must not become the newest again.
    for (const StepVersion& other : versions)
      if (other.id.step > version.id.step) broken_.insert(other.id.step);
    return step;
  }
  if (reasons.empty()) return std::nullopt;
  throw CheckpointError(ExitCode::CheckpointCorrupt,
                        fmt::format("{}: no step is valid:{}", directory_.options.directory, reasons));
}

// Gives each host what it needs of the version first; in memory, steps that are older than it then give way. If that fails, a
// host that had some files of it may have got others.
LoadedStep CheckpointStore::open_version(const StepVersion& version, const Participants& ranks, const FilesToRead& needed) {
  const std::string name = step_directory_name(version.id.step), temporary = writer_.temporary_name(version.id.step);
  try {
    Completion completion{version, temporary, needed};
    if (directory_.in_memory())
      completion.make_room = [&] {
        directory_.best_effort("removing older steps", [&] { remove_older_than({version.id.start, version.id.step}); });
      };
    complete_on_all_hosts(directory_.host_directory(ranks), completion);
    directory_.copies.forget(name);
    std::optional<LoadedStep> step;
    together(ranks, [&]() -> std::string {
      step.emplace(directory_.files, directory_.path(name), needed ? StepFiles::ThoseHere : StepFiles::All);
      return "";
    });
    return std::move(*step);
  } catch (const CheckpointError&) {
    if (directory_.leads(ranks))
      directory_.best_effort("removing what was copied", [&] { directory_.remove_if_there(temporary); });
    throw;
  }
}

std::optional<LoadedStep> CheckpointStore::open_newer(const StepAge& age, const Participants& ranks,
                                                      const FilesToRead& needed) {
  for (const StepVersion& version : gather_versions(directory_.copies, directory_.options.hosts, ranks)) {
    if (StepAge{version.id.start, version.id.step} <= age) continue;
    try {
      return open_version(version, ranks, needed);
    } catch (const CheckpointError& error) {  // no room for a copy, too: there are older steps, and those on disk
      if (error.exit_code() == ExitCode::CheckpointCorrupt) refused_.insert(version.id);
      if (ranks.rank == 0) directory_.warn(fmt::format("{}; trying an older step", error.what()));
    }
  }
  return std::nullopt;
}

LoadedStep CheckpointStore::open(int64_t step) const {
  const auto steps = readable_steps(directory_.files, directory_.options.directory);
  const auto found = std::find_if(steps.begin(), steps.end(), [&](const StepDirectory& known) { return known.step == step; });
  if (found == steps.end()) {
    std::string known;
    for (const StepDirectory& other : steps) known += fmt::format("{}{}", known.empty() ? "" : ", ", other.step);
    throw CheckpointError(ExitCode::Usage, fmt::format("{}: there is no step {}; there are: {}", directory_.options.directory,
                                                       step, known.empty() ? "none" : known));
  }
  return LoadedStep(directory_.files, directory_.path(found->name));
}

}  // namespace trivet::checkpoint
