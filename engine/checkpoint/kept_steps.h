// Decides which steps of a directory on disk stay, and which ones its files `latest` and `best` name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/checkpoint/retention.h"
#include "engine/checkpoint/steps.h"
#include "engine/checkpoint/store_directory.h"

namespace trivet::checkpoint {

class KeptSteps {
 public:
  explicit KeptSteps(StoreDirectory& directory) : directory_(directory) {}

  // After each save. best_step: at its time; 0: none.
  void set_best_step(int64_t best_step) { best_step_ = best_step; }
  void set_content(const SavedStep& saved) { contents_[saved.step] = *saved.content; }
  // On leaders.
  void name_newest_step(int64_t step) { write_name(kLatestName, step); }
  void name_best_step();
  // Remove what CheckpointStoreOptions::keep does not keep. The first is called by the leader of a directory that all hosts
  // share, the other by all ranks.
  void apply_retention(int64_t committed);
  void apply_agreed_retention(int64_t committed, const Participants& ranks);

 private:
  void write_name(std::string_view name, int64_t step);
  int64_t earlier_best_step() const;
  std::vector<int64_t> steps_to_remove(const std::vector<SavedStep>& steps) const;
  void remove_steps(const std::vector<int64_t>& steps, const std::vector<StepDirectory>& known);
  std::optional<SavedStep::Content> content_of(const StepDirectory& step);

  StoreDirectory& directory_;
  int64_t best_step_ = 0;                           // best step at the last save
  std::map<int64_t, SavedStep::Content> contents_;  // known steps, on rank 0
};

}  // namespace trivet::checkpoint
