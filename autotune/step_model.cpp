#include "autotune/step_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "engine/optimizer/optimizer_step.h"
#include "pipeline/schedules/schedules.h"
#include "pipeline/simulate.h"

namespace trivet::autotune {
namespace {

bool is_product(const kernels::KernelCall& call) {
  return call.kernel == "matmul" || call.kernel == "attention" || call.kernel == "attention_backward";
}

double as_double(int64_t number) { return static_cast<double>(number); }

// Microbatches whose activations a pipeline rank holds at most, in those of all of its stages (docs/schedules.md).
double microbatches_in_flight(const Layout& layout, int64_t pipeline_rank) {
  const double p = as_double(layout.pipeline), m = as_double(layout.microbatches), i = as_double(pipeline_rank);
  const double v = as_double(layout.chunks);
  switch (layout.schedule) {
    case ScheduleKind::GPipe: return m;
    case ScheduleKind::OneForwardOneBackward: return std::min(m, p - i);
    case ScheduleKind::Interleaved: return std::min(m, (2 * (p - i - 1) + (v - 1) * p + 1) / v);
    case ScheduleKind::ZeroBubbleH1:
    case ScheduleKind::ZeroBubbleV: return std::min(m, p);  // zb-v: 2 P of half as many blocks
    case ScheduleKind::ZeroBubble2p: return std::min(m, 2 * p - 1);
  }
  return m;
}

// Gradients leave before those of weights are made, which wait for a gap: what they need is kept until then.
bool splits_backward(ScheduleKind schedule) {
  return schedule == ScheduleKind::ZeroBubbleH1 || schedule == ScheduleKind::ZeroBubble2p ||
         schedule == ScheduleKind::ZeroBubbleV;
}

// Kernels that backward_weight runs.
bool makes_weight_gradients(const kernels::KernelCall& call) {
  return call.variant.starts_with("tn") || call.kernel == "bias_gradient" || call.kernel.ends_with("_backward_weight");
}

// The end of each stage, where the heaviest is as light as can be: the least limit that a greedy walk keeps, each stage with at
// least one block.
std::vector<size_t> ends_of_stages(std::span<const double> costs, size_t stages) {
  const auto walk = [&](double limit) {
    std::vector<size_t> ends;
    double sum = 0;
    for (size_t b = 0; b < costs.size(); ++b) {
      const size_t left = stages - ends.size();  // with the one that is being filled
      const bool full = sum > 0 && (sum + costs[b] > limit || costs.size() - b < left);
      if (full && left > 1) ends.push_back(b), sum = 0;
      sum += costs[b];
      if (sum > limit && ends.size() + 1 == stages) return std::vector<size_t>{};
    }
    ends.push_back(costs.size());
    return ends;
  };
  double low = *std::ranges::max_element(costs), high = std::accumulate(costs.begin(), costs.end(), 0.0) * (1 + 1e-9);
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (walk(middle).empty() ? low : high) = middle;
  }
  return walk(high);
}

}  // namespace

StateTypes state_types(const Config& config) {
  StateTypes types{.dtype = config.model_dtype()};
  const bool fixed_point = config.reproducible == Reproducible::Layout;
  const DType gradients = fixed_point ? DType::Int64 : config.grad_accum_dtype.value_or(types.dtype);
  types.gradient_bytes = types.sent_gradient_bytes = as_double(size_of(gradients));
  const bool has_master = types.dtype != DType::Float32;
  types.optimizer_bytes = 4.0 * (optimizer_states(config.optimizer.type, config.optimizer) + (has_master ? 1 : 0));
  return types;
}

StepModel::StepModel(const model::Model& model, const Cluster& cluster, const StateTypes& types)
    : model_(model), cluster_(cluster), types_(types) {}

double StepModel::kernel_seconds(const kernels::KernelCall& call) const {
  const Accelerator& device = cluster_.device;
  const double rate = call.dtype == DType::Float32 ? device.float32_flops : device.matrix_flops;
  const double computing = is_product(call) ? call.flops / (rate * device.product_efficiency) : 0;
  return std::max({computing, call.bytes / device.memory_bandwidth, device.launch_seconds});
}

