#include "autotune/step_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/optimizer/optimizer_step.h"
#include "pipeline/partition.h"
#include "pipeline/schedules/schedules.h"
#include "pipeline/simulate.h"

namespace trivet::autotune {
namespace {

bool is_product(const kernels::KernelCall& call) {
  return call.kernel == "matmul" || call.kernel == "attention" || call.kernel == "attention_backward";
}

double as_double(int64_t number) { return static_cast<double>(number); }

// Microbatches that a pipeline rank holds at most, in those of all of its stages: between their forward and the gradient of
// their input, and from there to the gradients of weights where these wait (docs/schedules.md).
struct InFlight {
  double before_input = 0, pending = 0;
};
InFlight microbatches_in_flight(const Layout& layout, int64_t pipeline_rank) {
  const double p = as_double(layout.pipeline), m = as_double(layout.microbatches), i = as_double(pipeline_rank);
  const double v = as_double(layout.chunks);
  switch (layout.schedule) {
    case ScheduleKind::GPipe: return {m, 0};
    case ScheduleKind::OneForwardOneBackward: return {std::min(m, p - i), 0};
    case ScheduleKind::Interleaved: return {std::min(m, (2 * (p - i - 1) + (v - 1) * p + 1) / v), 0};
    case ScheduleKind::ZeroBubbleH1: return {std::min(m - 1, p - i - 1), std::min(m, i + 1)};
    case ScheduleKind::ZeroBubble2p: return {std::min(m - 1, 2 * (p - 1 - i)), std::min(m, 2 * i + 1)};
    case ScheduleKind::ZeroBubbleV: return {std::min(m, p) / 2, std::min(m, p) / 2};  // 2 p of half as many blocks
  }
  return {m, 0};
}

// Kernels that backward_weight runs.
bool makes_weight_gradients(const kernels::KernelCall& call) {
  return call.variant.starts_with("tn") || call.kernel == "bias_gradient" || call.kernel.ends_with("_backward_weight");
}

}  // namespace

StateTypes state_types(const Config& config) {
  StateTypes types{.dtype = config.model_dtype()};
  const bool fixed_point = config.reproducible == Reproducible::Layout;
  const DType gradients = fixed_point ? DType::Int64 : config.grad_accum_dtype.value_or(types.dtype);
  types.gradient_bytes = types.sent_gradient_bytes = as_double(size_of(gradients));
  const bool has_master = types.dtype != DType::Float32;
  types.optimizer_bytes = 4.0 * (optimizer_states(config.optimizer.type, config.optimizer) + (has_master ? 1 : 0));
  switch (config.zero.stage3_release) {
    case pipeline::UnshardRelease::Distance:
      types.most_reuse_distance = as_double(config.zero.stage3_max_reuse_distance);
      break;
    case pipeline::UnshardRelease::Step: types.most_reuse_distance = std::numeric_limits<double>::infinity(); break;
    case pipeline::UnshardRelease::Use:
    case pipeline::UnshardRelease::Microbatch: types.most_reuse_distance = 0; break;
  }
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

// Neighbours first fill a node. Where groups do not, some of them lie across two nodes, and the slowest counts.
Nodes StepModel::nodes_of(int64_t ranks, int64_t stride) const {
  const int64_t node = cluster_.devices_per_node, span = ranks * stride;
  const bool straddles = node % stride != 0 ? stride % node != 0 : node % span != 0 && span % node != 0;
  const int64_t inner = straddles ? 1 : std::min(ranks, std::max<int64_t>(1, node / stride));
  return {.inner = inner, .nodes = ranks / inner, .inside = cluster_.inside, .outside = cluster_.outside};
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
  for (const kernels::KernelCall& call : work.backward.calls) {
    if (makes_weight_gradients(call)) seconds.weights += kernel_seconds(call);
    if (call.kernel != "attention") continue;  // of the forward, made again
    seconds.backward -= kernel_seconds(call);
    seconds.forward_again += kernel_seconds(call);
  }
  if (recomputed) seconds.forward_again += seconds.forward, seconds.forward_again_axis = seconds.forward_axis;
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
  std::vector<Stage>& stages = stages_[{layout.microbatch, layout.tensor, layout.sequence_parallel,
                                        static_cast<int64_t>(layout.recompute), layout.overlap_tensor, count}];
  if (!stages.empty()) return stages;
  const std::vector<BlockWork>& works = works_of(layout);
  const std::vector<int> first_blocks =
      pipeline::partition(facts_of(layout), static_cast<int>(count), pipeline::PartitionMethod::Cost);
  for (int64_t stage = 0; stage < count; ++stage) {
    Stage& sum = stages.emplace_back();
    const auto end = static_cast<size_t>(first_blocks[static_cast<size_t>(stage) + 1]);
    for (auto b = static_cast<size_t>(first_blocks[static_cast<size_t>(stage)]); b < end; ++b) {
      const BlockWork& work = works[b];
      // As in the engine, the first block and the last are not recomputed.
      const bool recomputed = layout.recompute == Recompute::Full && b > 0 && b + 1 < works.size();
      const double saved = as_double(work.saved_bytes);
      const double input = b == 0 ? 0 : as_double(works[b - 1].output_elements) * types_.weight_bytes();
      sum.blocks += 1;
      sum.seconds += seconds_of(work, layout, recomputed);
      sum.parameters += as_double(work.parameters);
      sum.tied_parameters += as_double(work.tied_parameters);
      sum.most_parameters = std::max(sum.most_parameters, as_double(work.parameters + work.tied_parameters));
      sum.saved_bytes += recomputed ? input : saved;
      sum.pending_bytes += std::max(saved, as_double(work.pending_bytes));
      sum.transient_bytes = std::max(sum.transient_bytes, as_double(work.peak_bytes) - (recomputed ? 0 : saved - input));
    }
  }
  return stages;
}

// What the engine deals stages by: counted FLOPs of whole blocks.
const std::vector<pipeline::BlockFacts>& StepModel::facts_of(const Layout& layout) const {
  if (!facts_.empty()) return facts_;
  Layout whole{.microbatch = layout.microbatch};
  const std::vector<BlockWork>& works = works_of(whole);
  for (size_t b = 0; b < works.size(); ++b) {
    double flops = 0;
    for (const Work* part : {&works[b].forward, &works[b].backward})
      for (const kernels::KernelCall& call : part->calls) flops += call.flops;
    facts_.push_back({model_.names[b], "", works[b].parameters, flops});
  }
  return facts_;
}

// With ZeRO-3 and stage3_release "distance", weights that are used again before so many others stay whole.
bool StepModel::stays_whole(const Layout& layout, double parameters) const {
  return layout.zero_stage == 3 && 2 * parameters < types_.most_reuse_distance;
}

StepBytes StepModel::bytes_of(const Layout& layout, int64_t pipeline_rank, const Stage& stage) const {
  const auto share = [&](int sharded_from) { return layout.zero_stage >= sharded_from ? 1 / as_double(layout.data) : 1.0; };
  // A tied weight lies beside its owner, or is a replica of one on another rank; its gradients have a place of their own.
  const bool replica = stage.tied_parameters > 0 && layout.pipeline > 1 && layout.schedule != ScheduleKind::ZeroBubbleV;
  const double weights = stage.parameters + (replica ? stage.tied_parameters : 0);
  const auto [before_input, pending] = microbatches_in_flight(layout, pipeline_rank);
  // What is on its way between stages: inputs and gradients that come, outputs and gradients that go.
  const double messages = layout.pipeline > 1 ? 4 * as_double(works_of(layout)[0].output_elements) * types_.weight_bytes() : 0;
  StepBytes bytes{
      .parameters = weights * types_.weight_bytes() * share(3),
      .gradients = (stage.parameters + stage.tied_parameters) * types_.gradient_bytes * share(2),
      .optimizer = stage.parameters * types_.optimizer_bytes * share(1),
      .activations = stage.saved_bytes * before_input + stage.pending_bytes * pending + stage.transient_bytes + messages};
  // Whole weights, or a block on its way and the one before it.
  if (layout.zero_stage >= 3)
    bytes.buffers += (stays_whole(layout, weights) ? weights : 2 * stage.most_parameters) * types_.weight_bytes();
  if (layout.zero_stage >= 2) bytes.buffers += 2 * stage.most_parameters * types_.gradient_bytes;
  return bytes;
}

// Gradients go out while the backward that makes the last of them runs; whole weights come in while a forward or a backward
// needs the ones before. Both share the links, an operation a block.
double StepModel::exposed_data_seconds(const Layout& layout, const Stage& stage, double forward, double backward) const {
  if (layout.data == 1) return 0;
  const double m = as_double(layout.microbatches);
  const auto seconds = [&](comm::Operation operation, double bytes) {
    return stage.blocks * operation_seconds(operation, stage.parameters / stage.blocks * bytes, layout.data, layout.tensor);
  };
  const double out = layout.zero_stage == 0 ? seconds(comm::Operation::AllReduce, types_.sent_gradient_bytes)
                                            : seconds(comm::Operation::ReduceScatter, types_.sent_gradient_bytes);
  const double in = layout.zero_stage == 0 ? 0 : seconds(comm::Operation::AllGather, types_.weight_bytes());
  const bool gathers_always = layout.zero_stage == 3 && !stays_whole(layout, stage.parameters);
  const double times_out = layout.zero_stage >= 2 ? m : 1, times_in = gathers_always ? 2 * m : 1;
  if (!layout.overlap) return times_out * out + times_in * in;
  const auto beyond = [](double communication, double window) { return std::max(0.0, communication - window); };
  // What belongs to the last block computed and to the first one needed has nothing beside it.
  const double at_least = (out + in) / stage.blocks;
  double exposed = 0;
  if (gathers_always) {
    exposed = m * (beyond(in, forward) + beyond(in + out, backward));
  } else {
    exposed = times_out * beyond(out, backward) + beyond(in, forward);
  }
  return std::max(exposed, at_least);
}

// What is left of the makespan beside the microbatches' own time. It grows with them up to a few for each rank, and then no
// more; it is simulated for shares of F, I and W in percent.
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

StepModel::Stage StepModel::stage_of_rank(const Layout& layout, int64_t pipeline_rank) const {
  const std::vector<Stage>& stages = stages_of(layout);
  Stage sum;
  for (int64_t chunk = 0; chunk < layout.chunks; ++chunk) {
    const bool upwards = layout.schedule == ScheduleKind::ZeroBubbleV && chunk == 1;
    const int64_t place = upwards ? layout.pipeline - 1 - pipeline_rank : pipeline_rank;
    const Stage& stage = stages[static_cast<size_t>(chunk * layout.pipeline + place)];
    sum.seconds += stage.seconds;
    sum.blocks += stage.blocks;
    sum.parameters += stage.parameters, sum.tied_parameters += stage.tied_parameters;
    sum.most_parameters = std::max(sum.most_parameters, stage.most_parameters);
    sum.saved_bytes += stage.saved_bytes, sum.pending_bytes += stage.pending_bytes;
    sum.transient_bytes = std::max(sum.transient_bytes, stage.transient_bytes);
  }
  return sum;
}

StepBytes StepModel::bytes(const Layout& layout) const {
  StepBytes most;
  for (int64_t rank = 0; rank < layout.pipeline; ++rank) {
    const StepBytes bytes = bytes_of(layout, rank, stage_of_rank(layout, rank));
    if (bytes.total() > most.total()) most = bytes;
  }
  return most;
}

StepPrediction StepModel::predict(const Layout& layout) const {
  StepPrediction prediction{.seconds = {}, .bytes = bytes(layout)};
  Stage slowest;
  StepSeconds& seconds = prediction.seconds;
  const double moved = types_.gradient_bytes + 2 * types_.optimizer_bytes + types_.weight_bytes();
  for (int64_t rank = 0; rank < layout.pipeline; ++rank) {
    const Stage stage = stage_of_rank(layout, rank);
    if (rank == 0 || stage.seconds.total() > slowest.seconds.total()) slowest = stage;
    const double forward = stage.seconds.forward + stage.seconds.forward_axis;
    const double updated = stage.parameters / (layout.zero_stage >= 1 ? as_double(layout.data) : 1);
    seconds.data = std::max(seconds.data, exposed_data_seconds(layout, stage, forward, stage.seconds.total() - forward));
    seconds.optimizer = std::max(seconds.optimizer, updated * moved / cluster_.device.memory_bandwidth);
  }

  const double m = as_double(layout.microbatches);
  const BlockSeconds& of = slowest.seconds;
  const double forward = of.forward + of.forward_axis, backward = of.total() - forward;
  seconds.compute = m * (of.forward + of.backward);
  seconds.recompute = m * of.forward_again;
  seconds.tensor = m * (of.forward_axis + of.backward_axis + of.forward_again_axis);
  if (layout.pipeline > 1) {
    const double message = as_double(works_of(layout)[0].output_elements) * types_.weight_bytes();
    const int64_t stride = layout.tensor * layout.data;
    const bool leaves_node = layout.pipeline * stride > cluster_.devices_per_node;  // some neighbours do
    const double hop = operation_seconds(comm::Operation::Send, message, 2, leaves_node ? cluster_.devices_per_node : stride);
    seconds.bubble = bubble_seconds(layout, forward, backward - of.weights, of.weights) +
                     2 * as_double((layout.pipeline - 1) * layout.chunks) * hop;
  }

  const double tokens = as_double(layout.global_batch() * model_.sequence_length);
  prediction.tokens_per_second = tokens / seconds.total();
  prediction.model_flops_utilization = model::flops_per_token(model_) * prediction.tokens_per_second /
                                       (as_double(layout.devices()) * cluster_.device.matrix_flops);
  return prediction;
}

}  // namespace trivet::autotune
