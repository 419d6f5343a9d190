#include "engine/optimizer/optimizer_step.h"

#include <algorithm>

#include "core/exact_sum.h"
#include "engine/config/optimizer_traits.h"
#include "engine/optimizer/sum_over.h"
#include "kernels/kernels.h"

namespace trivet {
namespace {

// Gradients on the fixed-point grid are read back in pieces of this many elements, a multiple of kSumBlock.
constexpr int64_t kPieceElements = int64_t{1} << 18;

// The factor that removes the loss scale from stored gradients. In layout mode it is already removed.
Number unscale(const zero::ParameterGroup& group, const StepScalars& scalars) {
  return group.options().fixed_point ? Number(1.0) : scalars.inverse_loss_scale;
}

bool is_running_average(const zero::FlatParameter& parameter) {
  return parameter.spec.update.kind == ParameterUpdate::Kind::RunningAverage;
}

// Checks whether a piece from for_gradient_pieces is the stored gradient itself, which stays, rather than a copy read
// from the grid, which the next piece overwrites.
bool is_stored(const ConstTensorView& piece, const zero::OwnedRange& range) { return piece.dtype == range.gradient.dtype; }

}  // namespace

OptimizerStep::OptimizerStep(const OptimizerConfig& config, zero::Parameters& parameters, StepResults& results,
                             const UpdateResources& resources)
    : config_(config),
      parameters_(parameters),
      results_(results),
      resources_(resources),
      owned_(parameters),
      sides_(owned_, results, resources_),
      rule_(make_rule({config_, owned_, sides_, resources_})) {}

void OptimizerStep::run(const StepSettings& settings) {
  sum_gradient_squares(settings.scalars);
  resources_.kernels.judge_gradients({.square_sum = results_.square_sum(),
                                      .losses = results_.target_words(),
                                      .verdict = results_.verdict(),
                                      .unit = settings.unit,
                                      .clipping = settings.clipping,
                                      .check_finite = settings.check_finite});
  if (sides_.host() && sides_.is_skipped_on_host()) return;
  for (const UpdateSide& side : sides_.all()) update_elements(side, settings);
  rule_->finish(settings.scalars);
  balance_experts();
  parameters_.publish();
}

template <typename Use>
void OptimizerStep::for_gradient_pieces(const UpdateSide& side, const zero::OwnedRange& range, int64_t first, int64_t count,
                                        Use&& use) {
  const bool fixed_point = range.gradient.dtype == DType::Int64;
  // A multiple of kSumBlock, so that no block of a norm is cut.
  const int64_t sub_group =
      std::max<int64_t>(resources_.offload.staging.most_elements / kernels::kSumBlock, 1) * kernels::kSumBlock;
  const int64_t most = std::min(sub_group, fixed_point ? kPieceElements : std::max<int64_t>(count, 1));
  ScopedTensor read;
  // The size does not depend on `count`, which differs between data ranks: all need the memory that is planned for one of them.
  if (fixed_point && count > 0) read = ScopedTensor(side.buffers, DType::Float32, {std::min(most, range.count)});
  for (int64_t done = 0; done < count; done += most) {
    const int64_t piece = std::min(most, count - done);
    const ConstTensorView stored = range.gradient.slice(first + done, piece);
    if (!fixed_point) {
      use(first + done, stored);
      continue;
    }
    side.kernels.fixed_point_read(stored, read.view().slice(0, piece));
    use(first + done, ConstTensorView(read).slice(0, piece));
  }
}

// ---- the norm

// Each rank sums over its shard, even if it owns all of it. Blocks are aligned to the parameter, so no layout changes a bit.
void OptimizerStep::sum_gradient_squares(const StepScalars& scalars) {
  const TensorView sum = results_.square_sum();
  std::vector<kernels::Squares> terms;
  for (const OwnedParameter& parameter : owned_.all()) {
    if (is_running_average(parameter.flat())) continue;
    const zero::OwnedRange range = parameter.group->owned();
    const Number scale = unscale(*parameter.group, scalars);
    const int64_t block = sum_block(parameter);
    for (const OwnedPart& part : counted_parts(parameter, range))
      for_gradient_pieces(sides_.device(), range, part.first, part.count, [&](int64_t, ConstTensorView gradient) {
        terms.push_back({gradient, scale, block});
        if (!is_stored(gradient, range)) sum_squares(terms, sum);
      });
  }
  sum_squares(terms, sum);
  // A contribution that was refused counts as a term that does not fit.
  resources_.kernels.add(results_.refused(), sum.slice(ExactSum::kLimbs, 1));
  sum_over(resources_.all, sum, resources_.stream);
}

// Adds the sums of all terms in one call, and clears the list.
void OptimizerStep::sum_squares(std::vector<kernels::Squares>& terms, TensorView sum) {
  if (!terms.empty()) resources_.kernels.sum_of_squares(terms, sum);
  terms.clear();
}

// ---- the update

// Unless the host knows that the step is not skipped, weights are read before they are written: a skipped step changes none.
void OptimizerStep::update_elements(const UpdateSide& side, const StepSettings& settings) {
  const bool is_certain = sides_.host() != nullptr, writes = rule_->writes_weights();
  zero::RangeAccess how{.gradient = true};
  how.master = writes ? zero::Access::ReadWrite : zero::Access::Read;
  if (writes) how.copy_out = is_certain ? zero::Access::Write : zero::Access::ReadWrite;
  how.states.assign(optimizer_states(config_), zero::Access::ReadWrite);
  zero::visit(side.pieces, how, side.buffers, resources_.offload.staging,
              [&](const zero::OwnedPiece& piece, const zero::OwnedRange& range) {
                if (writes && is_certain && range.copy_out.staged)
                  side.kernels.zero(range.copy_out);  // padding, which no segment covers
                update_piece(side, piece, range, settings);
              });
}

void OptimizerStep::update_piece(const UpdateSide& side, const zero::OwnedPiece& piece, const zero::OwnedRange& range,
                                 const StepSettings& settings) {
  const OwnedGroup& group = owned_.of(*piece.group);
  const Number scale = unscale(*piece.group, settings.scalars);
  for (const Segment& segment : segments_of(piece, range)) {
    const zero::FlatParameter& parameter = *segment.parameter;
    const double decay = weight_decay_of(parameter, config_);
    for_gradient_pieces(side, range, segment.first, segment.count, [&](int64_t first, ConstTensorView gradient) {
      update_segment(side,
                     {.group = group,
                      .parameter = parameter,
                      .range = range,
                      .first = first,
                      .count = gradient.elements(),
                      .gradient = gradient,
                      .gradient_scale = scale,
                      .weight_decay = decay},
                     settings);
      if (!is_stored(gradient, range)) rule_->run_pending(side);
    });
  }
  rule_->run_pending(side);
}

void OptimizerStep::update_segment(const UpdateSide& side, const Elements& elements, const StepSettings& settings) {
  if (!is_running_average(elements.parameter)) return rule_->update(side, elements, settings.scalars);
  side.kernels.running_average({.master = elements.master(),
                                .copy_out = elements.copy_out(),
                                .gradient = elements.gradient,
                                .verdict = side.verdict,
                                .momentum = elements.parameter.spec.update.momentum,
                                .share = settings.unit / settings.microbatches,
                                .gradient_scale = elements.gradient_scale});
}

void OptimizerStep::balance_experts() {
  parameters_.for_each_group([&](int block, zero::ParameterGroup& group) {
    const std::vector<zero::FlatParameter>& parameters = group.layout().parameters;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const ParameterUpdate& update = parameters[i].spec.update;
      if (update.kind != ParameterUpdate::Kind::ExpertBalance || update.rate == 0) continue;
      group.change_held(static_cast<int>(i), [&](int64_t first, TensorView bias) {
        resources_.kernels.balance_experts({.bias = bias,
                                            .counts = results_.expert_tokens(block),
                                            .verdict = results_.verdict(),
                                            .first = first,
                                            .rate = update.rate});
      });
    }
  });
}

std::vector<OptimizerStep::Segment> OptimizerStep::segments_of(const zero::OwnedPiece& piece,
                                                               const zero::OwnedRange& range) const {
  std::vector<Segment> segments;
  for (const zero::FlatParameter& parameter : piece.group->layout().parameters) {
    const zero::Intersection part = intersection(parameter, range.first, range.count);
    if (part.count == 0) continue;
    const bool mergeable = rule_->merges_parameters() && !segments.empty() &&
                           segments.back().parameter->spec.decay == parameter.spec.decay &&
                           segments.back().parameter->spec.update == parameter.spec.update;
    if (mergeable) {
      segments.back().count = part.first_in_range + part.count - segments.back().first;
    } else {
      segments.push_back({&parameter, part.first_in_range, part.count});
    }
  }
  return segments;
}

}  // namespace trivet
