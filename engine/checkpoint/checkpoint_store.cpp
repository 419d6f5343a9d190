#include "engine/checkpoint/checkpoint_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <sstream>

#include "core/error.h"
#include "engine/checkpoint/run_state.h"
#include "engine/checkpoint/shard_file.h"

namespace trivet::checkpoint {
namespace {

constexpr std::string_view kTemporary = ".tmp-", kTrash = ".trash-";
constexpr const char* kLock = ".lock";
constexpr std::string_view kStartOfJob = ", start ";
constexpr const char* kOrigin = ".origin";
constexpr const char* kDisk = ".disk";
constexpr int64_t kDiskLimitBytes = 4096;  // PATH_MAX
constexpr int64_t kOriginLimitBytes = 128;
constexpr std::chrono::milliseconds kLockInterval{50};

// Whether only a store names something so: another program's ".tmp-work" is not removed.
bool is_left_over(std::string_view name) {
  const auto is_of_step = [](std::string_view rest) {
    constexpr size_t kName = std::string_view("step-").size();
    return parse_step(std::string(rest.substr(0, rest.find('-', kName)))).has_value();
  };
  if (name.starts_with(kTrash)) return is_of_step(name.substr(kTrash.size()));
  if (!name.starts_with(kTemporary)) return false;
  const std::string_view rest = name.substr(kTemporary.size());
  return rest == "origin" || rest == kLatestName || rest == kBestName || rest.starts_with("mark-") || is_of_step(rest);
}

std::string holder_text(const CheckpointStoreOptions& options) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {'?'};
  const std::string start =
      options.job.empty() ? "" : fmt::format("{}{} of job {}", kStartOfJob, options.start_of_job, options.job);
  return fmt::format("run {} (process {} on {}){}", options.run_id, ::getpid(), host.data(), start);
}

[[noreturn]] void throw_not_written(const std::string& text) { throw CheckpointError(ExitCode::CheckpointNotWritten, text); }

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

CheckpointStore::CheckpointStore(FileSystem& files, CheckpointStoreOptions options)
    : files_(files), options_(std::move(options)), copies_(files, options_.directory) {
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
    if (is_in_place()) warn(fmt::format("checkpoint: {}: {}", what, error.what()));  // otherwise the next save says so
  }
}

template <typename Work>
std::vector<std::string> CheckpointStore::on_leaders(const Participants& ranks, Work&& work) const {
  return together(ranks, [&]() -> std::string { return leads(ranks) ? work() : ""; });
}

void CheckpointStore::acquire(const Participants& ranks, const Lineage& known) {
  on_leaders(ranks, [&] {
    if (!in_memory()) create_directories(files_, options_.directory);
    return "";
  });
  if (options_.hosts.count() > 1) check_sharing(ranks);
  on_leaders(ranks, [&] {
    take_lock();
    return "";
  });
  if (per_host()) finish_commits(ranks);
  const auto newest = on_leaders(ranks, [&] {
    clear_leftovers();
    const auto steps = list_steps(files_, options_.directory);
    return std::to_string(steps.empty() ? -1 : steps.back().step);
  });
  for (const std::string& step : newest)
    if (!step.empty()) last_committed_ = std::max<int64_t>(last_committed_, std::stoll(step));
  find_lineage(ranks, known);
  acquired_ = true;
}

// A host commits a step only when all hosts have everything for it. If they were stopped when some had committed it and some
// had not, the others do it now. The manifest is what a host writes last.
void CheckpointStore::finish_commits(const Participants& ranks) {
  const auto versions = gather_versions(copies_, options_.hosts, ranks);
  on_leaders(ranks, [&] {
    for (const DirectoryEntry& entry : files_.list(options_.directory)) {
      if (!entry.name.starts_with(std::string(kTemporary) + "step-")) continue;
      const VersionId prepared = copies_.version_in(entry.name);
      const bool committed =
          prepared.manifest_bytes > 0 && std::any_of(versions.begin(), versions.end(), [&](const StepVersion& version) {
            return version.id == prepared && !version.files.contains(options_.hosts.self());
          });
      if (committed) commit(prepared.step, entry.name);
    }
    return "";
  });
}

