// `trivet tune`: the planner proposes, short measured trials decide, and every trial corrects what is proposed next.
//
// All ranks of a running job call it together; no process is restarted. Rank 0 decides what is tried, tells the other ranks,
// and writes the results (results.h). The result is the same on all ranks.
#pragma once

#include <functional>
#include <string>

#include "autotune/cluster.h"
#include "autotune/tune/results.h"

namespace trivet::autotune {

struct TuneOptions {
  int threads = 1, local_rank = -1;                // EngineOptions
  std::string cluster;                             // find_cluster: the machines to predict for
  std::string profile;                             // read_profile: the same, measured before; if neither is given: measured now
  double measuring_seconds = 10;                   // for measuring now
  bool resume = false;                             // like autotuning.overwrite false
  std::string command;                             // trains with the best config; for cmd_optimal.txt
  std::function<void(const std::string&)> report;  // on rank 0: a line on what was found or done; may be empty
  FileSystem* files = &real_file_system();
};

struct TuneResult {
  std::string best;            // the trial's name
  double seconds = 0;          // time of a step
  std::string spread;          // range of its measurements (spread_text)
  std::string ties;            // others that may be as good (ties_text)
  std::string optimal_config;  // its file
  int64_t trials = 0;          // trials that were run or reused
  std::string ended;           // why the tuning ended
};

// Throws ConfigError for what cannot be tuned, OutOfMemoryError if nothing fits, and Error if no trial ran to its end.
TuneResult tune(const ConfigDocument& document, const model::Description& model, comm::World& world,
                const TuneOptions& options);

}  // namespace trivet::autotune
