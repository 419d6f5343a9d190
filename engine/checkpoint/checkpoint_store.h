// A directory of checkpoints (docs/checkpoint_format.md). All ranks of a job share it, or, with `replicas` or in memory, those
// of each host have one of their own, under the same path.
//
//   .tmp-step-00000200-RUN  --fsync, one rename-->  step-00000200  --retention-->  .trash-step-00000100  --> gone
//                           an existing step of that number: .old-step-00000200, until the new one is in place
//
// A leader creates and renames directories: rank 0, or the first rank of each host. Every rank writes its own file. If the job
// is killed or power is lost at any moment, the newest committed step stays loadable and nothing blocks a later commit: the
// next job that acquires the directory removes leftovers. Functions that take Participants are called by all ranks together and
// fail on all of them alike. One thread at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/log.h"
#include "engine/checkpoint/host_copies.h"
#include "engine/checkpoint/job_hosts.h"
#include "engine/checkpoint/loaded_step.h"
#include "engine/checkpoint/piece.h"
#include "engine/checkpoint/retention.h"
#include "engine/checkpoint/step_copies.h"
#include "engine/checkpoint/steps.h"
#include "engine/checkpoint/together.h"

namespace trivet::checkpoint {

// Disk: steps stay until retention removes them, and damaged ones are set aside for inspection.
// Memory: each host has a directory of its own, made by the caller. It holds only the newest step, and nothing for inspection.
enum class Medium : uint8_t { Disk, Memory };

// What all steps of a job have in common, however often it was started.
struct Lineage {
  std::string origin;  // the run_id of its first start; empty: no step was found, so this start may be the first
  int64_t start = 0;   // the number of this start, from 1: more than that of any start before it
};

// A step of a later start is newer, whatever its number.
struct StepAge {
  // -1: older than any step.
  int64_t start = -1, step = -1;
  auto operator<=>(const StepAge&) const = default;  // NOLINT(modernize-use-nullptr): in the generated comparison
};

struct CheckpointStoreOptions {
  std::string directory;
  std::string run_id;  // [A-Za-z0-9._-]{1,64}
  // The job that a launcher starts again, and the number of this start; empty: nobody does. A later start may take the
  // directory from an earlier one that gives no sign of life any more (kLockLease).
  std::string job = {};
  int64_t start_of_job = 0;
  std::string section = "checkpoint";  // of the config, for messages
  Medium medium = Medium::Disk;
  int64_t keep = 0;  // on disk: clean steps that retention keeps (retention.h); 0: all
  // How long acquire() waits for another job to leave the directory: a killed job may take seconds to end.
  std::chrono::milliseconds lock_patience{0};
  // Above 0: every host has a directory of its own and keeps a copy of the files of that many hosts before it. Any
  // that many hosts next to each other can be lost.
  int replicas = 0;
  // Must be given with replicas and in memory; otherwise, more than one host is only checked to share the directory.
  JobHosts hosts = {};
  // In memory: whether the directory is still the one that the caller made (HeldDirectory). Nothing is written to, or removed
  // from, another one. Asked on leaders.
  std::function<bool()> is_in_place = {};
  Log log = {};
  const Clock* clock = &system_clock();
};

struct SaveRequest {
  int64_t step = 0;
  std::span<const Piece> pieces;  // this rank's; all ranks together give each element of a tensor exactly once
  std::string state;              // to_text(RunState), of the same step; rank 0's is stored
  std::string config;             // the resolved config; rank 0's is stored
};

class CheckpointStore {
 public:
  CheckpointStore(FileSystem& files, CheckpointStoreOptions options);

