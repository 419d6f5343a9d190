// Runs steps of an engine with made-up samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autotune/bench/bench.h"
#include "data/made_up_source.h"
#include "engine/engine.h"

namespace trivet::autotune {

// While it exists, this thread and the threads that it starts run on the rank's own cores. It is for ranks that are threads of
// one process, and does nothing if they cannot have equally many cores. Without it, threads that the system moves about
// sometimes make short steps twice as long. launch --bind_cores_to_rank does the same for processes.
class OwnCores {
 public:
  OwnCores(const comm::World& world, bool wanted);
  ~OwnCores();
  OwnCores(const OwnCores&) = delete;
  OwnCores& operator=(const OwnCores&) = delete;

 private:
  std::vector<int> before_;  // empty: nothing was changed
};

// "AMD EPYC, 2 cores"; for a GPU "NVIDIA H200, 139.8 GiB".
std::string machine_name(const Backend& backend);

// A setup that describes these ranks and holds no measurements yet.
MeasuredSetup setup_of(const comm::World& world, const BenchOptions& options);

// One rank's samples of a step.
class MadeUpBatch {
 public:
  MadeUpBatch(const Plan& plan, const model::Model& model, int rank = 0);
  const std::vector<Microbatch>& microbatches() const { return views_; }

 private:
  std::vector<data::HostMicrobatch> memory_;
  std::vector<Microbatch> views_;
};

// Returns the seconds that the step took on this rank.
double run_step(Engine& engine, const MadeUpBatch& batch);

}  // namespace trivet::autotune
