// Runs steps of an earlier run again, from the newest checkpoint before them, and compares every bit with what that run left:
// the losses in its file of metrics, and the weights and optimizer states in the checkpoint of the last of these steps. A
// difference means that memory, a processor or a message changed a value in one of the two runs (engine/gradient_audit.h finds
// that during a run). Saves nothing.
//
// With reproducible "layout" the layout may be another one than the run had. With "run" it must be the same.
#pragma once

#include <cstdint>
#include <string>

#include "comm/world.h"
#include "engine/config/config.h"

namespace trivet {

struct ReplayOptions {
  int threads = 1;           // for the kernels of one rank
  int local_rank = -1;       // as in EngineOptions
  int64_t step = 0;          // the last step to run, counted from 1
  std::string directory;     // checkpoints of the run; empty: checkpoint.directory
  std::string metrics_file;  // empty: losses are not compared
};

// All ranks call it together. Returns what was compared, in one sentence. Throws CommError (ranks disagree) that names the
// first step whose loss differs, and the first tensor and element; ConfigError if there is nothing to compare.
std::string replay(const Config& config, comm::World& world, const ReplayOptions& options);

}  // namespace trivet
