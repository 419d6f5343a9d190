#include "autotune/step_model.h"

#include <algorithm>
#include <cmath>

#include "pipeline/partition.h"

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
    case ScheduleKind::ZeroBubbleV: return std::min(m, p);
    case ScheduleKind::ZeroBubble2p: return std::min(m, 2 * p - 1);
  }
  return m;
}

// Time in which a pipeline rank has nothing to do, for one with `forward` and `backward` a microbatch. The two halves of a
// backward take equally long.
double bubble_seconds(const Layout& layout, double forward, double backward) {
  const double others = as_double(layout.pipeline - 1), input = backward / 2, weight = backward / 2;
  switch (layout.schedule) {
    case ScheduleKind::GPipe:
    case ScheduleKind::OneForwardOneBackward: return others * (forward + backward);
    case ScheduleKind::Interleaved: return others * (forward + backward) / as_double(layout.chunks);
    case ScheduleKind::ZeroBubbleH1: return others * (forward + input - weight);
    case ScheduleKind::ZeroBubble2p: return others * std::max(0.0, forward + input - 2 * weight);
    case ScheduleKind::ZeroBubbleV: return others * std::max(0.0, forward - weight);
  }
  return 0;
}

}  // namespace

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
  BlockSeconds seconds{kernels(work.forward), kernels(work.backward), axis(work.forward), axis(work.backward)};
  if (recomputed) seconds.forward_again = seconds.forward, seconds.forward_again_axis = seconds.forward_axis;
  return seconds;
}