CheckpointStore::FoundSteps CheckpointStore::find_steps(const Participants& ranks) {
  FoundSteps found;
  const auto add = [&](const StepAge& age, const std::string& origin, int host) {
    found.newest = std::max(found.newest, age);
    found.hosts_by_origin[origin].insert(host);
  };
  if (per_host()) {
    for (const StepVersion& version : gather_versions(copies_, options_.hosts, ranks))
      for (const auto& [host, names] : version.files)
        if (version.is_readable()) add({version.id.start, version.id.step}, version.origin, host);
    return found;
  }
  std::istringstream text(together(ranks, [&]() -> std::string {
    const auto newest = ranks.rank == 0 ? copies_.newest() : std::nullopt;
    return newest ? fmt::format("{} {} {}", newest->id.start, newest->id.step, newest->origin) : "";
  })[0]);
  StepAge age;
  std::string origin;
  if (text >> age.start >> age.step >> origin) add(age, origin, 0);
  return found;
}

// A host that joins the job may hold steps of another run, which must not be taken for later ones of this job.
void CheckpointStore::find_lineage(const Participants& ranks, const Lineage& known) {
  const FoundSteps found = find_steps(ranks);
  const auto& hosts = found.hosts_by_origin;
  const bool of_another_run = !hosts.empty() && !known.origin.empty() && hosts.begin()->first != known.origin;
  if (hosts.size() > 1 || of_another_run) refuse_different_runs(hosts, known);
  newest_found_ = found.newest;
  lineage_.start = std::max({int64_t{1}, known.start, newest_found_.start + 1});
  lineage_.origin = hosts.empty() ? known.origin : hosts.begin()->first;
}

void CheckpointStore::refuse_different_runs(const std::map<std::string, std::set<int>>& hosts_by_origin,
                                            const Lineage& known) const {
  std::string found;
  for (const auto& [origin, hosts] : hosts_by_origin) {
    if (origin == known.origin) continue;
    found += fmt::format("{}of run {} on {}", found.empty() ? "" : ", ", origin,
                         options_.hosts.names_of({hosts.begin(), hosts.end()}));
  }
  if (known.origin.empty())
    throw ConfigError(
        fmt::format("{}: \"{}\" holds steps of different runs: {}; empty it on the hosts whose steps are not wanted",
                    key("directory"), options_.directory, found));
  throw ConfigError(
      fmt::format("{}: \"{}\" holds steps {}, but the steps of checkpoint.directory are of run {}; if those in memory are not "
                  "wanted, remove that directory on these hosts",
                  key("directory"), options_.directory, found, known.origin));
}

void CheckpointStore::remember_lineage(const Participants& ranks) {
  on_leaders(ranks, [&]() -> std::string {
    const std::string temporary = std::string(kTemporary) + "origin";
    write_text(files_, path(temporary), fmt::format("{} {}\n", origin(), lineage_.start));
    files_.rename(path(temporary), path(kOrigin));
    files_.sync_directory(options_.directory);
    return "";
  });
}

// If hosts remember different runs, the first one's counts: the steps of another one are then refused.
Lineage CheckpointStore::remembered_lineage(const Participants& ranks, const std::string& origin) const {
  const auto texts = on_leaders(ranks, [&]() -> std::string {
    if (files_.kind(path(kOrigin)) == EntryKind::Missing) return "";
    return read_text(files_, path(kOrigin), kOriginLimitBytes);
  });
  Lineage lineage;
  for (const std::string& text : texts) {
    Lineage one;
    std::istringstream(text) >> one.origin >> one.start;
    if (!is_safe_run_id(one.origin) || (!origin.empty() && one.origin != origin)) continue;
    if (lineage.origin.empty()) lineage.origin = one.origin;
    if (one.origin == lineage.origin) lineage.start = std::max(lineage.start, one.start);
  }
  return lineage;
}

void CheckpointStore::remember_disk(const std::string& disk, const Participants& ranks) {
  on_leaders(ranks, [&]() -> std::string {
    best_effort("writing .disk",
                [&] { write_text(files_, path(kDisk), disk); });  // there may be no room before a step gives way
    return "";
  });
}

std::set<std::string> CheckpointStore::remembered_disks(const Participants& ranks) const {
  const auto texts = on_leaders(ranks, [&]() -> std::string {
    if (list_steps(files_, options_.directory).empty() || files_.kind(path(kDisk)) == EntryKind::Missing) return "";
    return read_text(files_, path(kDisk), kDiskLimitBytes);
  });
  std::set<std::string> disks(texts.begin(), texts.end());
  disks.erase("");
  return disks;
}

