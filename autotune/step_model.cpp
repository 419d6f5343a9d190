#include "autotune/step_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "engine/make_plan.h"
#include "pipeline/partition.h"

namespace trivet::autotune {
namespace {

// The matrix units work on tiles of so many rows (those of CUTLASS for H100).
constexpr double kTileRows = 128;

bool multiplies_rows_of_experts(const kernels::KernelCall& call) {
  return call.kernel == "grouped_matmul" || call.kernel == "grouped_gradient";
}

// The rows of each expert begin with a tile of their own, so that on average half a tile of every expert is empty. Few rows per
// expert take longer than as many of a single product.
double work_on_empty_rows(const kernels::KernelCall& call) {
  const double rows = as_double(call.sizes[call.kernel == "grouped_gradient" ? 2 : 0]), experts = as_double(call.sizes[3]);
  return rows > 0 ? std::min(kTileRows - 1, kTileRows / 2 * experts / rows) : 0;
}

// What a round does with the rows of another rank (model/expert_exchange.h); the narrow rows of adapters are left out.
bool is_of_round(const kernels::KernelCall& call) {
  return multiplies_rows_of_experts(call) || call.kernel == "weighted_swiglu" || call.kernel == "weighted_swiglu_backward" ||
         call.kernel == "add_expert_bias";
}

// What backward computes again, because forward did not keep it: attention, and experts that ranks share.
bool repeats_forward(const kernels::KernelCall& call) {
  if (call.kernel == "weighted_swiglu" || call.kernel == "add_expert_bias") return true;
  return call.result == kernels::Result::Other && (call.bound == kernels::Bound::Attention || multiplies_rows_of_experts(call));
}

}  // namespace

StepModel::StepModel(const model::Model& model, const Cluster& cluster, const StateTypes& types)
    : model_(model), cluster_(cluster), types_(types), blocks_(model) {}

double StepModel::kernel_seconds(const kernels::KernelCall& call) const {
  const Accelerator& device = cluster_.device;
  const double rate = call.dtype == DType::Float32 ? device.float32_flops : device.matrix_flops;
  const double flops = call.flops * (1 + (multiplies_rows_of_experts(call) ? work_on_empty_rows(call) : 0));
  const double computing = kernels::multiplies(call) ? flops / (rate * device.product_efficiency) : 0;
  return std::max({computing, call.bytes / device.memory_bandwidth, device.launch_seconds});
}

// Neighbouring ranks fill a node first. If groups do not divide a node evenly, some of them span two nodes, and the slowest
// counts.
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
    case comm::Operation::AllToAllV:  // as if the rank's data were spread evenly
      return pairwise_all_to_all(ranks, bytes, nodes.nodes > 1 ? cluster_.outside : cluster_.inside);
    case comm::Operation::Broadcast:
    case comm::Operation::Send:
    case comm::Operation::Receive: {
      const LinkRates& link = stride >= cluster_.devices_per_node || nodes.nodes > 1 ? cluster_.outside : cluster_.inside;
      return link.alpha + bytes * link.beta;
    }
    case comm::Operation::Barrier: return 0;
  }
  return 0;
}

