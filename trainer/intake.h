// Decides which files a run takes up when, if its data grows (data.grows).
//
// An epoch has the files that were complete on all ranks when it began. Its beginning is the step that reaches it: rank 0 lists
// the folder, each rank looks at the files that are new, and what all of them can read is taken up. Other files are left for
// the epoch that begins next. A checkpoint keeps what was decided, so that a resumed run reads the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"
#include "data/growing_data.h"
#include "engine/checkpoint/run_state.h"

namespace trivet {
struct Config;
namespace checkpoint {
class LoadedStep;
}
}  // namespace trivet

namespace trivet::trainer {

struct Run;

// Collective. The files that are there for the first epoch; at least one must be.
std::unique_ptr<data::GrowingData> open_growing_data(const Config& config, comm::World& world);

class Intake {
 public:
  // Does nothing if the data of the run does not grow. Works with the run's data and batches.
  explicit Intake(Run& run);

  // Before the batches of a step are filled (steps count from 0). Collective. Says what was taken up, or "".
  std::string before_step(int64_t step);

  // Returns the state that a checkpoint keeps.
  std::vector<DataFileState> state() const;
  // Collective. Goes on with the files that the checkpoint names. Throws DataError (exit code 18) if one is missing or has
  // changed, and ConfigError if the data of one of the two runs does not grow.
  void restore(const checkpoint::LoadedStep& step);
  // Takes up, for a replay, what this later checkpoint says, and nothing else. Null: no checkpoint says anything.
  void follow(const checkpoint::LoadedStep* step);

 private:
  int64_t last_epoch_of(int64_t step) const;
  void refuse_missing_and_changed(const checkpoint::LoadedStep& step) const;
  void check_epochs(const checkpoint::LoadedStep& step) const;
  void replace_batches();
  std::string news(int64_t epoch, size_t files_before, int64_t tokens_before) const;

  Run& run_;
  data::GrowingData* data_;  // null: the data does not grow
  int64_t decided_ = 1;      // epochs whose files are known
  bool replays_ = false;
};

}  // namespace trivet::trainer