// Asked before a save, before its commit and before steps are removed, not in every call (docs/security.md).
void CheckpointStore::require_in_place() const {
  if (!is_in_place()) throw FileError("find the directory that this run has made,", options_.directory, ENOENT);
}

bool CheckpointStore::sees_directory(const std::string& other, const Participants& ranks) const {
  const auto seen = on_leaders(ranks, [&] { return files_.kind(other) == EntryKind::Directory ? "yes" : ""; });
  return std::find(seen.begin(), seen.end(), "yes") != seen.end();
}

void CheckpointStore::abandon_steps_after(int64_t step, const Participants& ranks) {
  if (!leads(ranks)) return;
  best_effort("looking for later steps", [&] {
    for (const StepDirectory& later : list_steps(files_, options_.directory))
      if (later.step > step) broken_.insert(later.step);
  });
}

std::string CheckpointStore::mark_of(int host) const {
  return path(fmt::format("{}mark-{}-{}", kTemporary, options_.run_id, host));
}

// -1: none. Without replicas, a network file system may take a moment to show what another host has written.
int CheckpointStore::host_whose_mark_is_here() const {
  const JobHosts& hosts = options_.hosts;
  if (!per_host() && hosts.self() == 0) return 0;
  const auto deadline = options_.clock->now() + (per_host() ? std::chrono::milliseconds(0) : options_.lock_patience);
  for (;; options_.clock->sleep(kLockInterval)) {
    for (int host = 0; host < (per_host() ? hosts.count() : 1); ++host)
      if (host != hosts.self() && files_.kind(mark_of(host)) != EntryKind::Missing) return host;
    if (options_.clock->now() >= deadline) return -1;
  }
}

// Leaders leave a mark, and whoever sees that of another host shares its directory.
void CheckpointStore::check_sharing(const Participants& ranks) {
  const JobHosts& hosts = options_.hosts;
  on_leaders(ranks, [&] {
    write_text(files_, mark_of(hosts.self()), "");
    files_.sync_directory(options_.directory);
    return "";
  });
  const auto seen = together(ranks, [&] { return hosts.leads() ? std::to_string(host_whose_mark_is_here()) : ""; });
  if (leads(ranks)) best_effort("removing a mark", [&] { files_.remove(mark_of(hosts.self())); });
  for (int host = 1; host < hosts.count(); ++host) {
    const int other = std::stoi(seen[hosts.map.ranks[host].front()]);
    if (per_host() && other >= 0) refuse_to_share(host, other);
    if (!per_host() && other < 0)
      throw ConfigError(
          fmt::format("checkpoint.directory: \"{}\" on host {} is not the directory of that name on host {}; name "
                      "one on a file system that all hosts share, or set checkpoint.replicas to 1: then each "
                      "host keeps its own files and those of a neighbour",
                      options_.directory, hosts.names[host], hosts.names[0]));
  }
}

void CheckpointStore::refuse_to_share(int host, int other) const {
  const auto& names = options_.hosts.names;
  const std::string &first = names[std::min(host, other)], &second = names[std::max(host, other)];
  if (in_memory())
    throw ConfigError(fmt::format("{}: \"{}\" is the same directory on hosts {} and {}; name one in the memory of each host",
                                  key("directory"), options_.directory, first, second));
  throw ConfigError(
      fmt::format("{0}: {1} needs a directory on each host, but hosts {2} and {3} have the same {4} \"{5}\"; set {0} to 0, or "
                  "name a directory of the hosts' own disks",
                  key("replicas"), options_.replicas, first, second, key("directory"), options_.directory));
}

void CheckpointStore::take_lock() {
  const auto deadline = options_.clock->now() + options_.lock_patience;
  for (bool told = false;; told = true) {
    LockAttempt attempt = files_.lock(path(kLock), holder_text(options_));
    lock_ = std::move(attempt.lock);
    if (lock_) return;
    if (attempt.has_lapsed && is_of_earlier_start(attempt.holder)) {
      warn(fmt::format("{}: {} has given no sign of life for {} s; this later start of its job takes the directory over",
                       options_.directory, escape_control(attempt.holder), kLockLease.count()));
      files_.remove(path(kLock));
      continue;
    }
    const std::string others =
        fmt::format("{}: checkpoints of {} are being written here", options_.directory, escape_control(attempt.holder));
    if (options_.clock->now() >= deadline) give_the_lock_up(attempt.holder, others);
    if (!told)
      warn(fmt::format("{}; waiting up to {:.3g} s for it to end", others,
                       static_cast<double>(options_.lock_patience.count()) / 1000));
    options_.clock->sleep(kLockInterval);
  }
}

