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

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/checkpoint/directory_lock.h"
#include "engine/checkpoint/kept_steps.h"
#include "engine/checkpoint/lineage.h"
#include "engine/checkpoint/loaded_step.h"
#include "engine/checkpoint/step_writer.h"
#include "engine/checkpoint/store_directory.h"

namespace trivet::checkpoint {

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

  const std::string& directory() const { return directory_.options.directory; }
  // The newest step, valid or not, that acquire() found or save() made; -1: none.
  int64_t newest_step() const { return last_committed_; }
  // The newest step with a readable manifest that acquire() found.
  const StepAge& newest_found() const { return newest_found_; }
  const Lineage& lineage() const { return lineage_; }
  // Sets the lineage of steps that are saved from now on.
  void set_lineage(const Lineage& lineage) { lineage_ = lineage; }
  // Returns the same; without steps that were found, the origin is this start's run.
  Lineage named_lineage() const;
  // Returns this store's directory, where lineage.h remembers runs and disks.
  StoreDirectory& place() { return directory_; }
  // The job has gone on from this step, which is not in this directory. The next save sets those with a greater number aside:
  // they are of an earlier start, or damaged.
  void abandon_steps_after(int64_t step, const Participants& ranks);
  // In memory: removes all steps, and the directory if nothing else is in it. The store is of no use afterwards.
  void remove_everything(const Participants& ranks);
  void warn(const std::string& text) { directory_.warn(text); }
  const std::vector<std::string>& warnings() const { return directory_.warnings; }  // all that were logged

 private:
  struct Described {
    SavedStep saved;
    int64_t best_step;  // at the time of the save; 0: none
  };
  static Described describe(const SaveRequest& request);
  std::string state_of_last_step(const Participants& ranks);
  bool last_step_is_complete(const Participants& ranks);
  void tidy_up(const SavedStep& saved);
  void remove_all_but(const std::string& kept);
  void remove_older_than(const StepAge& age);  // on leaders
  void keep_newest_complete(const Participants& ranks);
  bool is_usable(const StepVersion& version) const { return version.is_complete() && !refused_.contains(version.id); }
  std::optional<LoadedStep> open_latest_of_hosts(const Participants& ranks);
  LoadedStep open_version(const StepVersion& version, const Participants& ranks, const FilesToRead& needed);
  void set_broken_aside();
  void warn_of_later_steps(int64_t committed);

  StoreDirectory directory_;
  DirectoryLock lock_;
  StepWriter writer_;
  KeptSteps kept_;
  bool acquired_ = false, warned_of_later_steps_ = false;
  int64_t last_committed_ = -1;
  Lineage lineage_;
  StepAge newest_found_;
  std::set<int64_t> broken_;     // steps that were passed over
  std::set<VersionId> refused_;  // the same of open_newer()
};

}  // namespace trivet::checkpoint
