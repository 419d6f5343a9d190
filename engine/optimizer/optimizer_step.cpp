#include "engine/optimizer/optimizer_step.h"

#include <algorithm>
#include <cmath>

#include "engine/optimizer/newton_schulz.h"

namespace trivet {
namespace {

// Gradients on the fixed-point grid are read back in pieces of so many elements; a multiple of kSumBlock.
constexpr int64_t kPieceElements = int64_t{1} << 18;

// What takes stored gradients to those of a loss of 1 each. In layout mode the loss scale is out already.
double unscale(const zero::ParameterGroup& group, const StepSettings& settings) {
  return group.options().fixed_point ? 1.0 : 1.0 / settings.loss_scale;
}

}  // namespace

int optimizer_states(OptimizerType type, const OptimizerConfig& config) {
  return static_cast<int>(optimizer_state_names(type, config).size());
}

std::vector<std::string> optimizer_state_names(OptimizerType type, const OptimizerConfig& config) {
  switch (type) {
    case OptimizerType::Adam:
    case OptimizerType::AdamW: return {"moment1", "moment2"};
    case OptimizerType::Sgd: return config.momentum > 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
    case OptimizerType::Lion: return {"moment"};
    case OptimizerType::Adagrad: return {"sum_of_squares"};
    case OptimizerType::Lamb: return {"moment1", "moment2", "update"};
    case OptimizerType::Muon: return {"moment1", "moment2"};  // for matrices: momentum, and room for the update
  }
  return {};
}

OptimizerStep::OptimizerStep(const OptimizerConfig& config, Parameters& parameters, const OptimizerResources& resources)
    : config_(config),
      parameters_(parameters),
      resources_(resources),
      blocks_(static_cast<int>(parameters.layout().blocks.size())) {
  parameters_.for_each_group([&](int, zero::ParameterGroup& group) {
    if (!group.layout().trainable || group.layout().role != zero::GroupRole::Own) return;
    const zero::OwnedRange range = group.owned();
    for (size_t i = 0; i < group.layout().parameters.size(); ++i) {
      const auto& parameter = group.layout().parameters[i];
      owned_.push_back({&group, static_cast<int>(i), overlap(parameter, range.first, range.count)});
    }
  });
  if (config_.type == OptimizerType::Lamb)
    lamb_sums_ = Buffer(resources_.allocator, resources_.meter, MemoryCategory::Buffers, DType::Int64,
                        {static_cast<int64_t>(owned_.size()) * 2 * ExactSum::kWords});
}

// Muon orthogonalises the matrices of hidden blocks; embedding, head, gains and biases get Adam.
bool OptimizerStep::is_muon(int block, const zero::FlatParameter& parameter) const {
  return config_.type == OptimizerType::Muon && block > 0 && block + 1 < blocks_ && parameter.spec.shape.dims() == 2;
}

void OptimizerStep::run(const StepSettings& settings) {
  sum_gradient_squares(settings);
  resources_.kernels.judge_gradients({.square_sum = resources_.results.square_sum(),
                                      .losses = resources_.results.loss_words(),
                                      .verdict = resources_.results.verdict(),
                                      .unit = settings.unit,
                                      .clipping = settings.clipping,
                                      .check_finite = settings.check_finite});
  update_elements(settings);
  if (config_.type == OptimizerType::Lamb) apply_lamb(settings);
  if (config_.type == OptimizerType::Muon) apply_muon(settings);
  parameters_.publish();
}

template <typename Use>
void OptimizerStep::for_gradient_pieces(const zero::OwnedRange& range, int64_t first, int64_t count, Use&& use) {
  const bool fixed_point = range.gradient.dtype == DType::Int64;
  // A multiple of kSumBlock: a norm's blocks are never cut.
  const int64_t sub_group = std::max<int64_t>(resources_.sub_group_elements / kernels::kSumBlock, 1) * kernels::kSumBlock;
  const int64_t most = std::min(sub_group, fixed_point ? kPieceElements : std::max<int64_t>(count, 1));
  ScopedTensor read;
  if (fixed_point && count > 0) read = ScopedTensor(resources_.buffers, DType::Float32, {std::min(most, count)});
  for (int64_t done = 0; done < count; done += most) {
    const int64_t piece = std::min(most, count - done);
    const ConstTensorView stored = range.gradient.slice(first + done, piece);
    if (!fixed_point) {
      use(first + done, stored);
      continue;
    }
    resources_.kernels.fixed_point_read(stored, read.view().slice(0, piece));
    use(first + done, ConstTensorView(read).slice(0, piece));
  }
}

// Counted within the owned range, which is the whole group at stage 0.
std::vector<OptimizerStep::Part> OptimizerStep::counted_parts(const OwnedParameter& owned,
                                                              const zero::OwnedRange& range) const {
  const zero::FlatGroup& layout = owned.group->layout();
  const zero::FlatParameter& parameter = layout.parameters[static_cast<size_t>(owned.index)];
  const int64_t shard_first = resources_.data_group.rank() * layout.shard_elements;
  std::vector<Part> parts;
  for (const tensor_parallel::LocalBox& box : parameter.part.boxes) {
    if (!box.counted) continue;
    const zero::Overlap part =
        zero::overlap(parameter.offset + box.first, box.shape.elements(), shard_first, layout.shard_elements);
    if (part.count > 0) parts.push_back({shard_first - range.first + part.first_in_range, part.count});
  }
  return parts;
}

// Small blocks are slower; only layout mode promises the same bits for every tensor size.
int64_t OptimizerStep::sum_block(const OwnedParameter& owned) {
  return owned.group->options().fixed_point ? parameter_of(owned).sum_block : kernels::kSumBlock;
}

// Each rank sums over its shard, also where it owns the whole; blocks are aligned to the parameter, so no layout changes a bit.
void OptimizerStep::sum_gradient_squares(const StepSettings& settings) {
  const TensorView sum = resources_.results.square_sum();
  for (const OwnedParameter& owned : owned_) {
    const zero::OwnedRange range = owned.group->owned();
    const double scale = unscale(*owned.group, settings);
    const int64_t block = sum_block(owned);
    for (const Part& part : counted_parts(owned, range))
      for_gradient_pieces(range, part.first, part.count, [&](int64_t, ConstTensorView gradient) {
        resources_.kernels.sum_of_squares(gradient, scale, block, sum);
      });
  }
  // A contribution that was refused counts as a term that does not fit.
  resources_.kernels.add(resources_.results.refused(), sum.slice(ExactSum::kLimbs, 1));
  all_reduce(sum, resources_.control_group);
}

void OptimizerStep::all_reduce(TensorView words, comm::ProcessGroup& group) {
  if (group.size() == 1) return;
  group.all_reduce(words, comm::ReduceOp::Sum, resources_.stream);
  resources_.stream.synchronize();
}

std::vector<OptimizerStep::Segment> OptimizerStep::segments_of(zero::ParameterGroup& group, int block) const {
  const zero::OwnedRange range = group.owned();
  std::vector<Segment> segments;
  for (const auto& parameter : group.layout().parameters) {
    const zero::Overlap part = overlap(parameter, range.first, range.count);
    if (part.count == 0 || is_muon(block, parameter)) continue;
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

void OptimizerStep::update_elements(const StepSettings& settings) {
  parameters_.for_each_group([&](int block, zero::ParameterGroup& group) {
    if (!group.layout().trainable || group.layout().role != zero::GroupRole::Own) return;
    const zero::OwnedRange range = group.owned();
    const double scale = unscale(group, settings);
    for (const Segment& segment : segments_of(group, block))
      for_gradient_pieces(range, segment.first, segment.count, [&](int64_t first, ConstTensorView gradient) {
        update_segment(range, {first, gradient.elements(), segment.decay}, gradient, settings, scale);
      });
  });
}

void OptimizerStep::update_segment(const zero::OwnedRange& range, const Segment& segment, ConstTensorView gradient,
                                   const StepSettings& settings, double gradient_scale) {
  const auto part = [&](TensorView view) { return view.absent() ? TensorView{} : view.slice(segment.first, segment.count); };
  const auto state = [&](size_t index) { return index < range.states.size() ? part(range.states[index]) : TensorView{}; };
  const TensorView master = part(range.master), copy_out = part(range.copy_out);
  const double decay = weight_decay(segment.decay);
  const ConstTensorView verdict = resources_.results.verdict();
  kernels::Kernels& kernels = resources_.kernels;
  switch (config_.type) {
    case OptimizerType::Adam:
    case OptimizerType::AdamW:
    case OptimizerType::Muon:
      return kernels.adam({.master = master,
                           .moment1 = state(0),
                           .moment2 = state(1),
                           .copy_out = copy_out,
                           .gradient = gradient,
                           .verdict = verdict,
                           .lr = config_.type == OptimizerType::Muon && config_.adam_lr > 0
                                     ? settings.lr * config_.adam_lr / config_.lr
                                     : settings.lr,
                           .beta1 = settings.beta1,
                           .beta2 = settings.beta2,
                           .epsilon = config_.epsilon,
                           .weight_decay = decay,
                           .gradient_scale = gradient_scale,
                           .step = settings.update,
                           .decoupled_decay = config_.type != OptimizerType::Adam || config_.adam_w_mode,
                           .bias_correction = config_.bias_correction});
    case OptimizerType::Sgd:
      return kernels.sgd({.master = master,
                          .momentum_buffer = state(0),
                          .copy_out = copy_out,
                          .gradient = gradient,
                          .verdict = verdict,
                          .lr = settings.lr,
                          .momentum = config_.momentum,
                          .dampening = config_.dampening,
                          .weight_decay = decay,
                          .gradient_scale = gradient_scale,
                          .step = settings.update,
                          .nesterov = config_.nesterov});
    case OptimizerType::Lion:
      return kernels.lion({.master = master,
                           .moment = state(0),
                           .copy_out = copy_out,
                           .gradient = gradient,
                           .verdict = verdict,
                           .lr = settings.lr,
                           .beta1 = settings.beta1,
                           .beta2 = settings.beta2,
                           .weight_decay = decay,
                           .gradient_scale = gradient_scale});
    case OptimizerType::Adagrad:
      return kernels.adagrad({.master = master,
                              .sum_of_squares = state(0),
                              .copy_out = copy_out,
                              .gradient = gradient,
                              .verdict = verdict,
                              .lr = settings.lr,
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
                                  .beta1 = settings.beta1,
                                  .beta2 = settings.beta2,
                                  .epsilon = config_.epsilon,
                                  .weight_decay = decay,
                                  .gradient_scale = gradient_scale,
                                  .step = settings.update,
                                  .bias_correction = config_.bias_correction});
  }
}

// Trust ratio per parameter: ||w|| / ||update||, clamped (You et al. 2020); 1 where either norm is 0. Norms over the whole
// parameter.
void OptimizerStep::apply_lamb(const StepSettings& settings) {
  const TensorView sums = lamb_sums_.view();
  const auto sums_of = [&](size_t owned) {
    return sums.slice(static_cast<int64_t>(owned) * 2 * ExactSum::kWords, 2 * ExactSum::kWords);
  };
  resources_.kernels.zero(sums);
  for (size_t i = 0; i < owned_.size(); ++i) {
    const zero::OwnedRange range = owned_[i].group->owned();
    sum_squares(owned_[i], range, range.master, sums_of(i).slice(0, ExactSum::kWords));
    sum_squares(owned_[i], range, range.states[2], sums_of(i).slice(ExactSum::kWords, ExactSum::kWords));
  }
  all_reduce(sums, resources_.part_group);
  for (size_t i = 0; i < owned_.size(); ++i) {
    const OwnedParameter& owned = owned_[i];
    if (owned.part.count == 0) continue;
    const zero::OwnedRange range = owned.group->owned();
    const auto slice = [&](TensorView view) {
      return view.absent() ? TensorView{} : view.slice(owned.part.first_in_range, owned.part.count);
    };
    resources_.kernels.apply_update({.master = slice(range.master),
                                     .copy_out = slice(range.copy_out),
                                     .update = slice(range.states[2]),
                                     .verdict = resources_.results.verdict(),
                                     .scale = settings.lr,
                                     .square_sums = sums_of(i),
                                     .min_ratio = config_.min_coefficient,
                                     .max_ratio = config_.max_coefficient});
  }
}

// Of the elements of a parameter that this rank counts.
void OptimizerStep::sum_squares(const OwnedParameter& owned, const zero::OwnedRange& range, ConstTensorView values,
                                TensorView sum) {
  for (const Part& part : counted_parts(owned, range))
    resources_.kernels.sum_of_squares(values.slice(part.first, part.count), 1.0, sum_block(owned), sum);
}

// Momentum on the owned range, the whole update of a group gathered, each matrix orthogonalised by one rank and broadcast.
void OptimizerStep::apply_muon(const StepSettings& settings) {
  int matrix = 0;
  parameters_.for_each_group([&](int block, zero::ParameterGroup& group) {
    std::vector<const OwnedParameter*> matrices;
    for (const OwnedParameter& owned : owned_)
      if (owned.group == &group && is_muon(block, parameter_of(owned))) matrices.push_back(&owned);
    if (matrices.empty()) return;
    for (const OwnedParameter* owned : matrices) muon_momentum(*owned, settings);
    ScopedTensor updates(resources_.buffers, DType::Float32, {group.layout().whole_elements});
    gather_updates(group, updates);
    for (const OwnedParameter* owned : matrices) {
      const zero::FlatParameter& parameter = parameter_of(*owned);
      const TensorView update = updates.view().slice(parameter.offset, parameter.elements()).reshaped(parameter.spec.shape);
      const int owner = matrix++ % resources_.data_group.size();
      const NewtonSchulzScratch scratch(resources_.buffers, parameter.spec.shape);
      if (owner == resources_.data_group.rank()) newton_schulz(resources_.kernels, scratch, update);
      resources_.data_group.broadcast(update, owner, resources_.stream);
      resources_.stream.synchronize();
      apply_muon_update(*owned, update, settings);
    }
  });
}

void OptimizerStep::muon_momentum(const OwnedParameter& owned, const StepSettings& settings) {
  const zero::OwnedRange range = owned.group->owned();
  const double scale = unscale(*owned.group, settings);
  for_gradient_pieces(range, owned.part.first_in_range, owned.part.count, [&](int64_t first, ConstTensorView gradient) {
    resources_.kernels.momentum_update({.momentum_buffer = range.states[0].slice(first, gradient.elements()),
                                        .out = range.states[1].slice(first, gradient.elements()),
                                        .gradient = gradient,
                                        .verdict = resources_.results.verdict(),
                                        .momentum = config_.momentum,
                                        .gradient_scale = scale,
                                        .nesterov = config_.nesterov});
  });
}

void OptimizerStep::gather_updates(zero::ParameterGroup& group, TensorView updates) {
  const zero::OwnedRange range = group.owned();
  if (range.count == updates.elements()) return resources_.kernels.copy(range.states[1], updates);
  zero::gather_whole(range.states[1], updates, resources_.data_group, resources_.stream, resources_.kernels, resources_.buffers,
                     resources_.collectives);
  resources_.stream.synchronize();
}

// The update of a matrix [R, C] is scaled by sqrt(max(1, R / C)), so that its size does not depend on the shape (Jordan et al.
// 2024).
void OptimizerStep::apply_muon_update(const OwnedParameter& owned, ConstTensorView update, const StepSettings& settings) {
  if (owned.part.count == 0) return;
  const zero::OwnedRange range = owned.group->owned();
  const Shape& shape = parameter_of(owned).spec.shape;
  const double lr = config_.muon_lr > 0 ? settings.lr * config_.muon_lr / config_.lr : settings.lr;
  const double shape_scale = std::sqrt(std::max(1.0, static_cast<double>(shape[0]) / static_cast<double>(shape[1])));
  const auto slice = [&](TensorView view) {
    return view.absent() ? TensorView{} : view.slice(owned.part.first_in_range, owned.part.count);
  };
  resources_.kernels.apply_update({.master = slice(range.master),
                                   .copy_out = slice(range.copy_out),
                                   .update = update.slice(owned.part.first_in_parameter, owned.part.count),
                                   .verdict = resources_.results.verdict(),
                                   .scale = lr * shape_scale,
                                   .decay = lr * weight_decay(parameter_of(owned).spec.decay)});
}

}  // namespace trivet
