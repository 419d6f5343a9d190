// Predicts how long a step takes, from what its stages do.
#include <algorithm>
#include <cmath>

#include "autotune/step_model.h"
#include "model/count_flops.h"
#include "pipeline/schedules/schedules.h"
#include "pipeline/simulate.h"

namespace trivet::autotune {

std::vector<StepModel::Divided> StepModel::divided(const Layout& layout, const Stage& stage) const {
  std::vector<Divided> all{{.parameters = stage.parameters - stage.expert_parameters,
                            .trained = stage.trained - stage.expert_trained,
                            .blocks = stage.blocks,
                            .ranks = layout.shards(),
                            .stride = layout.tensor}};
  if (stage.expert_blocks > 0)
    all.push_back({.parameters = stage.expert_parameters,
                   .trained = stage.expert_trained,
                   .blocks = stage.expert_blocks,
                   .ranks = layout.expert_shards(),
                   .stride = layout.tensor * layout.expert});
  return all;
}

double StepModel::Divided::pieces(int64_t bucket) const {
  return bucket == 0 ? 1 : std::max(1.0, std::ceil(parameters / blocks / as_double(bucket)));
}

double StepModel::updated(const Layout& layout, const Stage& stage) const {
  double elements = 0;
  for (const Divided& part : divided(layout, stage))
    elements += part.trained / (layout.zero_stage >= 1 ? as_double(part.ranks) : 1);
  return elements;
}

// Gradients are sent while the backward that completes them runs; whole weights arrive while a forward or a backward uses the
// previous ones. Both share the links, with one operation per block, or two if its experts are divided over other ranks.
StepModel::Communication StepModel::data_axis(const Layout& layout, const Stage& stage, double forward, double backward) const {
  if (layout.shards() == 1) return {};
  const double m = as_double(layout.microbatches);
  double hidden_out = 0, shown_out = 0, hidden_in = 0, shown_in = 0;
  for (const Divided& part : divided(layout, stage)) {
    const auto seconds = [&](comm::Operation operation, double elements, double bytes, double pieces) {
      const double operations = part.blocks * pieces;
      return operations * operation_seconds(operation, elements / operations * bytes, part.ranks, part.stride);
    };
    const double pieces_out = part.pieces(layout.reduce_bucket), pieces_in = part.pieces(layout.gather_bucket);
    const auto reduction = layout.zero_stage == 0 ? comm::Operation::AllReduce : comm::Operation::ReduceScatter;
    const double out = seconds(reduction, part.trained, types_.sent_gradient_bytes, pieces_out);
    // Before stage 3, frozen weights are not sent.
    const double gathered = layout.zero_stage == 3 ? part.parameters : part.trained;
    const double in =
        layout.zero_stage == 0 ? 0 : seconds(comm::Operation::AllGather, gathered, types_.weight_bytes(), pieces_in);
    // Pieces of a shard go through staging that the program waits for (zero/collectives.cpp); those of an all_reduce do not.
    (layout.zero_stage == 0 || pieces_out == 1 ? hidden_out : shown_out) += out;
    (pieces_in == 1 && (layout.zero_stage < 3 || layout.prefetch) ? hidden_in : shown_in) += in;
  }
  const double out = hidden_out + shown_out, in = hidden_in + shown_in;
  const bool gathers_always = layout.zero_stage == 3 && !stays_whole(layout, stage.parameters);
  const double times_out = layout.zero_stage >= 2 ? m : 1, times_in = gathers_always ? 2 * m : 1;
  const double all = times_out * out + times_in * in;
  if (!layout.overlap) return {.exposed = all};
  const auto beyond = [](double communication, double window) { return std::max(0.0, communication - window); };
  // The operations of the last block computed and of the first one needed have no computation to overlap.
  const double at_least = (out + in) / stage.blocks;
  double exposed = 0;
  if (gathers_always) {
    exposed = m * (beyond(hidden_in, forward) + beyond(hidden_in + hidden_out, backward) + 2 * shown_in + shown_out);
  } else {
    exposed = times_out * (beyond(hidden_out, backward) + shown_out) + beyond(hidden_in, forward) + shown_in;
  }
  exposed = std::max(exposed, at_least);
  return {exposed, std::max(0.0, all - exposed)};
}

// Gradients come down, the host updates, weights go up (zero/host_side.h): the three overlap, each on one piece at a time. The
// update moves states twice, and the copies' bytes pass through the host's memory as well.
double StepModel::offload_seconds(const Layout& layout, const Stage& stage) const {
  const HostShare& host = cluster_.host;
  const double updated = this->updated(layout, stage);
  const double down = updated * types_.gradient_bytes / host.link_bandwidth;
  const double up = updated * types_.weight_bytes() / host.link_bandwidth;
  const double update =
      updated * 2 * (types_.optimizer_bytes + types_.gradient_bytes + types_.weight_bytes()) / host.memory_bandwidth;
  const double updates = stage.blocks * std::max(1.0, std::ceil(updated / stage.blocks / types_.sub_group));
  return std::max({down, up, update}) + (down + up) / updates;
}

// The makespan without the microbatches' own time. GPipe, 1F1B and, if the ranks divide the microbatches, interleaved have a
// formula (pipeline/schedules/schedules.h). The others are simulated for shares of F, I and W in percent; their bubble grows
// with the microbatches up to a few per rank, and then no more.
double StepModel::bubble_seconds(const Layout& layout, double forward, double input, double weight) const {
  const double whole = forward + input + weight, p = as_double(layout.pipeline);
  if (layout.schedule == ScheduleKind::GPipe || layout.schedule == ScheduleKind::OneForwardOneBackward) return (p - 1) * whole;
  if (layout.schedule == ScheduleKind::Interleaved && layout.microbatches % layout.pipeline == 0)
    return (p - 1) * whole / as_double(layout.chunks);
  const int64_t enough = 3 * layout.pipeline, m = layout.microbatches;
  const int64_t simulated = m <= 4 * layout.pipeline ? m : enough + m % layout.pipeline;
  const auto percent = [&](double part) { return static_cast<int64_t>(std::lround(100 * part / whole)); };
  const int64_t f = percent(forward), i = percent(input), w = 100 - f - i;
  const auto [found, added] =
      bubbles_.try_emplace({static_cast<int64_t>(layout.schedule), layout.pipeline, layout.chunks, simulated, f, i});
  if (added) {
    const pipeline::Schedule schedule = pipeline::generate(layout.schedule, {.ranks = static_cast<int>(layout.pipeline),
                                                                             .microbatches = static_cast<int>(simulated),
                                                                             .chunks = static_cast<int>(layout.chunks)});
    const pipeline::ComputeCosts costs{as_double(f) / 100, as_double(i) / 100, as_double(w) / 100};
    const pipeline::Timeline timeline = pipeline::simulate(
        schedule, {.cost = pipeline::even_costs(schedule, costs), .sends = pipeline::backward_sends(layout.schedule)});
    found->second = timeline.makespan - as_double(simulated);
  }
  return whole * found->second;
}

StepPrediction StepModel::predict(const Layout& layout) const {
  StepPrediction prediction{.seconds = {}, .bytes = bytes(layout)};
  Stage slowest;
  StepSeconds& seconds = prediction.seconds;
  const double all = types_.gradient_bytes + 2 * types_.optimizer_bytes + types_.weight_bytes();
  for (int64_t rank = 0; rank < layout.pipeline; ++rank) {
    const Stage stage = stage_of_rank(layout, rank);
    if (rank == 0 || stage.seconds.total() > slowest.seconds.total()) slowest = stage;
    const double forward = stage.seconds.forward + stage.seconds.forward_axis;
    // If states are offloaded, the device still computes the norm of the gradients.
    const double moved = layout.offload_optimizer ? types_.gradient_bytes : all;
    const Communication data = data_axis(layout, stage, forward, stage.seconds.total() - forward);
    seconds.data = std::max(seconds.data, data.exposed);
    seconds.hidden = std::max(seconds.hidden, data.hidden);
    seconds.optimizer = std::max(seconds.optimizer, updated(layout, stage) * moved / cluster_.device.memory_bandwidth);
    if (layout.offload_optimizer) seconds.offload = std::max(seconds.offload, offload_seconds(layout, stage));
  }

  const double m = as_double(layout.microbatches);
  const BlockSeconds& of = slowest.seconds;
  const double forward = of.forward + of.forward_axis, backward = of.total() - forward;
  seconds.compute = m * (of.forward + of.backward);
  seconds.recompute = m * of.forward_again;
  seconds.context = m * of.context_axis;
  seconds.expert = m * of.expert_axis;
  seconds.tensor = m * of.tensor_axis;
  seconds.hidden += m * of.hidden_axis;
  if (layout.pipeline > 1) {
    const double message = as_double(works_of(layout)[0]->output_elements) * types_.weight_bytes();
    const int64_t stride = layout.tensor * layout.shards();
    const bool leaves_node = layout.pipeline * stride > cluster_.devices_per_node;  // for some neighbours
    const double hop = operation_seconds(comm::Operation::Send, message, 2, leaves_node ? cluster_.devices_per_node : stride);
    seconds.bubble = bubble_seconds(layout, forward, backward - of.weights, of.weights) +
                     2 * as_double((layout.pipeline - 1) * layout.chunks) * hop;
  }

  const double samples_per_second = as_double(layout.global_batch()) / seconds.total();
  prediction.targets_per_second = as_double(model_.sample.counted_targets()) * samples_per_second;
  prediction.model_flops_utilization =
      model::flops_per_sample(model_) * samples_per_second / (as_double(layout.devices()) * cluster_.device.matrix_flops);
  return prediction;
}

pipeline::Timeline StepModel::timeline(const Layout& layout, int64_t microbatches) const {
  const std::vector<Stage>& stages = stages_of(layout);
  const pipeline::Schedule schedule = pipeline::generate(layout.schedule, {.ranks = static_cast<int>(layout.pipeline),
                                                                           .microbatches = static_cast<int>(microbatches),
                                                                           .chunks = static_cast<int>(layout.chunks)});
  const auto milliseconds = [&](int, const pipeline::Instruction& i) {
    if (!pipeline::computes(i.op)) return 0.0;
    const BlockSeconds& of = stages[i.stage].seconds;
    const double forward = of.forward + of.forward_axis, backward = of.total() - forward;
    if (i.op == pipeline::Op::Forward) return 1e3 * forward;
    return 1e3 * (i.op == pipeline::Op::BackwardWeight ? of.weights : backward - of.weights);
  };
  return pipeline::simulate(schedule, {.cost = milliseconds, .sends = pipeline::backward_sends(layout.schedule)});
}

}  // namespace trivet::autotune
