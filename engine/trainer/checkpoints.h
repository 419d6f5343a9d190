// The checkpoints that a run saves, if checkpoint.directory is given: the lock on that directory, and the saver.
#pragma once

#include <memory>
#include <string>

#include "core/buffer.h"
#include "engine/checkpoint/async_saver.h"
#include "engine/checkpoint/checkpoint_store.h"
#include "engine/trainer/run.h"

namespace trivet::trainer {

// Identifies the data of a run: a run that is resumed must have the same.
std::string data_digest(const data::TrainingData& data);

class Checkpoints {
 public:
  // Collective: locks the directory.
  explicit Checkpoints(Run& run);

  // The ranks, in a group that only checkpoints use.
  comm::Participants ranks() const { return comm::over_group(*group_); }
  // A store of this run, for a directory that it only reads. All ranks must see the same steps there.
  checkpoint::CheckpointStoreOptions store_options(const std::string& directory) const;
  checkpoint::CheckpointStore* store() { return store_.get(); }  // null: the run saves nothing

  bool saves() const { return saver_ != nullptr; }
  bool is_due() const;  // by the number of steps done
  // Saves the step that was done last.
  void save(checkpoint::OnFailure on_failure);
  // Waits for the save in flight; throws what it threw.
  void finish();

  int64_t last_saved() const { return last_saved_; }                     // the last step given to the saver; 0: none
  MemoryBytes staging_memory() const { return staging_memory_.peak(); }  // of saves in the background

 private:
  checkpoint::CheckpointStoreOptions own_store_options() const;
  void warn_of_missing_replicas() const;
  checkpoint::Staging staging();

  Run& run_;
  std::unique_ptr<comm::ProcessGroup> group_;
  checkpoint::JobHosts hosts_;
  std::string run_id_;
  MemoryMeter staging_memory_;
  std::unique_ptr<checkpoint::CheckpointStore> store_;
  std::unique_ptr<checkpoint::AsyncSaver> saver_;
  int64_t last_saved_ = 0;
};

}  // namespace trivet::trainer
