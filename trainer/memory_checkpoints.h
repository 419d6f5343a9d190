// The checkpoints that a run keeps in the memory of its hosts, if checkpoint.memory.every_steps is above 0. They are saved
// while others are saved to disk, in a group of their own.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/private_directory.h"
#include "engine/checkpoint/async_saver.h"
#include "engine/checkpoint/checkpoint_store.h"
#include "engine/checkpoint/tiers.h"
#include "trainer/run.h"

namespace trivet::trainer {

class MemoryCheckpoints {
 public:
  // Collective, like all other functions but is_due(). Makes the directory on each host, and acquires both stores. Throws
  // ConfigError if the directory is not in memory or not this user's alone, or if a host has too little memory there: a run
  // that resumes is only warned of that.
  MemoryCheckpoints(Run& run, const std::string& run_id, const checkpoint::Tier& disk, checkpoint::Staging staging);

  // Opens the newest step, here or in the stores of steps on disk.
  std::optional<checkpoint::LoadedStep> open_newest(const checkpoint::Tier& disk);
  bool is_due() const;
  // A save that fails does not end the run: steps are saved on disk, too.
  void save(const checkpoint::SaveRequest& request);
  // If saves fail one after another, the next one that fails is reported again.
  void report_next_failure() { saver_->report_next_failure(); }
  // Waits for the save in flight.
  void finish() { saver_->wait(); }
  void remove();
  // Removes the directory, for a start that is refused, if no step was in it.
  void remove_if_empty();

  const checkpoint::CheckpointStore& store() const { return *store_; }
  MemoryBytes staging_memory() const { return staging_memory_.peak(); }
  // "every step into memory, /dev/shm/run: at most 96.5 of 1200.3 MiB on host node1"
  const std::string& description() const { return description_; }

 private:
  comm::Participants ranks() const { return comm::over_group(*group_); }
  checkpoint::Tier tier() const { return {*store_, ranks()}; }
  void make_directory();
  void warn_of_missing_replicas() const;
  void warn_of_waiting() const;  // offloaded states are not saved while training goes on (AsyncSaver)
  void check_room();

  Run& run_;
  const MemoryCheckpointConfig& config_;
  std::unique_ptr<comm::ProcessGroup> group_;
  checkpoint::JobHosts hosts_;
  std::optional<HeldDirectory> directory_;  // on the first rank of each host
  MemoryMeter staging_memory_;
  std::string description_;
  std::unique_ptr<checkpoint::CheckpointStore> store_;
  std::unique_ptr<checkpoint::AsyncSaver> saver_;
};

}  // namespace trivet::trainer