  // Locks the directory for this job until the store is destroyed, or a later start of the job takes it over: then nothing is
  // written any more, for this start's files are removed before the other one's are made, and each save checks the lock before
  // it begins and before the rename that commits it. Removes what killed jobs left. Throws CheckpointError naming the holder
  // when another job (CheckpointNotWritten) or an earlier start of this one (Rendezvous) keeps the directory for longer than
  // lock_patience. Throws ConfigError if hosts share a directory although there are replicas, or do not share it although there
  // are none, or if they hold steps of different runs, or of another run than `known`, that of the job's other store. save()
  // calls this if it has not been called.
  void acquire(const Participants& ranks, const Lineage& known = {});
  // Returns when the step is durable. Throws CheckpointError (CheckpointNotWritten) when the step cannot be written; the steps
  // before it are as they were. If hosts have directories of their own, ranks of a host that could not write its files throw a
  // FailedHere instead. Throws NumericsError when a piece holds a NaN or an infinity: nothing is saved, and all ranks
  // throw the same text, which names the piece.
  void save(const SaveRequest& request, const Participants& ranks);

  // Opens the newest valid step after comparing every checksum; each rank reads a share. Steps that are not valid are passed
  // over with a warning. With replicas, it first copies to each host the files that it lacks. Empty when there are no steps;
  // throws CheckpointError (CheckpointCorrupt) when there are steps but none is valid.
  std::optional<LoadedStep> open_latest(const Participants& ranks);
  // In memory: the newest valid step that is newer than `age`. A host gets only the files that its ranks read. Steps that
  // cannot be opened are passed over with a warning; empty when there is no other one.
  std::optional<LoadedStep> open_newer(const StepAge& age, const Participants& ranks, const FilesToRead& needed);
  LoadedStep open(int64_t step) const;
  // In memory: removes the steps that are older than `age`, which nobody will open any more, so that there is room for others.
  void remove_older_than(const StepAge& age, const Participants& ranks);

  const std::string& directory() const { return options_.directory; }
  // The newest step, valid or not, that acquire() found or save() made; -1: none.
  int64_t newest_step() const { return last_committed_; }
  // The newest step with a readable manifest that acquire() found.
  const StepAge& newest_found() const { return newest_found_; }
  const Lineage& lineage() const { return lineage_; }
  // For steps that are saved from now on.
  void set_lineage(const Lineage& lineage) { lineage_ = lineage; }
  // A file in the directory tells of starts that have saved nothing in it. The first function writes the lineage of this start;
  // the other reads what an earlier one wrote: no origin if there was none.
  void remember_lineage(const Participants& ranks);
  // If `origin` is not empty, only what is of this run.
  Lineage remembered_lineage(const Participants& ranks, const std::string& origin) const;
  // Whether one of the hosts, or rank 0 if they share a directory, sees a directory with this path.
  bool sees_directory(const std::string& path, const Participants& ranks) const;
  // In memory: a file in the directory names the directory on disk of the run whose steps are here, by its absolute path. The
  // first function writes it; the other returns what hosts with steps have, each once.
  void remember_disk(const std::string& disk, const Participants& ranks);
  std::set<std::string> remembered_disks(const Participants& ranks) const;
  // The job has gone on from this step, which is not in this directory. The next save sets those with a greater number aside:
  // they are of an earlier start, or damaged.
  void abandon_steps_after(int64_t step, const Participants& ranks);
  // In memory: removes all steps, and the directory if nothing else is in it. The store is of no use afterwards.
  void remove_everything(const Participants& ranks);
  void warn(const std::string& text);
  const std::vector<std::string>& warnings() const { return warnings_; }  // all that were logged

