// Predicts the most that a device holds during a step.
#include <algorithm>
#include <limits>

#include "autotune/step_model.h"
#include "engine/config/optimizer_traits.h"

namespace trivet::autotune {
namespace {

// The most microbatches that a pipeline rank holds, counting all of its stages together: between their forward and the gradient
// of their input, and from there to the gradients of weights if these are delayed (docs/schedules.md).
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
    case ScheduleKind::ZeroBubbleV: return {std::min(m, p) / 2, std::min(m, p) / 2};  // 2 p microbatches of half as many blocks
  }
  return {m, 0};
}

}  // namespace

StateTypes state_types(const Config& config) {
  StateTypes types{.dtype = config.model_dtype()};
  const bool fixed_point = config.reproducible == Reproducible::Layout;
  const DType gradients = fixed_point ? DType::Int64 : config.gradient_dtype();
  types.gradient_bytes = types.sent_gradient_bytes = as_double(size_of(gradients));
  const bool has_master = types.dtype != DType::Float32;
  types.optimizer_bytes = 4.0 * (optimizer_states(config.optimizer) + (has_master ? 1 : 0));
  switch (config.zero.stage3_release) {
    case pipeline::UnshardRelease::Distance:
      types.most_reuse_distance = as_double(config.zero.stage3_max_reuse_distance);
      break;
    case pipeline::UnshardRelease::Step: types.most_reuse_distance = std::numeric_limits<double>::infinity(); break;
    case pipeline::UnshardRelease::Use:
    case pipeline::UnshardRelease::Microbatch: types.most_reuse_distance = 0; break;
  }
  types.max_live = as_double(config.zero.stage3_max_live_parameters);
  types.sub_group = as_double(config.zero.sub_group_size);
  return types;
}

double bytes_over(const StepBytes& bytes, const Cluster& cluster) {
  const double device = bytes.total() - as_double(cluster.device.usable_bytes());
  return bytes.host > 0 ? std::max(device, bytes.host - as_double(cluster.host.memory_bytes)) : device;
}

// With ZeRO-3 and stage3_release "distance", weights stay whole if fewer than stage3_max_reuse_distance other parameters are
// used before they are used again.
bool StepModel::stays_whole(const Layout& layout, double parameters) const {
  return layout.zero_stage == 3 && 2 * parameters < types_.most_reuse_distance && parameters <= types_.max_live;
}

StepBytes StepModel::bytes_of(const Layout& layout, int64_t pipeline_rank, const Stage& stage) const {
  const auto own = [&](double elements, double of_experts, int sharded_from) {
    if (layout.zero_stage < sharded_from) return elements;
    return (elements - of_experts) / as_double(layout.shards()) + of_experts / as_double(layout.expert_shards());
  };
  // A tied weight is either on the rank of its owner or a replica of an owner on another rank; its gradients have memory of
  // their own.
  const bool apart = layout.pipeline > 1 && !traits_of(layout.schedule).ends_on_first_rank;
  const bool replica = stage.tied_parameters > 0 && apart;
  const double weights = stage.parameters + (replica ? stage.tied_parameters : 0);
  const auto [before_input, pending] = microbatches_in_flight(layout, pipeline_rank);
  // Messages between stages: inputs and gradients that arrive, outputs and gradients that leave.
  const int64_t largest_output =
      std::ranges::max(works_of(layout), {}, [](const auto& work) { return work->output_elements; })->output_elements;
  const double messages = layout.pipeline > 1 ? 4 * as_double(largest_output) * types_.weight_bytes() : 0;
  StepBytes bytes{
      .parameters = own(weights, stage.expert_parameters, 3) * types_.weight_bytes(),
      .gradients = own(stage.trained + stage.tied_trained, stage.expert_trained, 2) * types_.gradient_bytes,
      .optimizer = layout.offload_optimizer ? 0 : own(stage.trained, stage.expert_trained, 1) * types_.optimizer_bytes,
      .activations = stage.saved_bytes * before_input + stage.pending_bytes * pending + stage.transient_bytes + messages};
  // All whole weights, or the block being gathered and the one before it.
  if (layout.zero_stage >= 3)
    bytes.buffers +=
        (stays_whole(layout, weights) ? weights : (layout.prefetch ? 2 : 1) * stage.most_parameters) * types_.weight_bytes();
  if (layout.zero_stage >= 2) bytes.buffers += 2 * stage.most_trained * types_.gradient_bytes;
  // Staging for groups of GPUs that sum floats in the order of ranks: for gradients, for activations, and for gradients of a
  // rank's own tokens.
  const int staged = (layout.shards() > 1) + (layout.tensor > 1) + (layout.tensor > 1 && layout.sequence_parallel);
  bytes.buffers += staged * as_double(comm::kDeviceStagingBytes);
  // Staging from which pieces of a shard are moved to their places.
  const auto in_pieces = [&](int64_t bucket) {
    return layout.zero_stage >= 1 &&
           std::ranges::any_of(divided(layout, stage), [&](const Divided& part) { return part.pieces(bucket) > 1; });
  };
  if (in_pieces(layout.reduce_bucket)) bytes.buffers += as_double(layout.reduce_bucket) * types_.sent_gradient_bytes;
  if (in_pieces(layout.gather_bucket)) bytes.buffers += as_double(layout.gather_bucket) * types_.weight_bytes();
  if (layout.offload_optimizer) {
    const double piece = std::min(types_.sub_group, own(stage.most_trained, 0, 1));
    bytes.host = own(stage.trained, stage.expert_trained, 1) * types_.optimizer_bytes +
                 3 * piece * (types_.gradient_bytes + types_.weight_bytes());  // one arrives, one is updated, one leaves
  }
  return bytes;
}

StepBytes StepModel::bytes(const Layout& layout) const {
  StepBytes most;
  double host = 0;
  for (const StepBytes& bytes : bytes_of_ranks(layout)) {
    host = std::max(host, bytes.host);
    if (bytes.total() > most.total()) most = bytes;
  }
  most.host = host;
  return most;
}

std::vector<StepBytes> StepModel::bytes_of_ranks(const Layout& layout) const {
  std::vector<StepBytes> ranks;
  for (int64_t rank = 0; rank < layout.pipeline; ++rank) ranks.push_back(bytes_of(layout, rank, stage_of_rank(layout, rank)));
  return ranks;
}

int64_t StepModel::largest_block(const Layout& layout) const {
  int64_t largest = 0;
  for (const auto& work : works_of(layout)) largest = std::max(largest, work->parameters + work->tied_parameters);
  return largest;
}

}  // namespace trivet::autotune