// Neighbours first fill a node.
Nodes StepModel::nodes_of(int64_t ranks, int64_t stride) const {
  const int64_t of_a_node = std::max<int64_t>(1, cluster_.devices_per_node / stride);
  const int64_t inner = std::min(ranks, of_a_node);
  return {.inner = inner, .nodes = (ranks + inner - 1) / inner, .inside = cluster_.inside, .outside = cluster_.outside};
}

double StepModel::operation_seconds(comm::Operation operation, double bytes, int64_t ranks, int64_t stride) const {
  if (ranks == 1) return 0;
  const Nodes nodes = nodes_of(ranks, stride);
  switch (operation) {
    case comm::Operation::AllReduce: return two_level_all_reduce(nodes, bytes);
    case comm::Operation::ReduceScatter: return two_level_reduce_scatter(nodes, bytes);
    case comm::Operation::AllGather: return two_level_all_gather(nodes, bytes);
    case comm::Operation::AllToAll:
      return pairwise_all_to_all(ranks, bytes, nodes.nodes > 1 ? cluster_.outside : cluster_.inside);
    case comm::Operation::Broadcast:
    case comm::Operation::Send:
    case comm::Operation::Receive: {
      const Link& link = stride >= cluster_.devices_per_node || nodes.nodes > 1 ? cluster_.outside : cluster_.inside;
      return link.alpha + bytes * link.beta;
    }
    case comm::Operation::Barrier: return 0;
  }
  return 0;
}

StepModel::BlockSeconds StepModel::seconds_of(const BlockWork& work, const Layout& layout, bool recomputed) const {
  const auto kernels = [&](const Work& part) {
    double sum = 0;
    for (const kernels::KernelCall& call : part.calls) sum += kernel_seconds(call);
    return sum;
  };
  // Operations run one after the other beside the kernels; what they end behind is waited for.
  const auto axis = [&](const Work& part) {
    double now = 0, free = 0, waited = 0;
    std::vector<double> ends;
    const auto wait = [&](double end) {
      waited += std::max(0.0, end - now);
      now = std::max(now, end);
    };
    for (const Work::Item& item : part.items) {
      if (item.kind == Work::Kind::Kernel) {
        now += kernel_seconds(part.calls[item.index]);
      } else if (item.kind == Work::Kind::Wait) {
        if (item.index > 0) wait(ends[item.index - 1]);
      } else {
        const AxisOperation& operation = part.operations[item.index];
        free = std::max(free, now) + operation_seconds(operation.operation, operation.bytes, layout.tensor, 1);
        ends.push_back(free);
        if (!layout.overlap_tensor) wait(free);
      }
    }
    wait(free);
    return waited;
  };
  BlockSeconds seconds{.forward = kernels(work.forward),
                       .backward = kernels(work.backward),
                       .forward_axis = axis(work.forward),
                       .backward_axis = axis(work.backward)};
  for (const kernels::KernelCall& call : work.backward.calls)
    if (makes_weight_gradients(call)) seconds.weights += kernel_seconds(call);
  if (recomputed) seconds.forward_again = seconds.forward, seconds.forward_again_axis = seconds.forward_axis;
  return seconds;
}

StepModel::BlockSeconds& StepModel::BlockSeconds::operator+=(const BlockSeconds& other) {
  forward += other.forward, backward += other.backward, weights += other.weights;
  forward_axis += other.forward_axis, backward_axis += other.backward_axis;
  forward_again += other.forward_again, forward_again_axis += other.forward_again_axis;
  return *this;
}

const std::vector<BlockWork>& StepModel::works_of(const Layout& layout) const {
  const bool selective = layout.recompute == Recompute::Selective;
  std::vector<BlockWork>& works = works_[{layout.microbatch, layout.tensor, layout.sequence_parallel, selective}];
  if (works.empty())
    works = work_of_blocks(model_, {.microbatch = layout.microbatch,
                                    .dtype = types_.dtype,
                                    .tensor = static_cast<int>(layout.tensor),
                                    .sequence_parallel = layout.sequence_parallel,
                                    .recompute_attention = selective});
  return works;
}