 private:
  std::string path(const std::string& name) const { return options_.directory + "/" + name; }
  bool in_memory() const { return options_.medium == Medium::Memory; }
  bool per_host() const { return in_memory() || options_.replicas > 0; }
  std::string key(const std::string& name) const { return options_.section + "." + name; }
  bool leads(const Participants& ranks) const { return per_host() ? options_.hosts.leads() : ranks.rank == 0; }
  // Runs work on the leaders, and returns what it returned there, by rank.
  template <typename Work>
  std::vector<std::string> on_leaders(const Participants& ranks, Work&& work) const;
  HostDirectory host_directory(const Participants& ranks) { return {files_, options_.directory, options_.hosts, ranks}; }
  std::string temporary_name(int64_t step) const;
  void check_sharing(const Participants& ranks);
  void finish_commits(const Participants& ranks);
  // Valid manifests of all hosts or, in a directory that they share, that of the newest step.
  struct FoundSteps {
    std::map<std::string, std::set<int>> hosts_by_origin;
    StepAge newest;
  };
  FoundSteps find_steps(const Participants& ranks);
  void find_lineage(const Participants& ranks, const Lineage& known);
  const std::string& origin() const { return lineage_.origin.empty() ? options_.run_id : lineage_.origin; }
  [[noreturn]] void refuse_different_runs(const std::map<std::string, std::set<int>>& hosts_by_origin,
                                          const Lineage& known) const;
  [[noreturn]] void refuse_to_share(int host, int other) const;
  std::string mark_of(int host) const;
  int host_whose_mark_is_here() const;
  void take_lock();
  [[noreturn]] void give_the_lock_up(const std::string& holder, const std::string& others) const;
  bool is_of_earlier_start(const std::string& holder) const;
  void require_lock() const;
  void clear_leftovers();
  Manifest write_share(const SaveRequest& request, const std::string& temporary, int rank) const;
  std::vector<std::string> write_files(const SaveRequest& request, const std::string& temporary, const Participants& ranks);
  // Both are called by leaders. The first returns the checksum of the manifest.
  std::string write_manifest(const SaveRequest& request, const std::string& temporary, const std::vector<std::string>& shares,
                             int64_t created) const;
  void commit(int64_t step, const std::string& temporary);
  struct Described {
    SavedStep saved;
    int64_t best_step;  // at the time of the save; 0: none
  };
  static Described describe(const SaveRequest& request);
  std::string state_of_last_step(const Participants& ranks);
  bool last_step_is_complete(const Participants& ranks);
  void tidy_up(const SavedStep& saved);
  void write_name(std::string_view name, int64_t step);
  void name_best_step();
  int64_t earlier_best_step() const;
  std::vector<int64_t> steps_to_remove(const std::vector<SavedStep>& steps) const;
  void remove_all_but(const std::string& kept);
  void remove_older_than(const StepAge& age);  // on leaders
  void keep_newest_complete(const Participants& ranks);
  bool is_in_place() const { return !options_.is_in_place || options_.is_in_place(); }
  void require_in_place() const;
  bool is_usable(const StepVersion& version) const { return version.is_complete() && !refused_.contains(version.id); }
  void remove_if_there(const std::string& name);
  void apply_retention(int64_t committed);
  void apply_agreed_retention(int64_t committed, const Participants& ranks);
  void remove_steps(const std::vector<int64_t>& steps, const std::vector<StepDirectory>& known);
  std::optional<SavedStep::Content> content_of(const StepDirectory& step);
  std::optional<LoadedStep> open_latest_of_hosts(const Participants& ranks);
  LoadedStep open_version(const StepVersion& version, const Participants& ranks, const FilesToRead& needed);
  void set_broken_aside();
  void warn_of_later_steps(int64_t committed);
  // Runs work whose failure must not undo a commit.
  template <typename Work>
  void best_effort(const char* what, Work&& work);

  FileSystem& files_;
  CheckpointStoreOptions options_;
  std::unique_ptr<FileLock> lock_;
  bool acquired_ = false, warned_of_later_steps_ = false;
  int64_t last_committed_ = -1;
  int64_t best_step_ = 0;  // of the last save
  StepCopies copies_;      // on leaders
  Lineage lineage_;
  StepAge newest_found_;
  std::map<int64_t, SavedStep::Content> contents_;  // known steps, on rank 0
  std::set<int64_t> broken_;                        // steps that were passed over
  std::set<VersionId> refused_;                     // the same of open_newer()
  std::vector<std::string> warnings_;
};

}  // namespace trivet::checkpoint
