// A directory of checkpoints, shared by all ranks of a job (docs/checkpoint_format.md).
//
//   .tmp-step-00000200-RUN  --fsync, one rename-->  step-00000200  --retention-->  .trash-step-00000100  --> gone
//                           a step that stood there already: .old-step-00000200, until the new one has its place
//
// Rank 0 makes and renames directories; every rank writes its own file. A kill or loss of power at any moment leaves the newest
// committed step loadable, and nothing that blocks a later commit: leftovers are removed by the next job that acquires the
// directory. Functions that take Participants are called by all ranks together and fail on all of them alike. One thread at a
// time.
#pragma once

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
#include "engine/checkpoint/loaded_step.h"
#include "engine/checkpoint/participants.h"
#include "engine/checkpoint/piece.h"
#include "engine/checkpoint/retention.h"
#include "engine/checkpoint/steps.h"

namespace trivet::checkpoint {

struct StoreOptions {
  std::string directory;
  std::string run_id;  // [A-Za-z0-9._-]{1,64}
  int64_t keep = 0;    // clean steps that retention leaves (retention.h); 0: all
  // How long acquire() waits for another job to leave the directory: one that was killed may take seconds to end.
  std::chrono::milliseconds lock_patience{0};
  Log log = {};
  const Clock* clock = &system_clock();
};

struct SaveRequest {
  int64_t step = 0;
  std::span<const Piece> pieces;  // this rank's; over all ranks each element of a tensor exactly once
  std::string state;              // to_text(RunState), of the same step; rank 0's is stored
  std::string config;             // the resolved config; rank 0's is stored
};

class Store {
 public:
  Store(FileSystem& files, StoreOptions options);

  // Takes the directory for this job until the store is destroyed, and clears away what killed jobs left. CheckpointError
  // (CheckpointNotWritten) names the holder when another job keeps it for longer than lock_patience. save() does this if it was
  // not done.
  void acquire(const Participants& ranks);
  // Returns when the step is durable. CheckpointError (CheckpointNotWritten): the steps before are as they were. NumericsError:
  // a piece holds a NaN or an infinity; nothing is saved, and all ranks throw the same text, which names it.
  void save(const SaveRequest& request, const Participants& ranks);

  // The newest valid step, every checksum compared, each rank reading a share. Steps that are not valid are passed over, saying
  // so. Empty when there are no steps; CheckpointError (CheckpointCorrupt) when there are and none is valid.
  std::optional<LoadedStep> open_latest(const Participants& ranks);
  LoadedStep open(int64_t step) const;

  const std::string& directory() const { return options_.directory; }
  // The newest step, valid or not, that acquire() found or save() made; -1: none.
  int64_t newest_step() const { return last_committed_; }
  const std::vector<std::string>& warnings() const { return warnings_; }  // all that were logged

 private:
  std::string path(const std::string& name) const { return options_.directory + "/" + name; }
  void warn(const std::string& text);
  void take_lock();
  void clear_leftovers();
  std::string write_share(const SaveRequest& request, const std::string& temporary, int rank) const;
  void commit(const SaveRequest& request, const std::string& temporary, const std::vector<std::string>& shares);
  static SavedStep describe(const SaveRequest& request);
  std::string state_of_last_step(const Participants& ranks) const;
  void tidy_up(const SavedStep& saved);
  void remove_if_there(const std::string& name);
  void apply_retention(int64_t committed);
  std::optional<SavedStep::Content> content_of(const StepDirectory& step);
  void set_broken_aside();
  void warn_of_later_steps(int64_t committed);
  // Runs work whose failure must not undo a commit.
  template <typename Work>
  void best_effort(const char* what, Work&& work);

  FileSystem& files_;
  StoreOptions options_;
  std::unique_ptr<FileLock> lock_;
  bool acquired_ = false, warned_of_later_steps_ = false;
  int64_t last_committed_ = -1;
  std::map<int64_t, SavedStep::Content> contents_;  // of the steps that are known, on rank 0
  std::set<int64_t> broken_;                        // steps that open_latest passed over
  std::vector<std::string> warnings_;
};

}  // namespace trivet::checkpoint
