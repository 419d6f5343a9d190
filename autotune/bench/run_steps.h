// Steps of an engine with tokens that are made up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autotune/bench/bench.h"
#include "engine/engine.h"

namespace trivet::autotune {

// While it lives, this thread and those that it makes run on the rank's own cores. For ranks that are threads of one process,
// where they can have equally many: threads that the system moves about make short steps twice as long at times. What
// launch --bind_cores_to_rank does for processes.
class OwnCores {
 public:
  OwnCores(const comm::World& world, bool wanted);
  ~OwnCores();
  OwnCores(const OwnCores&) = delete;
  OwnCores& operator=(const OwnCores&) = delete;

 private:
  std::vector<int> before_;  // empty: nothing was changed
};

// "AMD EPYC, 2 cores"; of a GPU "NVIDIA H200, 139.8 GiB".
std::string machine_name(const Backend& backend);

// A setup that describes these ranks and holds no measurements yet.
MeasuredSetup setup_of(const comm::World& world, const BenchOptions& options);

class MadeUpBatch {
 public:
  MadeUpBatch(const Plan& plan, const model::Model& model);
  const std::vector<Microbatch>& microbatches() const { return microbatches_; }

 private:
  std::vector<int32_t> ids_;
  std::vector<Microbatch> microbatches_;
};

// Seconds that it took this rank.
double run_step(Engine& engine, const MadeUpBatch& batch);

}  // namespace trivet::autotune
