#include "autotune/pipeline_formulas.h"

#include <algorithm>
#include <stdexcept>

namespace trivet::autotune {

int64_t most_in_flight(ScheduleKind kind, int64_t ranks, int64_t rank, int64_t microbatches, int64_t chunks) {
  const int64_t behind = ranks - rank;
  switch (kind) {
    case ScheduleKind::GPipe: return microbatches;
    case ScheduleKind::OneForwardOneBackward:
    case ScheduleKind::ZeroBubbleH1: return std::min(microbatches, behind);
    case ScheduleKind::ZeroBubble2p: return std::min(microbatches, 2 * behind - 1);
    case ScheduleKind::Interleaved: return 2 * (behind - 1) + (chunks - 1) * ranks + 1;
    case ScheduleKind::ZeroBubbleV: break;
  }
  throw std::logic_error("most_in_flight: zb-v has no closed formula; its schedule says it");
}

double bubble_rate(int64_t ranks, int64_t microbatches) {
  return static_cast<double>(ranks - 1) / static_cast<double>(microbatches + ranks - 1);
}
VSchedule v_half(int64_t ranks, int64_t microbatches) { return {bubble_rate(ranks, microbatches) / 2, 1.0 / 2}; }
VSchedule v_min(int64_t ranks, int64_t microbatches) { return {2 * bubble_rate(ranks, microbatches) / 3, 1.0 / 3}; }

double zero_bubble_idle(int64_t ranks, const PassSeconds& passes) {
  return static_cast<double>(ranks - 1) * (passes.forward + passes.backward - 2 * passes.weight);
}

double dual_pipe_idle(int64_t ranks, const PassSeconds& passes) {
  if (ranks < 2 || ranks % 2 != 0) throw std::logic_error("dual_pipe_idle: the number of ranks must be even");
  return (static_cast<double>(ranks) / 2 - 1) * (passes.together + passes.backward - 3 * passes.weight);
}

double gpt_stage_parameters(const TransformerShape& shape, const StageOfGpt& stage, int64_t tensor) {
  const double h = static_cast<double>(shape.hidden), t = static_cast<double>(tensor);
  const double layer = 12 * h * h / t + (6 + 7 / t) * h, table = h * static_cast<double>(shape.vocabulary) / t;
  const int tables = stage.first && stage.last && stage.tied ? 1 : stage.first + stage.last;
  return static_cast<double>(stage.layers) * layer + tables * table +
         (stage.first ? h * static_cast<double>(shape.sequence) : 0) + (stage.last ? 2 * h : 0);
}

double first_stage_activation_bytes(const TransformerShape& shape, const FirstStage& stage) {
  const double tokens = static_cast<double>(shape.sequence * stage.microbatch), t = static_cast<double>(stage.tensor);
  const double h = static_cast<double>(shape.hidden), V = static_cast<double>(shape.vocabulary);
  const double p = static_cast<double>(stage.pipeline);
  const auto layer = [&](SavedActivations saved) {
    return activation_bytes_per_layer(shape, stage.microbatch, stage.tensor, stage.sequence_parallel, saved);
  };
  const double layers = layers_in_flight(shape.layers, stage.pipeline, stage.microbatches, stage.chunks) * layer(stage.saved);
  const double again = stage.saved == SavedActivations::LayerInputs ? layer(SavedActivations::All) : 0;
  const double embedding = p * (tokens * h / t + 8 * tokens);
  const double head = stage.pipeline == 1 ? 4 * tokens * h * (1 + V / h) / t : 0;
  return (layers + again + embedding + head) / static_cast<double>(stage.context);
}

}  // namespace trivet::autotune
