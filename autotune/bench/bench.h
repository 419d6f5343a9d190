// What `trivet bench` measures. Collective over the world: all its ranks work at once, as in a run, so that what they share
// (cores, caches, memory) is shared here too; rank 0's times count. Kernels are timed where they are used, in steps of small
// models of many shapes, so caches and neighbours are those of training.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "autotune/hardware_profile.h"
#include "comm/world.h"
#include "engine/plan.h"

namespace trivet::autotune {

struct BenchOptions {
  int threads = 1;  // kernel threads of a rank
  int local_rank = -1;
  DeviceChoice device = DeviceChoice::Cpu;
  bool own_cores = false;  // ranks that are threads of this process are kept on cores of their own
  double seconds = 60;     // for all shapes, or all operations; the first few are measured in any case
  std::function<void(const std::string&)> progress = [](const std::string&) {};  // a line for people, on rank 0
};

// Kernels and call_seconds of a setup.
MeasuredSetup measure_kernels(comm::World& world, const BenchOptions& options);
// Operations and handover_seconds, of groups of each size that divides the world. Nothing on a world of one.
MeasuredSetup measure_operations(comm::World& world, const BenchOptions& options);

struct MeasuredSteps {
  std::string machine;
  std::vector<double> seconds;  // of each step, of the slowest rank; the same on all ranks
};
// So many steps of this plan behind one that does not count. Tokens are made up.
MeasuredSteps measure_step(comm::World& world, const Plan& plan, model::Model model, int steps, const BenchOptions& options);

}  // namespace trivet::autotune
