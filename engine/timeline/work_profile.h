// Profiles what a step computes, block by block: the operations of its program, which a rehearsal counts (engine/rehearsal.h),
// and the times that the ranks measured.
//
// Counts are those of one rank and all its microbatches. Only products and attention have multiply-accumulate operations
// (MACs); FLOPs are those of all kernels (kernels::KernelCall). Times are those of a rank that has the block, without what it
// waited for; means over these ranks. The last block runs forward and backward in one instruction, whose time is divided in
// proportion to FLOPs.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/optimizer/step_scalars.h"
#include "engine/plan.h"
#include "model/model.h"
#include "pipeline/recording.h"

namespace trivet::timeline {

struct Work {
  double macs = 0, flops = 0, ms = 0;
  Work& operator+=(const Work& other) {
    macs += other.macs, flops += other.flops, ms += other.ms;
    return *this;
  }
};

struct BlockProfile {
  std::string name, type;
  int64_t parameters = 0;  // parameters of a tensor rank, before ZeRO divides them
  Work forward{}, recompute{}, backward{};
  std::map<std::string_view, Work> kernels{};  // in the forward pass; no times
};

struct WorkProfile {
  std::vector<BlockProfile> blocks;
  double update_ms = 0, step_ms = 0;  // mean over the ranks, and of the rank that took longest
};

// Counts work without times. `numbers`: those of the step, which may have shorter sequences than others.
WorkProfile count_work(const Plan& plan, const model::Model& model, const StepNumbers& numbers);
// `recordings`: [world rank], of the same step.
void add_times(WorkProfile& profile, const Plan& plan, const std::vector<pipeline::Recording>& recordings);

// The report that flops_profiler asks for, in lines. `step` counts from 1.
std::vector<std::string> report_of(const WorkProfile& profile, const Plan& plan, int64_t step);

// Where the time of a step goes, means over the ranks: "forward 1.20, loss 0.52, backward 2.31, waits: data 0.40, update 0.61,
// other 0.10, step 5.14 ms". The loss is forward and backward of the last block; other is what is neither of these.
std::string breakdown_of(const Plan& plan, const std::vector<pipeline::Recording>& recordings);

}  // namespace trivet::timeline
