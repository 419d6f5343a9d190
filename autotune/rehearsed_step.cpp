#include "autotune/rehearsed_step.h"

#include <fmt/format.h>

#include <algorithm>

#include "autotune/modelled_time.h"
#include "core/error.h"
#include "engine/config/refuse.h"
#include "engine/rehearsal.h"
#include "engine/timeline/recorder.h"
#include "pipeline/measure.h"

namespace trivet::autotune {
namespace {

using namespace pipeline;

// The second step of two: what a step leaves to the next one (gathers of new weights) is in it.
Recording record_rank(const Plan& plan, const RankPlan& rank, const model::Model& model, const CostModel& costs) {
  ModelledTime time(costs);
  timeline::Recorder recorder(time.make_clock());
  const auto make_stream = [&](Queue queue, bool overlaps) {
    return recorder.observe(time.make_stream(overlaps), queue, overlaps);
  };
  const auto place = [&](Groups::Group meta) { return time.place(std::move(meta)); };
  Rehearsal rehearsal(plan, rank, model,
                      {.kernels = &time.kernels(), .make_stream = make_stream, .place = place, .recorder = &recorder});
  recorder.record(true);
  rehearsal.train_step();
  rehearsal.train_step();
  return recorder.take().back();
}

void check_modelled(const Config& config) {
  const auto check = [&](const char* key, OffloadDevice device) {
    const bool files = device == OffloadDevice::Nvme;
    if (!files && !(device == OffloadDevice::Cpu && config.compute_device() != Device::Cpu)) return;
    config::refuse(config, key,
                   fmt::format("\"{}\" is not predicted, as how long {} take is not modelled; use \"none\" or measure it with "
                               "trivet bench step",
                               files ? "nvme" : "cpu", files ? "files" : "copies from and to the host"));
  };
  check("zero_optimization.offload_optimizer.device", config.zero.offload_optimizer.device);
  check("zero_optimization.offload_param.device", config.zero.offload_param.device);
}

double spent(const Recording& recording, Recording::Kind kind, Queue queue, bool in_update) {
  double ms = 0;
  for (const Recording::Span& span : recording.spans)
    if (span.kind == kind && span.queue == queue && (span.at == Recording::kUpdate) == in_update) ms += span.end - span.start;
  return ms;
}

// A rank's share of the parts; what is left of the makespan it waits for its neighbours. `shares_cores`: what streams do keeps
// the program from its own work.
void add_rank(const Timeline& timeline, size_t rank, const Recording& recording, bool shares_cores, double share,
              RehearsedSeconds& parts) {
  using Kind = Recording::Kind;
  const Kind kind = shares_cores ? Kind::Work : Kind::Wait;
  RehearsedSeconds own;
  for (const TimedInstruction& timed : timeline.ranks[rank])
    if (computes(timed.instruction.op) && timed.queue == Queue::Compute)
      (timed.instruction.op == Op::Recompute ? own.recompute : own.compute) += timed.end - timed.start;
  own.tensor = spent(recording, kind, Queue::Tensor, false);
  own.compute -= own.tensor;  // layers wait inside their instructions
  if (shares_cores) own.data = spent(recording, kind, Queue::Gather, false) + spent(recording, kind, Queue::Reduce, false);
  own.all = spent(recording, Kind::Wait, Queue::Meet, false);  // alone: the rest of such a wait is for neighbours
  for (const TimedWait& wait : timeline.waits[rank])
    if (!shares_cores && (wait.queue == Queue::Gather || wait.queue == Queue::Reduce)) own.data += wait.end - wait.start;
  const double data = spent(recording, kind, Queue::Gather, true) + spent(recording, kind, Queue::Reduce, true);
  const double all = spent(recording, Kind::Wait, Queue::Meet, true), tensor = spent(recording, kind, Queue::Tensor, true);
  own.optimizer = recording.update_ms() - data - all - tensor;
  own.data += data, own.all += all, own.tensor += tensor;
  own.pipeline = timeline.makespan - own.total();
  const double seconds = share / 1e3;
  parts.compute += own.compute * seconds, parts.recompute += own.recompute * seconds, parts.tensor += own.tensor * seconds;
  parts.pipeline += own.pipeline * seconds, parts.data += own.data * seconds, parts.all += own.all * seconds;
  parts.optimizer += own.optimizer * seconds;
}

}  // namespace

RehearsedStep rehearse_step(const Plan& plan, const model::Model& model, const CostModel& costs) {
  check_modelled(plan.config);
  const Overlap overlap = plan.config.zero.overlap_comm ? Overlap::Queues : Overlap::None;
  const int tensor_size = plan.mesh.size(Axis::Tensor), pipeline_size = plan.mesh.size(Axis::Pipeline);
  RehearsedStep result;
  std::vector<RecordedStep> steps;
  for (int tensor = 0; tensor < tensor_size; ++tensor) {
    Schedule schedule;
    RecordedStep step;
    for (int pipeline = 0; pipeline < pipeline_size; ++pipeline) {
      const RankPlan& rank = plan.ranks[static_cast<size_t>(pipeline * tensor_size + tensor)];
      schedule.push_back(rank.programs.train);
      step.push_back(record_rank(plan, rank, model, costs));
    }
    const MeasuredCosts measured(schedule, std::span(&step, 1), overlap, Clocks::Apart);
    result.timelines.push_back(predicted_timelines(schedule, std::span(&measured, 1), overlap).front());
    result.seconds = std::max(result.seconds, result.timelines.back().makespan / 1e3);
    steps.push_back(std::move(step));
  }
  const double share = 1.0 / (tensor_size * pipeline_size);
  for (int tensor = 0; tensor < tensor_size; ++tensor)
    for (int pipeline = 0; pipeline < pipeline_size; ++pipeline) {
      const auto rank = static_cast<size_t>(pipeline), line = static_cast<size_t>(tensor);
      add_rank(result.timelines[line], rank, steps[line][rank], costs.streams_share_cores(), share, result.parts);
    }
  return result;
}

}  // namespace trivet::autotune
