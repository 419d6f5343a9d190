// The checkpoints that a run saves, if checkpoint.directory is given: the lock on that directory, the saver, and those that it
// saves into memory as well.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "core/buffer.h"
#include "engine/checkpoint/async_saver.h"
#include "engine/checkpoint/checkpoint_store.h"
#include "trainer/memory_checkpoints.h"
#include "trainer/run.h"

namespace trivet::trainer {

// Identifies the data of a run: a run that is resumed must have the same.
std::string data_digest(const data::TrainingData& data);

// Returns how long a start waits for another job to leave its directories: more than the launcher and its agents take
// to end the ranks of a host that was lost (TRIVET_HOST_TIMEOUT).
std::chrono::seconds lock_patience();

class Checkpoints {
 public:
  // Collective: locks the directories.
  explicit Checkpoints(Run& run);

  // The ranks, in a group that only checkpoints use.
  comm::Participants ranks() const { return comm::over_group(*group_); }
  // A store of this run, for a directory that it only reads. All ranks must see the same steps there.
  checkpoint::CheckpointStoreOptions store_options(const std::string& directory) const;
  checkpoint::CheckpointStore* store() { return store_.get(); }  // null: the run saves nothing

  MemoryCheckpoints* memory() { return memory_.get(); }  // null: the run saves nothing into memory

  bool saves() const { return saver_ != nullptr; }
  bool is_due() const;  // by the number of steps and epochs done, and because the step is the best so far
  bool is_due_in_memory() const { return memory_ && memory_->is_due(); }
  // Saves the step that was done last.
  void save(checkpoint::OnFailure on_failure);
  void save_to_memory();
  // The newest step of this run.
  std::optional<checkpoint::LoadedStep> open_newest();
  // Waits for the saves in flight; throws what they threw.
  void finish();
  // Checks whether the step that was done last was given to the saver, or read from disk when the run resumed. A step
  // of that number that was already there is not enough: it may be damaged, or of an earlier start.
  bool is_on_disk() const;
  // After finish(), when the run has ended: removes what is in memory, if the last step is on disk.
  void remove_from_memory();

  int64_t last_saved() const { return last_saved_; }  // the last step given to the saver; 0: none
  MemoryBytes staging_memory() const;                 // for saves in the background

 private:
  checkpoint::CheckpointStoreOptions own_store_options() const;
  void warn_of_missing_replicas() const;
  checkpoint::Staging staging();
  std::string state_to_save();
  checkpoint::Tier disk() { return {*store_, ranks()}; }

  Run& run_;
  std::unique_ptr<comm::ProcessGroup> group_;
  checkpoint::JobHosts hosts_;
  std::string run_id_;
  MemoryMeter staging_memory_;
  std::unique_ptr<checkpoint::CheckpointStore> store_;
  std::unique_ptr<checkpoint::AsyncSaver> saver_;
  std::unique_ptr<MemoryCheckpoints> memory_;
  std::string data_digest_, tokenizer_;  // as text
  int64_t last_saved_ = 0;
  int64_t resumed_from_disk_ = 0;  // 0: not from this run's own steps on disk
};

}  // namespace trivet::trainer