StepPrediction StepModel::predict(const Layout& layout) const {
  const std::vector<BlockWork> works =
      work_of_blocks(model_, {.microbatch = layout.microbatch,
                              .dtype = DType::BFloat16,
                              .tensor = static_cast<int>(layout.tensor),
                              .sequence_parallel = layout.sequence_parallel,
                              .recompute_attention = layout.recompute == Recompute::Selective});
  const size_t blocks = works.size();
  std::vector<BlockSeconds> times;
  std::vector<pipeline::BlockFacts> facts;
  for (size_t b = 0; b < blocks; ++b) {
    // As in the engine, the first block and the last are not recomputed.
    const bool again = layout.recompute == Recompute::Full && b > 0 && b + 1 < blocks;
    times.push_back(seconds_of(works[b], layout, again));
    const BlockSeconds& t = times.back();
    facts.push_back({model_.names[b], "", works[b].parameters,
                     t.forward + t.backward + t.forward_axis + t.backward_axis + t.forward_again + t.forward_again_axis});
  }
  const int stages = static_cast<int>(layout.pipeline * layout.chunks);
  const std::vector<int> first_blocks = pipeline::partition(facts, stages, pipeline::PartitionMethod::Cost);

  StepPrediction prediction;
  double slowest = -1, owned = 0;
  BlockSeconds of_slowest;
  for (int64_t rank = 0; rank < layout.pipeline; ++rank) {
    BlockSeconds sum;
    double parameters = 0, saved = 0, largest = 0, peak = 0, block_parameters = 0;
    for (int64_t chunk = 0; chunk < layout.chunks; ++chunk) {
      const int64_t down = layout.schedule == ScheduleKind::ZeroBubbleV && chunk == 1 ? layout.pipeline - 1 - rank : rank;
      const auto stage = static_cast<size_t>(chunk * layout.pipeline + down);
      for (auto b = static_cast<size_t>(first_blocks[stage]); b < static_cast<size_t>(first_blocks[stage + 1]); ++b) {
        const BlockSeconds& t = times[b];
        sum.forward += t.forward, sum.backward += t.backward;
        sum.forward_axis += t.forward_axis, sum.backward_axis += t.backward_axis;
        sum.forward_again += t.forward_again, sum.forward_again_axis += t.forward_again_axis;
        parameters += as_double(works[b].parameters);
        const double input = b == 0 ? 0 : as_double(works[b - 1].output_elements) * 2;
        saved += t.forward_again > 0 ? input : as_double(works[b].saved_bytes);
        if (t.forward_again > 0) largest = std::max(largest, as_double(works[b].saved_bytes));
        peak = std::max(peak, as_double(works[b].peak_bytes - (t.forward_again > 0 ? 0 : works[b].saved_bytes)));
        block_parameters = std::max(block_parameters, as_double(works[b].parameters));
      }
    }
    const double whole =
        sum.forward + sum.backward + sum.forward_axis + sum.backward_axis + sum.forward_again + sum.forward_again_axis;
    if (whole > slowest) slowest = whole, of_slowest = sum, owned = parameters;
    const double share = 1.0 / as_double(layout.data);
    const auto kept = [&](double bytes, int sharded_from) {
      return parameters * bytes * (layout.zero_stage >= sharded_from ? share : 1);
    };
    StepBytes bytes{.parameters = kept(types_.weight_bytes, 3),
                    .gradients = kept(types_.gradient_bytes, 2),
                    .optimizer = kept(types_.optimizer_bytes, 1),
                    .activations = saved * microbatches_in_flight(layout, rank) + largest + std::max(0.0, peak),
                    .buffers = layout.zero_stage >= 3 ? 2 * block_parameters * types_.weight_bytes : 0};
    if (layout.zero_stage >= 2 && layout.data > 1) bytes.buffers += 2 * block_parameters * types_.gradient_bytes;
    if (bytes.total() > prediction.bytes.total()) prediction.bytes = bytes;
  }

  const double m = as_double(layout.microbatches);
  StepSeconds& seconds = prediction.seconds;
  seconds.compute = m * (of_slowest.forward + of_slowest.backward);
  seconds.recompute = m * of_slowest.forward_again;
  seconds.tensor = m * (of_slowest.forward_axis + of_slowest.backward_axis + of_slowest.forward_again_axis);
  const double forward = of_slowest.forward + of_slowest.forward_axis;
  const double backward = slowest - forward;
  if (layout.pipeline > 1) {
    const double hop =
        operation_seconds(comm::Operation::Send, as_double(works[0].output_elements) * 2, 2, layout.tensor * layout.data);
    seconds.bubble = bubble_seconds(layout, forward, backward) + 2 * as_double((layout.pipeline - 1) * layout.chunks) * hop;
  }

  // Gradients go out while the backward that makes the last of them runs; whole weights come in while it, or the forward, does.
  const auto over_data = [&](comm::Operation operation, double bytes) {
    return operation_seconds(operation, bytes, layout.data, layout.tensor);
  };
  const double gradients = owned * types_.sent_gradient_bytes, weights = owned * types_.weight_bytes;
  double out = 0, in = 0, hides_out = backward, hides_in = forward;
  switch (layout.zero_stage) {
    case 0: out = over_data(comm::Operation::AllReduce, gradients); break;
    case 1:
      out = over_data(comm::Operation::ReduceScatter, gradients);
      in = over_data(comm::Operation::AllGather, weights);
      break;
    default:
      out = m * over_data(comm::Operation::ReduceScatter, gradients);
      in = (layout.zero_stage == 3 ? 2 * m : 1) * over_data(comm::Operation::AllGather, weights);
      hides_out = m * backward;
      if (layout.zero_stage == 3) hides_in = m * (forward + backward);
      break;
  }
  // What belongs to the last block computed and the first one needed has nothing beside it.
  const double of_a_block = 1 / std::max(1.0, as_double(static_cast<int64_t>(blocks)) / as_double(layout.pipeline));
  const auto exposed = [&](double communication, double window) {
    if (!layout.overlap) return communication;
    return std::max(communication - window, of_a_block * communication / (layout.zero_stage >= 2 ? m : 1));
  };
  seconds.data = exposed(out, hides_out) + exposed(in, hides_in);

  const double updated = owned * (layout.zero_stage >= 1 ? 1.0 / as_double(layout.data) : 1);
  seconds.optimizer =
      updated * (types_.gradient_bytes + 2 * types_.optimizer_bytes + types_.weight_bytes) / cluster_.device.memory_bandwidth;

  const double tokens = as_double(layout.global_batch()) * as_double(model_.sequence_length);
  prediction.tokens_per_second = tokens / seconds.total();
  prediction.model_flops_utilization = model::flops_per_token(model_) * prediction.tokens_per_second /
                                       (as_double(layout.devices()) * cluster_.device.matrix_flops);
  return prediction;
}

}  // namespace trivet::autotune