StepModel::BlockSeconds StepModel::seconds_of(const BlockWork& work, const Layout& layout, bool recomputed) const {
  const double fullest = layout.expert > 1 ? cluster_.expert_imbalance : 1;
  const auto seconds_of_call = [&](const kernels::KernelCall& call) {
    return kernel_seconds(call) * (is_of_round(call) ? fullest : 1);
  };
  const auto kernels = [&](const PassWork& part) {
    double sum = 0;
    for (const kernels::KernelCall& call : part.calls) sum += seconds_of_call(call);
    return sum;
  };
  // Operations of an axis run in sequence and overlap the kernels, which wait for some of them.
  struct Axes {
    double tensor = 0, context = 0, expert = 0, hidden = 0;  // what is waited for, and what is not
    double exposed() const { return tensor + context + expert; }
  };
  struct Queue {
    double free = 0, waited = 0, all = 0;
    double hidden() const { return std::max(0.0, all - waited); }
  };
  const auto axis = [&](const PassWork& part) -> Axes {
    double now = 0;
    Queue tensor, context, expert;
    std::vector<double> ends;
    const auto queue_of = [&](size_t operation) -> Queue& {
      const Axis of = part.operations[operation].axis;
      return of == Axis::Context ? context : of == Axis::Expert ? expert : tensor;
    };
    const auto wait = [&](Queue& queue, double end) {
      queue.waited += std::max(0.0, end - now);
      now = std::max(now, end);
    };
    for (const auto& [kind, index] : part.items) {
      if (kind == PassWork::Kind::Kernel) {
        now += seconds_of_call(part.calls[index]);
      } else if (kind == PassWork::Kind::Wait) {
        wait(queue_of(index), ends[index]);
      } else {
        const AxisOperation& operation = part.operations[index];
        const bool exchange = operation.axis != Axis::Tensor, rows = operation.operation == comm::Operation::Send;
        Queue& queue = queue_of(index);
        const double takes =
            operation_seconds(operation.operation, operation.bytes * (operation.axis == Axis::Expert && rows ? fullest : 1),
                              operation.ranks, operation.stride * (exchange ? layout.tensor : 1));
        queue.all += takes;
        queue.free = std::max(queue.free, now) + takes;
        ends.push_back(queue.free);
        if (!exchange && !layout.overlap_tensor) wait(queue, queue.free);
      }
    }
    wait(tensor, tensor.free);
    wait(context, context.free);
    wait(expert, expert.free);
    return {tensor.waited, context.waited, expert.waited, tensor.hidden() + context.hidden() + expert.hidden()};
  };
  const Axes forward_axis = axis(work.forward), backward_axis = axis(work.backward);
  const PassWork& again = layout.recompute_outputs ? work.forward : work.again;
  const Axes again_axis = recomputed ? axis(again) : Axes{};
  BlockSeconds seconds{.forward = kernels(work.forward),
                       .backward = kernels(work.backward),
                       .forward_axis = forward_axis.exposed(),
                       .backward_axis = backward_axis.exposed(),
                       .tensor_axis = forward_axis.tensor + again_axis.tensor + backward_axis.tensor,
                       .context_axis = forward_axis.context + again_axis.context + backward_axis.context,
                       .expert_axis = forward_axis.expert + again_axis.expert + backward_axis.expert,
                       .hidden_axis = forward_axis.hidden + again_axis.hidden + backward_axis.hidden};
  for (const kernels::KernelCall& call : work.backward.calls) {
    if (call.result == kernels::Result::WeightGradient) seconds.weights += seconds_of_call(call);
    if (!repeats_forward(call)) continue;
    seconds.backward -= seconds_of_call(call);
    // After a whole forward nothing is left to repeat.
    if (!(recomputed && layout.recompute_outputs)) seconds.forward_again += seconds_of_call(call);
  }
  if (recomputed) seconds.forward_again += kernels(again), seconds.forward_again_axis = again_axis.exposed();
  return seconds;
}

StepModel::BlockSeconds& StepModel::BlockSeconds::operator+=(const BlockSeconds& other) {
  forward += other.forward, backward += other.backward, weights += other.weights;
  forward_axis += other.forward_axis, backward_axis += other.backward_axis;
  forward_again += other.forward_again, forward_again_axis += other.forward_again_axis;
  tensor_axis += other.tensor_axis, context_axis += other.context_axis, expert_axis += other.expert_axis;
  hidden_axis += other.hidden_axis;
  return *this;
}

const Works& StepModel::works_of(const Layout& layout) const {
  const bool selective = layout.recompute == Recompute::Selective;
  Works& works = works_[{layout.microbatch, layout.context, layout.tensor, layout.expert, layout.sequence_parallel,
                         static_cast<int64_t>(layout.context_kind), layout.context_neighbours, selective}];
  if (works.empty())
    works = blocks_.at({.microbatch = layout.microbatch,
                        .dtype = types_.dtype,
                        .tensor = static_cast<int>(layout.tensor),
                        .context = static_cast<int>(layout.context),
                        .expert = static_cast<int>(layout.expert),
                        .sequence_parallel = layout.sequence_parallel,
                        .context_kind = layout.context_kind,
                        .context_neighbours = static_cast<int>(layout.context_neighbours),
                        .recompute_attention = selective});
  return works;
}