const std::vector<StepModel::Stage>& StepModel::stages_of(const Layout& layout) const {
  const int64_t count = layout.pipeline * layout.chunks;
  std::vector<Stage>& stages =
      stages_[{layout.microbatch, layout.tensor, layout.sequence_parallel, static_cast<int64_t>(layout.recompute),
               layout.overlap_tensor, splits_backward(layout.schedule), count}];
  if (!stages.empty()) return stages;
  const std::vector<BlockWork>& works = works_of(layout);
  // As in the engine, the first block and the last are not recomputed.
  const auto recomputed = [&](size_t b) { return layout.recompute == Recompute::Full && b > 0 && b + 1 < works.size(); };
  std::vector<BlockSeconds> times;
  std::vector<double> costs;
  for (size_t b = 0; b < works.size(); ++b) {
    times.push_back(seconds_of(works[b], layout, recomputed(b)));
    costs.push_back(times.back().total());
  }
  const std::vector<size_t> ends = ends_of_stages(costs, static_cast<size_t>(count));
  for (size_t stage = 0, b = 0; stage < ends.size(); ++stage) {
    Stage& sum = stages.emplace_back();
    for (; b < ends[stage]; ++b) {
      const BlockWork& work = works[b];
      const double parameters = as_double(work.parameters), saved = as_double(work.saved_bytes);
      const double held = splits_backward(layout.schedule) ? std::max(saved, as_double(work.pending_bytes)) : saved;
      const double input = b == 0 ? 0 : as_double(works[b - 1].output_elements * size_of(types_.dtype));
      sum.seconds += times[b];
      sum.parameters += parameters;
      sum.most_parameters = std::max(sum.most_parameters, parameters);
      sum.saved_bytes += recomputed(b) && !splits_backward(layout.schedule) ? input : held;
      sum.transient_bytes = std::max(sum.transient_bytes, as_double(work.peak_bytes) - (recomputed(b) ? 0 : saved - input));
    }
  }
  return stages;
}

StepBytes StepModel::bytes_of(const Layout& layout, int64_t pipeline_rank, const Stage& stage) const {
  const auto kept = [&](double bytes, int sharded_from) {
    return stage.parameters * bytes / (layout.zero_stage >= sharded_from ? as_double(layout.data) : 1);
  };
  // What is on its way between stages: inputs and gradients that come, outputs and gradients that go.
  const double messages = layout.pipeline > 1 ? 4 * as_double(works_of(layout)[0].output_elements) * types_.weight_bytes() : 0;
  StepBytes bytes{
      .parameters = kept(types_.weight_bytes(), 3),
      .gradients = kept(types_.gradient_bytes, 2),
      .optimizer = kept(types_.optimizer_bytes, 1),
      .activations = stage.saved_bytes * microbatches_in_flight(layout, pipeline_rank) + stage.transient_bytes + messages};
  // A block on its way and the one before it.
  if (layout.zero_stage >= 3) bytes.buffers += 2 * stage.most_parameters * types_.weight_bytes();
  if (layout.zero_stage >= 2) bytes.buffers += 2 * stage.most_parameters * types_.gradient_bytes;
  return bytes;
}

