// One trial: an engine is built with a config, makes some steps on the ranks that are there, and goes. What is left is a time.
//
// All ranks call it together and get the same result. The tokens are made up: how long a step takes does not depend on them,
// and reading data is not what is tuned.
//
// [Note: out of memory is a result] While its engine is built each rank takes its memory by itself; then the ranks exchange the
// first weights. Between the two they meet (EngineOptions::memory_taken) and tell each other how it went: one that got no
// memory does not leave the others waiting, all give the engine up, and the next trial runs. A step allocates nothing; an error
// in a step ends the job as it does in training, and a later `trivet tune --resume` goes on behind the trials that had ended.
#pragma once

#include <cstdint>
#include <string>

#include "comm/world.h"
#include "core/enum_names.h"
#include "core/file_system.h"
#include "engine/config/config.h"
#include "model/model.h"

namespace trivet::autotune {

enum class TrialStatus {
  Ok,
  DoesNotFit,   // by the plan; it is not run
  OutOfMemory,  // when it was tried
  Failed,       // for another reason
};

struct TrialResult {
  TrialStatus status = TrialStatus::Ok;
  double seconds = 0;   // of a step: the median of the measured ones, each as long as its slowest rank took
  std::string message;  // of what was not Ok, with the rank
  bool operator==(const TrialResult&) const = default;
};

struct TrialOptions {
  int threads = 1, local_rank = -1;         // EngineOptions
  int64_t first_measured = 3, steps = 5;    // autotuning.start_profile_step, end_profile_step
  FileSystem* files = &real_file_system();  // EngineOptions
};

// `description`: of the model that the config's section says, with the vocabulary that the data has.
// Throws CommError where a rank is lost, and what a step throws.
TrialResult run_trial(const Config& config, const model::Description& description, comm::World& world,
                      const TrialOptions& options);

}  // namespace trivet::autotune

namespace trivet {

template <>
struct EnumNames<autotune::TrialStatus> {
  static constexpr std::array<std::pair<std::string_view, autotune::TrialStatus>, 4> table{
      {{"ok", autotune::TrialStatus::Ok},
       {"does_not_fit", autotune::TrialStatus::DoesNotFit},
       {"out_of_memory", autotune::TrialStatus::OutOfMemory},
       {"failed", autotune::TrialStatus::Failed}}};
};

}  // namespace trivet