const std::vector<StepModel::Stage>& StepModel::stages_of(const Layout& layout) const {
  const int64_t count = layout.pipeline * layout.chunks;
  std::vector<Stage>& stages =
      stages_[{layout.microbatch, layout.context, layout.tensor, layout.expert, layout.sequence_parallel,
               static_cast<int64_t>(layout.context_kind), layout.context_neighbours, static_cast<int64_t>(layout.recompute),
               layout.recompute_outputs, layout.overlap_tensor, count}];
  if (!stages.empty()) return stages;
  const Works& works = works_of(layout);
  const std::vector<int> first_blocks =
      pipeline::partition(facts_of(layout), static_cast<int>(count), pipeline::PartitionMethod::Cost);
  struct {
    const BlockWork* work = nullptr;
    bool recomputed = false;
    BlockSeconds seconds;
  } last;  // most blocks are like the one before
  for (int64_t stage = 0; stage < count; ++stage) {
    Stage& sum = stages.emplace_back();
    const size_t end = first_blocks[stage + 1];
    for (size_t b = first_blocks[stage]; b < end; ++b) {
      const BlockWork& work = *works[b];
      // As in the engine (recompute_of_blocks in engine/program.cpp).
      const bool recomputed = layout.recompute == Recompute::Full && b > 0 && model_.layers[b]->role() == LayerRole::Hidden;
      const double saved = as_double(work.saved_bytes);
      const double input = b == 0 ? 0 : as_double(works[b - 1]->output_elements) * types_.weight_bytes();
      sum.blocks += 1;
      if (last.work != &work || last.recomputed != recomputed) last = {&work, recomputed, seconds_of(work, layout, recomputed)};
      sum.seconds += last.seconds;
      sum.parameters += as_double(work.parameters);
      sum.tied_parameters += as_double(work.tied_parameters);
      sum.most_parameters = std::max(sum.most_parameters, as_double(work.parameters + work.tied_parameters));
      sum.trained += as_double(work.trained);
      sum.tied_trained += as_double(work.tied_trained);
      sum.most_trained = std::max(sum.most_trained, as_double(work.trained + work.tied_trained));
      sum.expert_parameters += as_double(work.expert_parameters), sum.expert_trained += as_double(work.expert_trained);
      sum.expert_blocks += work.expert_parameters > 0 ? 1 : 0;
      sum.saved_bytes += recomputed ? input : saved;
      sum.pending_bytes += std::max(saved, as_double(work.pending_bytes));
      sum.transient_bytes = std::max(sum.transient_bytes, as_double(work.peak_bytes) - (recomputed ? 0 : saved - input));
    }
  }
  return stages;
}

const std::vector<pipeline::BlockFacts>& StepModel::facts_of(const Layout& layout) const {
  if (facts_.empty()) facts_ = block_facts({}, model_, layout.microbatch);
  return facts_;
}

StepModel::Stage StepModel::stage_of_rank(const Layout& layout, int64_t pipeline_rank) const {
  const std::vector<Stage>& stages = stages_of(layout);
  Stage sum;
  for (int64_t chunk = 0; chunk < layout.chunks; ++chunk) {
    const bool upwards = traits_of(layout.schedule).ends_on_first_rank && chunk == 1;
    const int64_t place = upwards ? layout.pipeline - 1 - pipeline_rank : pipeline_rank;
    const Stage& stage = stages[chunk * layout.pipeline + place];
    sum.seconds += stage.seconds;
    sum.blocks += stage.blocks;
    sum.parameters += stage.parameters, sum.tied_parameters += stage.tied_parameters;
    sum.most_parameters = std::max(sum.most_parameters, stage.most_parameters);
    sum.trained += stage.trained, sum.tied_trained += stage.tied_trained;
    sum.most_trained = std::max(sum.most_trained, stage.most_trained);
    sum.expert_parameters += stage.expert_parameters, sum.expert_trained += stage.expert_trained;
    sum.expert_blocks += stage.expert_blocks;
    sum.saved_bytes += stage.saved_bytes, sum.pending_bytes += stage.pending_bytes;
    sum.transient_bytes = std::max(sum.transient_bytes, stage.transient_bytes);
  }
  return sum;
}

}  // namespace trivet::autotune
