// The measurements of `trivet bench`. They are collective over the world: all ranks work at once, as in a run, so that what
// they share (cores, caches, memory) is shared here too; rank 0's times count. Kernels are timed where they are used, in steps
// of small models of many shapes, so that caches and neighbouring kernels are those of training.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "autotune/hardware_profile.h"
#include "autotune/kernel_table.h"
#include "comm/world.h"
#include "engine/plan.h"
#include "model/model.h"

namespace trivet::autotune {

struct BenchOptions {
  int threads = 1;  // kernel threads per rank
  int local_rank = -1;
  DeviceChoice device = DeviceChoice::Cpu;
  bool own_cores = false;  // keep ranks that are threads of this process on cores of their own
  double seconds = 60;     // for all shapes, or all operations; the first few are measured in any case
  std::function<void(const std::string&)> progress = [](const std::string&) {};  // receives lines of progress, on rank 0
};

// Measures the kernels and call_seconds of a setup.
MeasuredSetup measure_kernels(comm::World& world, const BenchOptions& options);
// Measures operations and handover_seconds, in groups of each size that divides the world; nothing in a world of one rank.
MeasuredSetup measure_operations(comm::World& world, const BenchOptions& options);

struct MeasuredSteps {
  std::string machine;
  std::vector<double> seconds;  // each step's, on the slowest rank; the same on all ranks
};

struct StepKernels {
  std::string machine;
  double step_seconds = 0;  // median, with the kernels launched one by one and timed
  struct Kernel {
    KernelSample sample;  // its seconds are those of one call
    double calls = 0;     // in a step
    double seconds() const { return calls * sample.seconds; }
  };
  std::vector<Kernel> kernels;  // this rank's kernels, the slowest first
};
// Times each kernel in `steps` steps of this plan after a warm-up step. The samples are made up. Communication must not overlap
// computation, because the timer belongs to one thread: throws ConfigError with overlap_comm or offload.
StepKernels measure_step_kernels(comm::World& world, const Plan& plan, model::Model model, int steps,
                                 const BenchOptions& options);
// A table: one line for each kind of kernel and its sizes, and the sum.
std::string to_text(const StepKernels& kernels);

// Times `steps` steps of this plan after a warm-up step. The samples are made up.
MeasuredSteps measure_step(comm::World& world, const Plan& plan, model::Model model, int steps, const BenchOptions& options);

}  // namespace trivet::autotune
