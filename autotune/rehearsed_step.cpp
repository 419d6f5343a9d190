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

// Records the second of two steps, so that it contains what a step leaves to the next one (gathers of new weights).
Recording record_rank(const Plan& plan, const RankPlan& rank, const model::Model& model, const CostModel& costs) {
  ModelledTime time(costs);
  timeline::Recorder recorder(time.make_clock());
  const auto make_stream = [&](Queue queue, bool overlaps) {
    return recorder.observe(time.make_stream(overlaps, queue != Queue::Send), queue, overlaps);
  };
  const auto place = [&](Group meta) { return time.place(std::move(meta)); };
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
    config::refuse(
        config, key,
        fmt::format(
            "\"{}\" cannot be predicted, because the time that {} take is not modelled; use \"none\" or measure it with "
            "trivet bench step",
            files ? "nvme" : "cpu", files ? "files" : "copies from and to the host"));
  };
  check("zero_optimization.offload_optimizer.device", config.zero.offload_optimizer.device);
  check("zero_optimization.offload_param.device", config.zero.offload_param.device);
  if (config.offloads_inputs())
    config::refuse(config, "activation_checkpointing.cpu_checkpointing",
                   "true cannot be predicted, because the time that copies from and to the host take is not modelled; use "
                   "false or measure it with trivet bench step");
}

double spent(const Recording& recording, Recording::Kind kind, Queue queue, bool in_update) {
  double ms = 0;
  for (const Recording::Span& span : recording.spans)
    if (span.kind == kind && span.queue == queue && (span.at == Recording::kUpdate) == in_update) ms += span.end - span.start;
  return ms;
}

// Milliseconds that instructions which do not compute spend on kernels and on giving work to streams.
double busy(const Program& program, const Recording& recording, std::initializer_list<Op> ops) {
  double ms = 0;
  for (const Recording::Span& span : recording.spans) {
    if (span.at == Recording::kUpdate || span.kind == Recording::Kind::Work) continue;
    if (std::ranges::find(ops, program[span.at].op) == ops.end()) continue;
    ms += (span.kind == Recording::Kind::Step ? 1 : -1) * (span.end - span.start);
  }
  return ms;
}

// Milliseconds that blocks wait for weights that the previous step published, as part of instructions that compute. If a
// program unshards its weights, the timeline has these waits separate from the instructions.
double waits_for_published(const Program& program, const Recording& recording, Recording::Kind kind) {
  if (std::ranges::any_of(program, [](const Instruction& instruction) { return instruction.op == Op::Unshard; })) return 0;
  double ms = 0;
  for (const Recording::Span& span : recording.spans)
    if (span.kind == kind && span.queue == Queue::Gather && span.at != Recording::kUpdate) ms += span.end - span.start;
  return ms;
}

// The way in which streams share the time of a rank.
struct StreamSharing {
  bool cores = false;   // their work keeps the program from its own work
  bool queues = false;  // gathers and reductions overlap the program
};

// The parts of a rank's step in ms; for the rest of the step it waits for its neighbours.
StepSeconds parts_of(const Program& program, const Timeline& timeline, size_t rank, const Recording& recording,
                     StreamSharing sharing, double step) {
  using Kind = Recording::Kind;
  const Kind kind = sharing.cores ? Kind::Work : Kind::Wait;
  StepSeconds own;
  for (const TimedInstruction& timed : timeline.ranks[rank])
    if (computes(timed.instruction.op) && timed.queue == Queue::Compute)
      (timed.instruction.op == Op::Recompute ? own.recompute : own.compute) += timed.end - timed.start;
  own.tensor = spent(recording, kind, queue_of(Axis::Tensor), false);
  own.data = waits_for_published(program, recording, kind);
  own.context = spent(recording, kind, queue_of(Axis::Context), false);
  own.expert = spent(recording, kind, queue_of(Axis::Expert), false);
  own.compute -= own.tensor + own.context + own.expert + own.data;  // layers wait inside their instructions
  for (const TimedWait& wait : timeline.waits[rank])                // without queues: the entire instruction
    if (wait.queue == Queue::Gather || wait.queue == Queue::Reduce) own.data += wait.end - wait.start;
  if (sharing.queues) own.data += busy(program, recording, {Op::Unshard, Op::Reshard, Op::Reduce});
  // Time as recorded for the rank alone; the rest of such a wait is for neighbours.
  own.data += spent(recording, Kind::Wait, Queue::Meet, false) + busy(program, recording, {Op::Tie, Op::SumLoss});
  const double tensor = spent(recording, kind, queue_of(Axis::Tensor), true);
  const double data = spent(recording, kind, Queue::Gather, true) + spent(recording, kind, Queue::Reduce, true) +
                      spent(recording, Kind::Wait, Queue::Meet, true);
  own.optimizer = recording.update_ms() - data - tensor;
  own.data += data, own.tensor += tensor;
  own.bubble = step - own.total();
  return own;
}

void add(const StepSeconds& ms, double share, StepSeconds& parts) {
  const double seconds = share / 1e3;
  parts.compute += ms.compute * seconds, parts.recompute += ms.recompute * seconds, parts.tensor += ms.tensor * seconds;
  parts.context += ms.context * seconds, parts.expert += ms.expert * seconds;
  parts.bubble += ms.bubble * seconds, parts.data += ms.data * seconds, parts.optimizer += ms.optimizer * seconds;
}

Coordinates at(int pipeline, int tensor) {
  Coordinates coordinates;
  coordinates[Axis::Pipeline] = pipeline;
  coordinates[Axis::Tensor] = tensor;
  return coordinates;
}

}  // namespace

RehearsedStep rehearse_step(const Plan& plan, const model::Model& model, const CostModel& costs) {
  check_modelled(plan.config);
  // Work that shares the program's cores is part of the time of its instructions, and must not count a second time.
  const StreamSharing sharing{.cores = costs.streams_share_cores(),
                              .queues = plan.config.zero.overlap_comm && !costs.streams_share_cores()};
  const Overlap overlap = sharing.queues ? Overlap::Queues : Overlap::None;
  const int tensor_size = plan.mesh.size(Axis::Tensor), pipeline_size = plan.mesh.size(Axis::Pipeline);
  RehearsedStep result;
  std::vector<RecordedStep> steps;
  for (int tensor = 0; tensor < tensor_size; ++tensor) {
    Schedule schedule;
    RecordedStep step;
    for (int pipeline = 0; pipeline < pipeline_size; ++pipeline) {
      const RankPlan& rank = plan.rank(at(pipeline, tensor));
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
      const size_t rank = pipeline, line = tensor;
      const Program& program = plan.rank(at(pipeline, tensor)).programs.train;
      add(parts_of(program, result.timelines[line], rank, steps[line][rank], sharing, 1e3 * result.seconds), share,
          result.parts);
    }
  return result;
}

}  // namespace trivet::autotune
