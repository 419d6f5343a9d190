// One trial: an engine is built with a config, runs some steps on the ranks of the running job, and is destroyed. The result is
// a time.
//
// All ranks call it together and get the same result. The samples are made up, because the time of a step does not depend on
// them, and reading data is not tuned.
//
// [Note: out of memory is a result] While the engine is built, each rank first allocates its memory by itself; then the ranks
// exchange the first weights. Between the two they meet (EngineOptions::memory_taken) and tell each other how it went, so a
// rank that got no memory does not leave the others waiting: all of them give the engine up, and the next trial runs. A step
// allocates nothing. An error in a step ends the job, as it does in training, and a later `trivet tune --resume` continues
// after the trials that had ended.
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
  OutOfMemory,  // when it was run
  Failed,       // for another reason
};

struct TrialResult {
  TrialStatus status = TrialStatus::Ok;
  double seconds = 0;   // per step: the median of the measured steps, each timed by its slowest rank
  std::string message;  // why it was not Ok, with the rank
  bool operator==(const TrialResult&) const = default;
};

struct TrialOptions {
  int threads = 1, local_rank = -1;         // EngineOptions
  int64_t first_measured = 3, steps = 5;    // autotuning.start_profile_step, end_profile_step
  FileSystem* files = &real_file_system();  // EngineOptions
};

// `description` is that of the config's section `model`, with the vocabulary of the data. Throws CommError if a rank is lost,
// and what a step throws.
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
