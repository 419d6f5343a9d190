#include "engine/optimizer/optimizer_step.h"

#include <algorithm>
#include <cmath>

#include "engine/optimizer/newton_schulz.h"

namespace trivet {
namespace {

// Gradients on the fixed-point grid are read back in pieces of so many elements; a multiple of kSumBlock.
constexpr int64_t kPieceElements = int64_t{1} << 18;
constexpr size_t kWords = ExactSum::kLimbs + 1;

void put(const ExactSum& sum, std::span<int64_t> words) { std::copy(sum.words().begin(), sum.words().end(), words.begin()); }
// What takes the stored sum of gradients to their mean. In layout mode the loss scale is out already.
double mean_scale(const zero::ParameterGroup& group, const StepSettings& settings) {
  return 1.0 / ((group.options().fixed_point ? 1.0 : settings.loss_scale) * settings.microbatches);
}

ExactSum take(std::span<const int64_t> words) {
  ExactSum sum;
  std::copy(words.begin(), words.end(), sum.words().begin());
  return sum;
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
}

// Muon orthogonalises the matrices of hidden blocks; embedding, head, gains and biases get Adam.
bool OptimizerStep::is_muon(int block, const zero::FlatParameter& parameter) const {
  return config_.type == OptimizerType::Muon && block > 0 && block + 1 < blocks_ && parameter.spec.shape.dims() == 2;
}

StepOutcome OptimizerStep::run(const StepSettings& settings) {
  const ExactSum square_sum = gradient_square_sum(settings);
  StepOutcome outcome;
  outcome.grad_norm = std::sqrt(square_sum.value());
  outcome.skipped = settings.check_finite && !square_sum.finite();
  if (outcome.skipped) return outcome;

  double clip = 1.0;
  if (settings.clipping > 0 && outcome.grad_norm > 0) clip = std::min(1.0, settings.clipping / (outcome.grad_norm + 1e-6));
  update_elements(settings, clip);
  if (config_.type == OptimizerType::Lamb) apply_lamb(settings);
  if (config_.type == OptimizerType::Muon) apply_muon(settings, clip);
  parameters_.publish();
  return outcome;
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
ExactSum OptimizerStep::gradient_square_sum(const StepSettings& settings) {
  ExactSum sum;
  for (const OwnedParameter& owned : owned_) {
    const zero::OwnedRange range = owned.group->owned();
    const double scale = mean_scale(*owned.group, settings);
    const int64_t block = sum_block(owned);
    for (const Part& part : counted_parts(owned, range))
      for_gradient_pieces(range, part.first, part.count, [&](int64_t, ConstTensorView gradient) {
        sum.add(resources_.kernels.sum_of_squares(gradient, scale, block));
      });
  }
  std::vector<int64_t> words(kWords);
  put(sum, words);
  words[kWords - 1] += parameters_.out_of_range();
  all_reduce(words, resources_.control_group);
  return take(words);
}

void OptimizerStep::all_reduce(std::span<int64_t> words, comm::ProcessGroup& group) {
  if (group.size() == 1) return;
  group.all_reduce({words.data(), DType::Int64, {static_cast<int64_t>(words.size())}}, comm::ReduceOp::Sum, resources_.stream);
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

void OptimizerStep::update_elements(const StepSettings& settings, double clip) {
  parameters_.for_each_group([&](int block, zero::ParameterGroup& group) {
    if (!group.layout().trainable || group.layout().role != zero::GroupRole::Own) return;
    const zero::OwnedRange range = group.owned();
    const double scale = mean_scale(group, settings) * clip;
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
  std::vector<int64_t> words(owned_.size() * 2 * kWords);
  for (size_t i = 0; i < owned_.size(); ++i) {
    const OwnedParameter& owned = owned_[i];
    const zero::OwnedRange range = owned.group->owned();
    const std::span<int64_t> place(words.data() + i * 2 * kWords, 2 * kWords);
    ExactSum weights, updates;
    const int64_t block = sum_block(owned);
    for (const Part& part : counted_parts(owned, range)) {
      weights.add(resources_.kernels.sum_of_squares(range.master.slice(part.first, part.count), 1.0, block));
      updates.add(resources_.kernels.sum_of_squares(range.states[2].slice(part.first, part.count), 1.0, block));
    }
    put(weights, place.first(kWords));
    put(updates, place.last(kWords));
  }
  all_reduce(words, resources_.part_group);
  for (size_t i = 0; i < owned_.size(); ++i) {
    const OwnedParameter& owned = owned_[i];
    if (owned.part.count == 0) continue;
    const std::span<const int64_t> place(words.data() + i * 2 * kWords, 2 * kWords);
    const double weight_norm = std::sqrt(take(place.first(kWords)).value());
    const double update_norm = std::sqrt(take(place.last(kWords)).value());
    const double ratio = weight_norm > 0 && update_norm > 0
                             ? std::clamp(weight_norm / update_norm, config_.min_coefficient, config_.max_coefficient)
                             : 1.0;
    const zero::OwnedRange range = owned.group->owned();
    const auto slice = [&](TensorView view) {
      return view.absent() ? TensorView{} : view.slice(owned.part.first_in_range, owned.part.count);
    };
    resources_.kernels.apply_update({.master = slice(range.master),
                                     .copy_out = slice(range.copy_out),
                                     .update = slice(range.states[2]),
                                     .scale = settings.lr * ratio});
  }
}

// Momentum on the owned range, the whole update of a group gathered, each matrix orthogonalised by one rank and broadcast.
void OptimizerStep::apply_muon(const StepSettings& settings, double clip) {
  int matrix = 0;
  parameters_.for_each_group([&](int block, zero::ParameterGroup& group) {
    std::vector<const OwnedParameter*> matrices;
    for (const OwnedParameter& owned : owned_)
      if (owned.group == &group && is_muon(block, parameter_of(owned))) matrices.push_back(&owned);
    if (matrices.empty()) return;
    for (const OwnedParameter* owned : matrices) muon_momentum(*owned, settings, clip);
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

void OptimizerStep::muon_momentum(const OwnedParameter& owned, const StepSettings& settings, double clip) {
  const zero::OwnedRange range = owned.group->owned();
  const double scale = mean_scale(*owned.group, settings) * clip;
  for_gradient_pieces(range, owned.part.first_in_range, owned.part.count, [&](int64_t first, ConstTensorView gradient) {
    resources_.kernels.momentum_update({.momentum_buffer = range.states[0].slice(first, gradient.elements()),
                                        .out = range.states[1].slice(first, gradient.elements()),
                                        .gradient = gradient,
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
                                   .scale = lr * shape_scale,
                                   .decay = lr * weight_decay(parameter_of(owned).spec.decay)});
}

}  // namespace trivet