// Gradients go out while the backward that makes the last of them runs; whole weights come in while it, or the forward, does.
double StepModel::exposed_data_seconds(const Layout& layout, double parameters, double forward, double backward) const {
  if (layout.data == 1) return 0;
  const auto seconds = [&](comm::Operation operation, double bytes) {
    return operation_seconds(operation, parameters * bytes, layout.data, layout.tensor);
  };
  const double m = as_double(layout.microbatches);
  const double times_out = layout.zero_stage >= 2 ? m : 1, times_in = layout.zero_stage == 3 ? 2 * m : 1;
  const double out = layout.zero_stage == 0 ? seconds(comm::Operation::AllReduce, types_.sent_gradient_bytes)
                                            : seconds(comm::Operation::ReduceScatter, types_.sent_gradient_bytes);
  const double in = layout.zero_stage == 0 ? 0 : seconds(comm::Operation::AllGather, types_.weight_bytes());
  if (!layout.overlap) return times_out * out + times_in * in;
  // What belongs to the last block computed and to the first one needed has nothing beside it.
  const double of_a_block = std::min(1.0, as_double(layout.pipeline) / static_cast<double>(model_.layers.size()));
  const double hides_in = layout.zero_stage == 3 ? m * (forward + backward) : forward;
  return std::max(times_out * (out - backward), of_a_block * out) + std::max(times_in * in - hides_in, of_a_block * in);
}

// What is left of the makespan beside the microbatches' own time. It grows with them up to a few for each rank, and then no
// more; it is simulated for shares of F, I and W in percent.
double StepModel::bubble_seconds(const Layout& layout, double forward, double input, double weight) const {
  const double whole = forward + input + weight, p = as_double(layout.pipeline);
  if (layout.schedule == ScheduleKind::GPipe || layout.schedule == ScheduleKind::OneForwardOneBackward) return (p - 1) * whole;
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
  const std::vector<Stage>& stages = stages_of(layout);
  StepPrediction prediction;
  Stage slowest;
  for (int64_t rank = 0; rank < layout.pipeline; ++rank) {
    Stage sum;
    for (int64_t chunk = 0; chunk < layout.chunks; ++chunk) {
      const bool upwards = layout.schedule == ScheduleKind::ZeroBubbleV && chunk == 1;
      const Stage& stage = stages[static_cast<size_t>(chunk * layout.pipeline + (upwards ? layout.pipeline - 1 - rank : rank))];
      sum.seconds += stage.seconds;
      sum.parameters += stage.parameters;
      sum.most_parameters = std::max(sum.most_parameters, stage.most_parameters);
      sum.saved_bytes += stage.saved_bytes;
      sum.transient_bytes = std::max(sum.transient_bytes, stage.transient_bytes);
    }
    if (rank == 0 || sum.seconds.total() > slowest.seconds.total()) slowest = sum;
    const StepBytes bytes = bytes_of(layout, rank, sum);
    if (bytes.total() > prediction.bytes.total()) prediction.bytes = bytes;
  }

  const double m = as_double(layout.microbatches);
  const BlockSeconds& of = slowest.seconds;
  const double forward = of.forward + of.forward_axis, backward = of.total() - forward;
  StepSeconds& seconds = prediction.seconds;
  seconds.compute = m * (of.forward + of.backward);
  seconds.recompute = m * of.forward_again;
  seconds.tensor = m * (of.forward_axis + of.backward_axis + of.forward_again_axis);
  if (layout.pipeline > 1) {
    const double message = as_double(works_of(layout)[0].output_elements * size_of(types_.dtype));
    const double hop = operation_seconds(comm::Operation::Send, message, 2, layout.tensor * layout.data);
    seconds.bubble = bubble_seconds(layout, forward, backward - of.weights, of.weights) +
                     2 * as_double((layout.pipeline - 1) * layout.chunks) * hop;
  }
  seconds.data = exposed_data_seconds(layout, slowest.parameters, forward, backward);
  const double updated = slowest.parameters / (layout.zero_stage >= 1 ? as_double(layout.data) : 1);
  const double moved = types_.gradient_bytes + 2 * types_.optimizer_bytes + types_.weight_bytes();
  seconds.optimizer = updated * moved / cluster_.device.memory_bandwidth;

  const double tokens = as_double(layout.global_batch() * model_.sequence_length);
  prediction.tokens_per_second = tokens / seconds.total();
  prediction.model_flops_utilization = model::flops_per_token(model_) * prediction.tokens_per_second /
                                       (as_double(layout.devices()) * cluster_.device.matrix_flops);
  return prediction;
}

}  // namespace trivet::autotune