// An earlier start of this job will end or be ended, so the next start may succeed: Rendezvous, as for all ranks that a start
// waits for in vain.
void CheckpointStore::give_the_lock_up(const std::string& holder, const std::string& others) const {
  if (is_of_earlier_start(holder))
    throw CheckpointError(ExitCode::Rendezvous,
                          fmt::format("{}; that is an earlier start of this job, which has not ended in {:.3g} s", others,
                                      static_cast<double>(options_.lock_patience.count()) / 1000));
  throw_not_written(fmt::format("{}; choose another {} or end that run", others, key("directory")));
}

bool CheckpointStore::is_of_earlier_start(const std::string& holder) const {
  const size_t at = holder.rfind(kStartOfJob);
  if (options_.job.empty() || at == std::string::npos) return false;
  std::istringstream words(holder.substr(at + kStartOfJob.size()));
  int64_t start = 0;
  std::string of, job, name;
  return words >> start >> of >> job >> name && name == options_.job && start < options_.start_of_job;
}

void CheckpointStore::require_lock() const {
  if (lock_ && !lock_->holds())
    throw_not_written(fmt::format("{}: a later start of this job has taken the directory over; this one writes nothing more",
                                  options_.directory));
}

void CheckpointStore::clear_leftovers() {
  for (const DirectoryEntry& entry : files_.list(options_.directory)) {
    best_effort("clearing leftovers", [&] {
      if (is_left_over(entry.name)) return remove_if_there(entry.name);
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

std::string CheckpointStore::temporary_name(int64_t step) const {
  return fmt::format("{}{}-{}", kTemporary, step_directory_name(step), options_.run_id);
}

void CheckpointStore::save(const SaveRequest& request, const Participants& ranks) {
  if (!acquired_) acquire(ranks);
  const auto [saved, best] = describe(request);
  const std::string temporary = temporary_name(request.step);
  const auto discard = [&] {
    if (leads(ranks) && is_in_place()) best_effort("removing what was written", [&] { remove_if_there(temporary); });
  };
  try {
    const auto created = on_leaders(ranks, [&] {
      require_in_place();
      require_lock();
      remove_if_there(temporary);
      files_.create_directory(path(temporary));
      return std::to_string(options_.clock->unix_seconds());
    });
    const auto shares = write_files(request, temporary, ranks);
    const auto manifests =
        on_leaders(ranks, [&] { return write_manifest(request, temporary, shares, std::stoll(created[0])); });
    for (const std::string& manifest : manifests)
      if (!manifest.empty() && manifest != manifests[0])
        throw std::logic_error("checkpoint: hosts have different manifests of a step");
    on_leaders(ranks, [&] {
      require_in_place();
      require_lock();
      commit(request.step, temporary);
      return "";
    });
  } catch (const NumericsError& error) {
    discard();
    throw NumericsError(fmt::format("step {} is not saved: {}; resume from an earlier step with a lower optimizer.params.lr",
                                    request.step, error.what()));
  } catch (const CheckpointError& error) {
    discard();
    const std::string left = state_of_last_step(ranks);
    if (in_memory()) keep_newest_complete(ranks);
    const std::string text = fmt::format("checkpoint of step {} was not written: {}{}", request.step, error.what(), left);
    if (per_host() && dynamic_cast<const FailedHere*>(&error)) throw FailedHere(ExitCode::CheckpointNotWritten, text);
    throw_not_written(text);
  }
  last_committed_ = request.step;
  best_step_ = best;
  if (leads(ranks)) tidy_up(saved);
  if (per_host() && !in_memory() && options_.keep > 0) apply_agreed_retention(request.step, ranks);
}

// What is saved must be loadable; anything else is a bug in the caller.
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

// For the message of a save that failed. The last step is opened again: whatever broke this save may have broken it, too.
std::string CheckpointStore::state_of_last_step(const Participants& ranks) {
  if (last_committed_ < 0) return "";
  if (per_host())
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
    const auto versions = gather_versions(copies_, options_.hosts, ranks);
    return std::any_of(versions.begin(), versions.end(),
                       [&](const StepVersion& version) { return version.id.step == last_committed_ && is_usable(version); });
  } catch (const CheckpointError&) {
    return false;
  }
}

// Returns the shares of all ranks. With replicas, the files are then on other hosts, too.
std::vector<std::string> CheckpointStore::write_files(const SaveRequest& request, const std::string& temporary,
                                                      const Participants& ranks) {
  Manifest own;
  const auto shares = together(ranks, [&] {
    own = write_share(request, path(temporary), ranks.rank);
    return to_text(own);
  });
  if (per_host()) copy_to_neighbours(host_directory(ranks), temporary, own.files.begin()->second, options_.replicas);
  return shares;
}

Manifest CheckpointStore::write_share(const SaveRequest& request, const std::string& temporary, int rank) const {
  try {
    return write_shard(files_, temporary, {options_.run_id, request.step, rank}, request.pieces);
  } catch (const FileError& error) {
    if (error.error_number() != ENOSPC) throw;
    int64_t needed = 0;
    for (const Piece& piece : request.pieces) needed += piece.data.bytes();
    throw_not_written(fmt::format("{}; this rank needs {:.1f} MiB, {:.1f} MiB are free", error.what(), mib(needed),
                                  mib(files_.free_bytes(options_.directory))));
  }
}

std::string CheckpointStore::write_manifest(const SaveRequest& request, const std::string& temporary,
                                            const std::vector<std::string>& shares, int64_t created) const {
  Manifest manifest;
  manifest.run_id = options_.run_id;
  manifest.step = request.step;
  manifest.created = created;
  manifest.ranks = static_cast<int64_t>(shares.size());
  manifest.config = request.config;
  manifest.state = request.state;
  for (const std::string& share : shares) merge(manifest, parse_share(share, "a rank's share"));
  check_partition(manifest, "the ranks' shares");
  manifest.origin = origin();
  manifest.start = lineage_.start;
  if (per_host()) {
    manifest.hosts = files_by_host(options_.hosts, options_.replicas);
  }
  const std::string text = to_text(manifest);
  write_text(files_, path(temporary) + "/" + kManifestName, text);
  files_.sync_directory(path(temporary));
  return text.substr(0, text.find('\n'));  // its checksum
}

void CheckpointStore::commit(int64_t step, const std::string& temporary) {
  const std::string final_name = step_directory_name(step);
  copies_.forget(final_name);
  copies_.forget(displaced_name(step));
  if (files_.kind(path(final_name)) != EntryKind::Missing) {
    if (files_.kind(path(temporary)) == EntryKind::Missing) throw FileError("find", path(temporary), ENOENT);
    const std::string aside = broken_.contains(step) ? broken_name(step) : displaced_name(step);
    remove_if_there(aside);
    files_.rename(path(final_name), path(aside));
  }
  files_.rename(path(temporary), path(final_name));
  files_.sync_directory(options_.directory);
}

void CheckpointStore::tidy_up(const SavedStep& saved) {
  const int64_t committed = saved.step;
  if (in_memory()) return best_effort("removing old steps", [&] { remove_all_but(step_directory_name(committed)); });
  contents_[committed] = *saved.content;
  broken_.erase(committed);
  best_effort("removing the step that was replaced", [&] { remove_if_there(displaced_name(committed)); });
  best_effort("writing the name of the newest step", [&] { write_name(kLatestName, committed); });
  best_effort("setting a broken step aside", [&] { set_broken_aside(); });
  best_effort("writing the name of the best step", [&] { name_best_step(); });
  best_effort("looking for later steps", [&] { warn_of_later_steps(committed); });
  if (!per_host()) best_effort("removing old steps", [&] { apply_retention(committed); });
}

// A file that names a step (steps.h).
void CheckpointStore::write_name(std::string_view name, int64_t step) {
  const std::string temporary = fmt::format("{}{}", kTemporary, name);
  write_text(files_, path(temporary), step_directory_name(step) + "\n");
  files_.rename(path(temporary), path(std::string(name)));
}

// The best step may have been damaged and set aside, or the run may not look for one any more. Something else of this name,
// such as a directory, belongs to somebody else and stays.
void CheckpointStore::name_best_step() {
  const bool there = best_step_ > 0 && files_.kind(path(step_directory_name(best_step_))) != EntryKind::Missing;
  const std::string name = path(std::string(kBestName));
  if (there)
    write_name(kBestName, best_step_);
  else if (earlier_best_step() == 0 && names_step(files_, name))
    files_.remove(name);
}

// The step that `best` names, if it was the best before one whose save has failed, for example because the disk was full; else
// 0.
int64_t CheckpointStore::earlier_best_step() const {
  const std::string name = path(std::string(kBestName));
  if (!names_step(files_, name)) return 0;
  const std::string step = follow_name(files_, name);
  const int64_t named = *parse_step(std::filesystem::path(step).filename().string());
  return named < best_step_ && files_.kind(step) != EntryKind::Missing ? named : 0;
}

std::vector<int64_t> CheckpointStore::steps_to_remove(const std::vector<SavedStep>& steps) const {
  const bool there = std::ranges::find(steps, best_step_, &SavedStep::step) != steps.end();
  return checkpoint::steps_to_remove(steps, options_.keep, there ? best_step_ : earlier_best_step());
}

// Leaves alone what is not of a store.
void CheckpointStore::remove_all_but(const std::string& kept) {
  require_in_place();
  for (const DirectoryEntry& entry : files_.list(options_.directory)) {
    const bool left_over = is_left_over(entry.name) || entry.name.starts_with(kDisplaced);
    if (entry.name == kept || (!left_over && !parse_step(entry.name))) continue;
    remove_if_there(entry.name);
    copies_.forget(entry.name);
  }
}

void CheckpointStore::remove_older_than(const StepAge& age) {
  for (const StepDirectory& step : list_steps(files_, options_.directory)) {
    if (StepAge{copies_.version_of(step).start, step.step} >= age) continue;
    remove_if_there(step.name);
    copies_.forget(step.name);
  }
}

void CheckpointStore::remove_older_than(const StepAge& age, const Participants& ranks) {
  on_leaders(ranks, [&] {
    best_effort("removing older steps", [&] { remove_older_than(age); });
    return "";
  });
}

// After a save that failed, perhaps because steps that nobody will open take the room. Keeps this start's last step, otherwise
// the newest that is complete. If none is, this job has gone on from the disk, and none of those that are here is of use to it.
void CheckpointStore::keep_newest_complete(const Participants& ranks) {
  std::vector<StepVersion> versions;
  try {
    versions = gather_versions(copies_, options_.hosts, ranks);
  } catch (const CheckpointError&) {
    return;  // a directory cannot be listed: nothing is known, and the save's own error is reported
  }
  if (!leads(ranks) || !is_in_place()) return;
  std::erase_if(versions, [&](const StepVersion& version) { return !is_usable(version); });
  auto kept = std::find_if(versions.begin(), versions.end(), [&](const StepVersion& version) {
    return version.id.start == lineage_.start && version.id.step == last_committed_;
  });
  if (kept == versions.end()) kept = versions.begin();  // the newest
  const bool here = kept != versions.end() && kept->files.contains(options_.hosts.self());
  best_effort("removing old steps", [&] { remove_all_but(here ? step_directory_name(kept->id.step) : ""); });
}

void CheckpointStore::remove_everything(const Participants& ranks) {
  on_leaders(ranks, [&] {
    best_effort("removing the steps in memory", [&] {
      remove_all_but("");
      remove_if_there(kDisk);
      remove_if_there(kLock);
      if (files_.list(options_.directory).empty()) files_.remove(options_.directory);
    });
    return "";
  });
  lock_.reset();
  acquired_ = false;
}

void CheckpointStore::set_broken_aside() {
  while (!broken_.empty()) {
    const int64_t step = *broken_.begin();
    broken_.erase(broken_.begin());
    if (files_.kind(path(step_directory_name(step))) == EntryKind::Missing) continue;
    remove_if_there(broken_name(step));
    files_.rename(path(step_directory_name(step)), path(broken_name(step)));
    copies_.forget(step_directory_name(step));
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
  std::vector<SavedStep> steps;
  const auto known = list_steps(files_, options_.directory);
  for (const StepDirectory& step : known)
    if (step.step <= committed) steps.push_back({step.step, content_of(step)});
  remove_steps(steps_to_remove(steps), known);
}

// The hosts decide together. A step that is not complete counts as damaged.
void CheckpointStore::apply_agreed_retention(int64_t committed, const Participants& ranks) {
  std::map<int64_t, SavedStep> steps;
  try {
    for (const StepVersion& version : gather_versions(copies_, options_.hosts, ranks)) {
      if (version.id.step > committed) continue;
      SavedStep& step = steps[version.id.step];
      step.step = version.id.step;
      if (version.is_complete() && !step.content) step.content = version.content;
    }
  } catch (const CheckpointError& error) {
    if (leads(ranks)) warn(fmt::format("checkpoint: removing old steps: {}", error.what()));
    return;
  }
  if (!leads(ranks) || steps.empty()) return;
  std::vector<SavedStep> ascending;
  for (const auto& [number, step] : steps) ascending.push_back(step);
  best_effort("removing old steps", [&] { remove_steps(steps_to_remove(ascending), list_steps(files_, options_.directory)); });
}

void CheckpointStore::remove_steps(const std::vector<int64_t>& steps, const std::vector<StepDirectory>& known) {
  for (const StepDirectory& step : known) {
    if (!std::binary_search(steps.begin(), steps.end(), step.step)) continue;
    const std::string trash = std::string(kTrash) + step_directory_name(step.step);
    remove_if_there(trash);
    files_.rename(path(step.name), path(trash));
    remove_if_there(trash);
    contents_.erase(step.step);
    copies_.forget(step.name);
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
  if (per_host()) return open_latest_of_hosts(ranks);
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

std::optional<LoadedStep> CheckpointStore::open_latest_of_hosts(const Participants& ranks) {
  if (!acquired_) acquire(ranks);
  const auto versions = gather_versions(copies_, options_.hosts, ranks);
  std::string reasons;
  for (const StepVersion& version : versions) {
    std::optional<LoadedStep> step;
    try {
      step.emplace(open_version(version, ranks, {}));
    } catch (const CheckpointError& error) {
      if (error.exit_code() != ExitCode::CheckpointCorrupt) throw;
      reasons += fmt::format("\n  {}", error.what());
      if (ranks.rank == 0) warn(fmt::format("{}; trying the step before it", error.what()));
      continue;
    }
    // Later steps are of an earlier start, or were just refused. They must not become the newest again.
    for (const StepVersion& other : versions)
      if (other.id.step > version.id.step) broken_.insert(other.id.step);
    return step;
  }
  if (reasons.empty()) return std::nullopt;
  throw CheckpointError(ExitCode::CheckpointCorrupt, fmt::format("{}: no step is valid:{}", options_.directory, reasons));
}

// Gives each host what it needs of the version first; in memory, steps that are older than it then give way. If that fails, a
// host that had some files of it may have got others.
LoadedStep CheckpointStore::open_version(const StepVersion& version, const Participants& ranks, const FilesToRead& needed) {
  const std::string name = step_directory_name(version.id.step), temporary = temporary_name(version.id.step);
  try {
    Completion completion{version, temporary, needed};
    if (in_memory())
      completion.make_room = [&] {
        best_effort("removing older steps", [&] { remove_older_than({version.id.start, version.id.step}); });
      };
    complete_on_all_hosts(host_directory(ranks), completion);
    copies_.forget(name);
    std::optional<LoadedStep> step;
    together(ranks, [&]() -> std::string {
      step.emplace(files_, path(name), needed ? StepFiles::ThoseHere : StepFiles::All);
      return "";
    });
    return std::move(*step);
  } catch (const CheckpointError&) {
    if (leads(ranks)) best_effort("removing what was copied", [&] { remove_if_there(temporary); });
    throw;
  }
}

std::optional<LoadedStep> CheckpointStore::open_newer(const StepAge& age, const Participants& ranks,
                                                      const FilesToRead& needed) {
  for (const StepVersion& version : gather_versions(copies_, options_.hosts, ranks)) {
    if (StepAge{version.id.start, version.id.step} <= age) continue;
    try {
      return open_version(version, ranks, needed);
    } catch (const CheckpointError& error) {  // no room for a copy, too: there are older steps, and those on disk
      if (error.exit_code() == ExitCode::CheckpointCorrupt) refused_.insert(version.id);
      if (ranks.rank == 0) warn(fmt::format("{}; trying an older step", error.what()));
    }
  }
  return std::nullopt;
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
