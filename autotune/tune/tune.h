// `trivet tune`: the planner proposes, short measured trials decide, every trial corrects what is proposed next.
//
// All ranks of a running job call it together: nothing is started again. Rank 0 decides what is tried and writes what came of
// it (results.h); the others are told. The result is the same on all ranks.
#pragma once

#include <functional>
#include <string>

#include "autotune/cluster.h"
#include "autotune/tune/results.h"

namespace trivet::autotune {

struct TuneOptions {
  int threads = 1, local_rank = -1;                // EngineOptions
  std::string cluster;                             // find_cluster: what predictions are made for
  std::string profile;                             // read_profile: the same, measured before; neither: measured now
  double measuring_seconds = 10;                   // for what is measured now
  bool resume = false;                             // as autotuning.overwrite false
  std::string command;                             // that trains with the best config, for cmd_optimal.txt
  std::function<void(const std::string&)> report;  // of rank 0: a line on what was found or done; may be empty
  FileSystem* files = &real_file_system();
};

struct TuneResult {
  std::string best;            // the trial's name
  double seconds = 0;          // of its step
  std::string optimal_config;  // the file
  int64_t trials = 0;          // that were run or taken over
  std::string ended;           // why there were not more
};

// Throws ConfigError for what cannot be tuned, OutOfMemoryError where nothing fits, Error where no trial ran to its end.
TuneResult tune(const ConfigDocument& document, const model::Description& model, comm::World& world,
                const TuneOptions& options);

}  // namespace trivet::autotune
