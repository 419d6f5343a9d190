#include "engine/optimizer/optimizer_step.h"

#include <algorithm>
#include <cmath>

#include "engine/optimizer/newton_schulz.h"
#include "engine/optimizer/optimizer_states.h"
#include "kernels/verdict.h"

namespace trivet {
namespace {

// Gradients on the fixed-point grid are read back in pieces of this many elements, a multiple of kSumBlock.
constexpr int64_t kPieceElements = int64_t{1} << 18;

// The factor that removes the loss scale from stored gradients. In layout mode it is already removed.
Number unscale(const zero::ParameterGroup& group, const StepSettings& settings) {
  return group.options().fixed_point ? Number(1.0) : settings.scalars.inverse_loss_scale;
}

// Whether a piece from for_gradient_pieces is the stored gradient itself, which stays, rather than a copy read from the grid,
// which the next piece overwrites.
bool is_stored(const ConstTensorView& piece, const zero::OwnedRange& range) { return piece.dtype == range.gradient.dtype; }

}  // namespace

OptimizerStep::OptimizerStep(const OptimizerConfig& config, Parameters& parameters, const OptimizerResources& resources)
    : config_(config), parameters_(parameters), resources_(resources) {
  parameters_.for_each_group([&](int block, zero::ParameterGroup& group) {
    if (!group.layout().trainable || group.layout().role != zero::GroupRole::Own) return;
    groups_[&group] = {block, owned_.size()};
    for (size_t i = 0; i < group.layout().parameters.size(); ++i) owned_.push_back({&group, static_cast<int>(i)});
    const auto pieces = zero::pieces_of(group, resources_.staging.most_elements);
    std::vector<zero::OwnedPiece>& all = group.owned().host ? pieces_on_host_ : pieces_;
    all.insert(all.end(), pieces.begin(), pieces.end());
  });
  const Shape sums{static_cast<int64_t>(owned_.size()) * 2 * ExactSum::kWords};
  if (config_.type == OptimizerType::Lamb)
    lamb_sums_ = Buffer(resources_.allocator, resources_.meter, MemoryCategory::Buffers, DType::Int64, sums);
  zero::HostSide* const host = resources_.host;
  if (!host) return;
  const ConstTensorView verdict = resources_.results.verdict();
  verdict_on_host_ = Buffer(host->allocator(), host->meter(), MemoryCategory::Buffers, verdict.dtype, verdict.shape);
  if (config_.type == OptimizerType::Lamb)
    lamb_sums_on_host_ = Buffer(host->allocator(), host->meter(), MemoryCategory::Buffers, DType::Int64, sums);
}

OptimizerStep::Side OptimizerStep::device() {
  return {resources_.kernels, resources_.results.verdict(), resources_.buffers, pieces_, lamb_sums_.view()};
}

OptimizerStep::Side OptimizerStep::host() {
  zero::HostSide& host = *resources_.host;
  return {host.kernels(), verdict_on_host_.view(), host.staging(), pieces_on_host_, lamb_sums_on_host_.view()};
}

std::vector<OptimizerStep::Side> OptimizerStep::sides() {
  std::vector<Side> sides{device()};
  if (resources_.host) sides.push_back(host());
  return sides;
}

// Muon orthogonalises the matrices of hidden blocks; embedding, head, gains and biases are updated by Adam.
bool OptimizerStep::is_muon(const zero::ParameterGroup& group, const zero::FlatParameter& parameter) const {
  const auto block = static_cast<size_t>(groups_.at(&group).block);
  return config_.type == OptimizerType::Muon && parameters_.layout().blocks[block].role == LayerRole::Hidden &&
         parameter.spec.shape.dims() == 2;
}

bool OptimizerStep::has_muon(const zero::ParameterGroup& group) const {
  const auto& parameters = group.layout().parameters;
  return std::any_of(parameters.begin(), parameters.end(), [&](const auto& parameter) { return is_muon(group, parameter); });
}

zero::RangeAccess OptimizerStep::access(zero::Access master, zero::Access copy_out) const {
  const auto states = static_cast<size_t>(optimizer_states(config_.type, config_));
  return {master, copy_out, std::vector<zero::Access>(states, zero::Access::ReadWrite)};
}

void OptimizerStep::run(const StepSettings& settings) {
  sum_gradient_squares(settings);
  resources_.kernels.judge_gradients({.square_sum = resources_.results.square_sum(),
                                      .losses = resources_.results.loss_words(),
                                      .verdict = resources_.results.verdict(),
                                      .unit = settings.unit,
                                      .clipping = settings.clipping,
                                      .check_finite = settings.check_finite});
  if (resources_.host && is_skipped_on_host()) return;
  for (const Side& side : sides()) update_elements(side, settings);
  if (config_.type == OptimizerType::Lamb) apply_lamb(settings);
  if (config_.type == OptimizerType::Muon) apply_muon(settings);
  parameters_.publish();
}

template <typename Use>
void OptimizerStep::for_gradient_pieces(const Side& side, const zero::OwnedRange& range, int64_t first, int64_t count,
                                        Use&& use) {
  const bool fixed_point = range.gradient.dtype == DType::Int64;
  // A multiple of kSumBlock, so that no block of a norm is cut.
  const int64_t sub_group = std::max<int64_t>(resources_.staging.most_elements / kernels::kSumBlock, 1) * kernels::kSumBlock;
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

// Elements count from the start of the owned range, which is the whole group at stage 0.
std::vector<OptimizerStep::Part> OptimizerStep::counted_parts(const OwnedParameter& owned,
                                                              const zero::OwnedRange& range) const {
  const zero::FlatGroup& layout = owned.group->layout();
  const zero::FlatParameter& parameter = layout.parameters[static_cast<size_t>(owned.index)];
  const int64_t shard_first = owned.group->axis().rank() * layout.shard_elements;
  std::vector<Part> parts;
  if (!owned.group->axis().is_counted()) return parts;
  for (const tensor_parallel::LocalBox& box : parameter.part.boxes) {
    if (!box.counted) continue;
    const zero::Overlap part =
        zero::overlap(parameter.offset + box.first, box.shape.elements(), shard_first, layout.shard_elements);
    if (part.count > 0) parts.push_back({shard_first - range.first + part.first_in_range, part.count});
  }
  return parts;
}

// Small blocks are slower, so only layout mode uses them: it alone promises the same bits for every tensor size.
int64_t OptimizerStep::sum_block(const OwnedParameter& owned) {
  return owned.group->options().fixed_point ? parameter_of(owned).sum_block : kernels::kSumBlock;
}

// Each rank sums over its shard, even if it owns all of it. Blocks are aligned to the parameter, so no layout changes a bit.
void OptimizerStep::sum_gradient_squares(const StepSettings& settings) {
  const TensorView sum = resources_.results.square_sum();
  std::vector<kernels::Squares> terms;
  for (const OwnedParameter& owned : owned_) {
    const zero::OwnedRange range = owned.group->owned();
    const Number scale = unscale(*owned.group, settings);
    const int64_t block = sum_block(owned);
    for (const Part& part : counted_parts(owned, range))
      for_gradient_pieces(device(), range, part.first, part.count, [&](int64_t, ConstTensorView gradient) {
        terms.push_back({gradient, scale, block});
        if (!is_stored(gradient, range)) sum_squares(terms, sum);
      });
  }
  sum_squares(terms, sum);
  // A contribution that was refused counts as a term that does not fit.
  resources_.kernels.add(resources_.results.refused(), sum.slice(ExactSum::kLimbs, 1));
  all_reduce(sum, resources_.control_group);
}

// Adds the sums of all terms in one call, and clears the list.
void OptimizerStep::sum_squares(std::vector<kernels::Squares>& terms, TensorView sum) {
  if (!terms.empty()) resources_.kernels.sum_of_squares(terms, sum);
  terms.clear();
}

void OptimizerStep::all_reduce(TensorView words, comm::ProcessGroup& group) {
  if (group.size() == 1) return;
  group.all_reduce(words, comm::ReduceOp::Sum, resources_.stream);
  resources_.stream.synchronize();
}

std::vector<OptimizerStep::Segment> OptimizerStep::segments_of(const zero::OwnedPiece& piece,
                                                               const zero::OwnedRange& range) const {
  std::vector<Segment> segments;
  for (const auto& parameter : piece.group->layout().parameters) {
    const zero::Overlap part = overlap(parameter, range.first, range.count);
    if (part.count == 0 || is_muon(*piece.group, parameter)) continue;
    const bool mergeable =
        !segments.empty() && segments.back().decay == parameter.spec.decay && config_.type != OptimizerType::Muon;
    if (mergeable) {
      segments.back().count = part.first_in_range + part.count - segments.back().first;
    } else {
      segments.push_back({part.first_in_range, part.count, parameter.spec.decay});
    }
  }
  return segments;
}

bool OptimizerStep::is_skipped_on_host() {
  resources_.kernels.to_host(resources_.results.verdict(), verdict_on_host_.view());
  return resources_.kernels.device() != Device::Meta && verdict_on_host_.view().as<double>()[kernels::kApply] == 0;
}

// Unless the host knows that the step is not skipped, weights are read before they are written: a skipped step changes none.
void OptimizerStep::update_elements(const Side& side, const StepSettings& settings) {
  const bool lamb = config_.type == OptimizerType::Lamb;  // computes no new weights yet
  const bool is_certain = resources_.host != nullptr;
  zero::RangeAccess how = lamb ? access(zero::Access::Read, zero::Access::None)
                               : access(zero::Access::ReadWrite, is_certain ? zero::Access::Write : zero::Access::ReadWrite);
  how.gradient = true;
  zero::visit(side.pieces, how, side.buffers, resources_.staging,
              [&](const zero::OwnedPiece& piece, const zero::OwnedRange& range) {
                if (!lamb && is_certain && range.copy_out_place)
                  side.kernels.zero(range.copy_out);  // padding, which no segment covers
                update_piece(side, piece, range, settings);
              });
}

void OptimizerStep::update_piece(const Side& side, const zero::OwnedPiece& piece, const zero::OwnedRange& range,
                                 const StepSettings& settings) {
  const Number scale = unscale(*piece.group, settings);
  std::vector<kernels::Adam> updates;
  for (const Segment& segment : segments_of(piece, range))
    for_gradient_pieces(side, range, segment.first, segment.count, [&](int64_t first, ConstTensorView gradient) {
      update_segment(side, range, {first, gradient.elements(), segment.decay}, gradient, settings.scalars, scale, updates);
      if (!is_stored(gradient, range)) run_adam(side, updates);
    });
  run_adam(side, updates);
  for (const zero::FlatParameter& parameter : piece.group->layout().parameters)
    if (is_muon(*piece.group, parameter)) muon_momentum(side, range, parameter, scale);
}

// Runs all updates in one call, and clears the list.
void OptimizerStep::run_adam(const Side& side, std::vector<kernels::Adam>& updates) {
  if (!updates.empty()) side.kernels.adam(updates);
  updates.clear();
}

// Updates by Adam are added to `adam`, to be run together; the rarer ones run at once.
void OptimizerStep::update_segment(const Side& side, const zero::OwnedRange& range, const Segment& segment,
                                   ConstTensorView gradient, const StepScalars& scalars, Number gradient_scale,
                                   std::vector<kernels::Adam>& adam) {
  const auto part = [&](TensorView view) { return view.absent() ? TensorView{} : view.slice(segment.first, segment.count); };
  const auto state = [&](size_t index) { return index < range.states.size() ? part(range.states[index]) : TensorView{}; };
  const TensorView master = part(range.master), copy_out = part(range.copy_out);
  const double decay = weight_decay(segment.decay);
  const ConstTensorView verdict = side.verdict;
  kernels::Kernels& kernels = side.kernels;
  switch (config_.type) {
    case OptimizerType::Adam:
    case OptimizerType::AdamW:
    case OptimizerType::Muon:
      adam.push_back({.master = master,
                      .moment1 = state(0),
                      .moment2 = state(1),
                      .copy_out = copy_out,
                      .gradient = gradient,
                      .verdict = verdict,
                      .lr = config_.type == OptimizerType::Muon ? scalars.adam_lr : scalars.lr,
                      .beta1 = scalars.beta1,
                      .beta2 = scalars.beta2,
                      .epsilon = config_.epsilon,
                      .weight_decay = decay,
                      .gradient_scale = gradient_scale,
                      .correction1 = scalars.correction1,
                      .correction2 = scalars.correction2,
                      .decoupled_decay = config_.type != OptimizerType::Adam || config_.adam_w_mode});
      return;
    case OptimizerType::Sgd:
      return kernels.sgd({.master = master,
                          .momentum_buffer = state(0),
                          .copy_out = copy_out,
                          .gradient = gradient,
                          .verdict = verdict,
                          .lr = scalars.lr,
                          .momentum = config_.momentum,
                          .dampening = config_.dampening,
                          .weight_decay = decay,
                          .gradient_scale = gradient_scale,
                          .step = scalars.update,
                          .nesterov = config_.nesterov});
    case OptimizerType::Lion:
      return kernels.lion({.master = master,
                           .moment = state(0),
                           .copy_out = copy_out,
                           .gradient = gradient,
                           .verdict = verdict,
                           .lr = scalars.lr,
                           .beta1 = scalars.beta1,
                           .beta2 = scalars.beta2,
                           .weight_decay = decay,
                           .gradient_scale = gradient_scale});
    case OptimizerType::Adagrad:
      return kernels.adagrad({.master = master,
                              .sum_of_squares = state(0),
                              .copy_out = copy_out,
                              .gradient = gradient,
                              .verdict = verdict,
                              .lr = scalars.lr,
                              .epsilon = config_.epsilon,
                              .weight_decay = decay,
                              .gradient_scale = gradient_scale});
    case OptimizerType::Lamb:
      return kernels.lamb_update({.master = master,
                                  .moment1 = state(0),
                                  .moment2 = state(1),
                                  .update = state(2),
                                  .gradient = gradient,
                                  .verdict = verdict,
                                  .beta1 = scalars.beta1,
                                  .beta2 = scalars.beta2,
                                  .epsilon = config_.epsilon,
                                  .weight_decay = decay,
                                  .gradient_scale = gradient_scale,
                                  .correction1 = scalars.correction1,
                                  .correction2 = scalars.correction2});
  }
}

// Trust ratio per parameter: ||w|| / ||update||, clamped (You et al. 2020); 1 if either norm is 0. The norms are over the whole
// parameter.
void OptimizerStep::apply_lamb(const StepSettings& settings) {
  sum_lamb_squares();
  const zero::RangeAccess how{
      zero::Access::ReadWrite, zero::Access::ReadWrite, {zero::Access::None, zero::Access::None, zero::Access::Read}};
  for (const Side& side : sides())
    zero::visit(side.pieces, how, side.buffers, resources_.staging,
                [&](const zero::OwnedPiece& piece, const zero::OwnedRange& range) {
                  const auto& parameters = piece.group->layout().parameters;
                  for (size_t i = 0; i < parameters.size(); ++i) {
                    const zero::Overlap part = overlap(parameters[i], range.first, range.count);
                    if (part.count == 0) continue;
                    const auto slice = [&](TensorView view) {
                      return view.absent() ? TensorView{} : view.slice(part.first_in_range, part.count);
                    };
                    side.kernels.apply_update({.master = slice(range.master),
                                               .copy_out = slice(range.copy_out),
                                               .update = slice(range.states[2]),
                                               .verdict = side.verdict,
                                               .lr = settings.scalars.lr,
                                               .square_sums = lamb_sums_of(side, groups_.at(piece.group).first_parameter + i),
                                               .min_ratio = config_.min_coefficient,
                                               .max_ratio = config_.max_coefficient});
                  }
                });
}

// The sums are integers (core/exact_sum.h), so neither the place nor the order of the additions changes a bit. The device's
// sums start from the host's.
void OptimizerStep::sum_lamb_squares() {
  if (resources_.host) {
    host().kernels.zero(lamb_sums_on_host_.view());
    sum_lamb_squares_of(host());
    resources_.kernels.from_host(lamb_sums_on_host_.view(), lamb_sums_.view());
  } else {
    resources_.kernels.zero(lamb_sums_.view());
  }
  sum_lamb_squares_of(device());
  all_reduce(lamb_sums_.view(), resources_.part_group);
  if (resources_.host) resources_.kernels.to_host(lamb_sums_.view(), lamb_sums_on_host_.view());
}

// Sums over the elements that this rank counts. Pieces end where blocks of the sums end; blocks count from the start of the
// part.
void OptimizerStep::sum_lamb_squares_of(const Side& side) {
  std::vector<zero::OwnedPiece> pieces;
  std::vector<size_t> owners;  // [piece] index in owned_
  int64_t set_bytes = 0;       // not those of the pieces, which differ between data ranks
  const zero::RangeAccess how{
      zero::Access::Read, zero::Access::None, {zero::Access::None, zero::Access::None, zero::Access::Read}};
  const int64_t most = std::max<int64_t>(resources_.staging.most_elements / kernels::kSumBlock, 1) * kernels::kSumBlock;
  for (size_t i = 0; i < owned_.size(); ++i) {
    const zero::OwnedRange range = owned_[i].group->owned();
    if (&side_of(range).kernels != &side.kernels) continue;
    set_bytes = std::max(set_bytes, zero::most_staged_bytes(*owned_[i].group, how, std::min(most, range.count)));
    for (const Part& part : counted_parts(owned_[i], range))
      for (int64_t done = 0; done < part.count; done += most) {
        pieces.push_back({owned_[i].group, part.first + done, std::min(most, part.count - done)});
        owners.push_back(i);
      }
  }
  size_t next = 0;
  const auto sum_piece = [&](const zero::OwnedPiece&, const zero::OwnedRange& range) {
    const size_t owner = owners[next++];
    const TensorView sums = lamb_sums_of(side, owner);
    const int64_t block = sum_block(owned_[owner]);
    side.kernels.sum_of_squares(range.master, 1.0, block, sums.slice(0, ExactSum::kWords));
    side.kernels.sum_of_squares(range.states[2], 1.0, block, sums.slice(ExactSum::kWords, ExactSum::kWords));
  };
  zero::visit(pieces, how, side.buffers, resources_.staging, sum_piece, set_bytes);
}

TensorView OptimizerStep::lamb_sums_of(const Side& side, size_t owned) const {
  return side.lamb_sums.slice(static_cast<int64_t>(owned) * 2 * ExactSum::kWords, 2 * ExactSum::kWords);
}

// The momentum is already updated. Gathers the update of a group; then one rank orthogonalises and broadcasts each matrix.
void OptimizerStep::apply_muon(const StepSettings& settings) {
  int matrix = 0;
  parameters_.for_each_group([&](int, zero::ParameterGroup& group) {
    if (!groups_.contains(&group) || !has_muon(group)) return;
    ScopedTensor updates(resources_.buffers, DType::Float32, {group.layout().whole_elements});
    gather_updates(group, updates);
    matrix = orthogonalise(group, updates, matrix);
    zero::visit(zero::pieces_of(group, resources_.staging.most_elements), {zero::Access::ReadWrite, zero::Access::ReadWrite},
                resources_.buffers, resources_.staging, [&](const zero::OwnedPiece&, const zero::OwnedRange& range) {
                  const TensorView own = updates.view().slice(range.first, range.count);
                  if (!range.host) return apply_muon_updates(group, range, own, settings);
                  const ScopedTensor on_host(range.host->staging(), own.dtype, own.shape);
                  range.host->to_host(own, on_host).wait_on_host();
                  apply_muon_updates(group, range, on_host, settings);
                });
  });
}

// Orthogonalises the matrices of a group. `matrix` counts those of the groups before it, and determines which rank takes which.
int OptimizerStep::orthogonalise(const zero::ParameterGroup& group, TensorView updates, int matrix) {
  for (const zero::FlatParameter& parameter : group.layout().parameters) {
    if (!is_muon(group, parameter)) continue;
    const TensorView update = updates.slice(parameter.offset, parameter.elements()).reshaped(parameter.spec.shape);
    const int owner = matrix++ % group.axis().size();
    const NewtonSchulzScratch scratch(resources_.buffers, parameter.spec.shape);
    if (owner == group.axis().rank()) newton_schulz(resources_.kernels, scratch, update);
    shard_group(group).broadcast(update, owner, resources_.stream);
    resources_.stream.synchronize();
  }
  return matrix;
}

void OptimizerStep::muon_momentum(const Side& side, const zero::OwnedRange& range, const zero::FlatParameter& parameter,
                                  Number gradient_scale) {
  const zero::Overlap part = overlap(parameter, range.first, range.count);
  for_gradient_pieces(side, range, part.first_in_range, part.count, [&](int64_t first, ConstTensorView gradient) {
    side.kernels.momentum_update({.momentum_buffer = range.states[0].slice(first, gradient.elements()),
                                  .out = range.states[1].slice(first, gradient.elements()),
                                  .gradient = gradient,
                                  .verdict = side.verdict,
                                  .momentum = config_.momentum,
                                  .gradient_scale = gradient_scale,
                                  .nesterov = config_.nesterov});
  });
}

void OptimizerStep::gather_updates(zero::ParameterGroup& group, TensorView updates) {
  const zero::OwnedRange owned = group.owned();
  zero::visit(zero::pieces_of(group, resources_.staging.most_elements),
              {zero::Access::None, zero::Access::None, {zero::Access::None, zero::Access::Read}}, resources_.buffers,
              resources_.staging, [&](const zero::OwnedPiece&, const zero::OwnedRange& range) {
                const TensorView own = updates.slice(range.first, range.count);
                if (!range.host) return resources_.kernels.copy(range.states[1], own);
                range.host->from_host(range.states[1], own).wait_on_host();
              });
  if (owned.count == updates.elements()) return;
  zero::gather_whole(updates.slice(owned.first, owned.count), updates, shard_group(group), resources_.stream,
                     resources_.kernels, resources_.buffers, resources_.collectives);
  resources_.stream.synchronize();
}

// The update of a matrix [R, C] is scaled by sqrt(max(1, R / C)), so that its size does not depend on the shape (Jordan et al.
// 2024). `updates` are those of the range.
void OptimizerStep::apply_muon_updates(const zero::ParameterGroup& group, const zero::OwnedRange& range,
                                       ConstTensorView updates, const StepSettings& settings) {
  const Side side = side_of(range);
  for (const zero::FlatParameter& parameter : group.layout().parameters) {
    const zero::Overlap part = overlap(parameter, range.first, range.count);
    if (part.count == 0 || !is_muon(group, parameter)) continue;
    const Shape& shape = parameter.spec.shape;
    const double shape_scale = std::sqrt(std::max(1.0, static_cast<double>(shape[0]) / static_cast<double>(shape[1])));
    const auto slice = [&](TensorView view) {
      return view.absent() ? TensorView{} : view.slice(part.first_in_range, part.count);
    };
    side.kernels.apply_update({.master = slice(range.master),
                               .copy_out = slice(range.copy_out),
                               .update = updates.slice(part.first_in_range, part.count),
                               .verdict = side.verdict,
                               .lr = settings.scalars.muon_lr,
                               .scale = shape_scale,
                               .weight_decay = weight_decay(parameter.spec.decay)});
  }
}

}  // namespace trivet
