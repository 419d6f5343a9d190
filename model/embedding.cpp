#include "model/embedding.h"

#include "core/error.h"
#include "model/sub_layers.h"
#include "tensor_parallel/axis_sum.h"
#include "tensor_parallel/split.h"
#include "tensor_parallel/token_gather.h"

namespace trivet::model {

using tensor_parallel::AxisSum;
using tensor_parallel::first_own_token;
using tensor_parallel::split_axis;
using tensor_parallel::TokenGather;
namespace {

// Returns the gradient of rows [first, first + used). The gradient of the other rows, whose positions are not used, is zero.
Gradient rows_used(Context& context, const Gradient& gradient, int64_t first, int64_t used) {
  if (gradient.view.absent()) return gradient;
  const int64_t end = first + used, rows = gradient.view.shape[0];
  if (!gradient.accumulate) {
    context.kernels.zero(gradient.view.row_range(0, first));
    context.kernels.zero(gradient.view.row_range(end, rows - end));
  }
  return {gradient.view.row_range(first, used), gradient.accumulate};
}

// Returns the places in documents of the `own` tokens of each sequence that this rank has, from `first` on. Absent: samples are
// not several documents.
struct OwnPlaces {
  ScopedTensor copied;
  ConstTensorView view;

  OwnPlaces(Context& context, int64_t first, int64_t own, bool wanted = true) {
    const ConstTensorView all = wanted && context.microbatch ? context.microbatch->positions : ConstTensorView();
    view = all;
    if (all.absent() || own == all.shape[1]) return;
    copied = ScopedTensor(context.arena, DType::Int32, {all.shape[0], own});
    context.kernels.copy_runs({.from = all.slice(first, all.elements() - first),
                               .out = copied,
                               .counts = {1, 1, all.shape[0]},
                               .run = own,
                               .from_steps = {0, 0, all.shape[1]},
                               .out_steps = {0, 0, own}});
    view = copied.view();
  }
};

}  // namespace

Embedding::Embedding(const std::string& name, const Options& options) : options_(options), dropout_name_(name + ".dropout") {
  const Init init{Init::Kind::Normal, options.init_deviation};
  parameters_.push_back(
      {.name = kTable, .shape = {options.vocabulary, options.hidden}, .init = init, .split = {0, {options.vocabulary}}});
  if (options.positions > 0)
    parameters_.push_back({.name = "positions.weight", .shape = {options.positions, options.hidden}, .init = init});
  for (ParameterSpec& parameter : parameters_) parameter.trainable = !options.frozen;
}

// Returns the rows of the table that this rank has.
kernels::TableRows Embedding::rows_of(const Context& context) const {
  const comm::RankAxis* axis = split_axis(context);
  if (!axis) return {};
  return {tensor_parallel::unit_range(options_.vocabulary, axis->rank(), axis->size()).begin, options_.vocabulary};
}

// Only the first rank of the axis adds the positions.
void Embedding::forward(Context& context, Weights weights, ConstTensorView tokens, TensorView y, Saved& saved) const {
  saved.reference(kTokens, tokens);
  const comm::RankAxis* const sequence = context.axes[Axis::Context];
  const int64_t own = tokens.shape[1], length = sequence ? own * sequence->size() : own;
  ConstTensorView positions;
  if (options_.positions > 0) {
    if (length > options_.positions)
      throw ConfigError("model.sequence_length: a sequence of " + std::to_string(length) +
                        " tokens was given, but the model has " + std::to_string(options_.positions) +
                        " learned positions; shorten the sequence");
    positions = weights[1];
  }
  const int64_t first = sequence ? sequence->rank() * own : 0;
  const OwnPlaces places(context, first, own, options_.positions > 0);
  if (!positions.absent() && places.view.absent()) positions = positions.row_range(first, own);
  const comm::RankAxis* axis = split_axis(context);
  if (axis && axis->rank() != 0) positions = {};
  AxisSum sum(context, axis, y, {}, AxisSum::Terms::Exact);
  context.kernels.embedding({.tokens = tokens,
                             .table = weights[0],
                             .positions = positions,
                             .out = sum.partial(),
                             .rows = rows_of(context),
                             .places = places.view});
  sum.start();
  sum.finish();
  if (options_.scale != 1) context.kernels.scale(y, options_.scale);
  const kernels::DropoutSite site = dropout_site(context, dropout_name_, options_.dropout, y.shape);
  // Dropout is linear and its own transpose, so its backward, which works in place, can be used here.
  if (site.rate > 0) context.kernels.dropout_backward({.dy = y, .dx = y, .dropout = site});
}

// Tokens have no gradient, so only the backward of dropout and of the scale remains to be done, for backward_weight.
void Embedding::backward_input(Context& context, Weights, ConstTensorView dy, TensorView, Saved& saved) const {
  const kernels::DropoutSite site = dropout_site(context, dropout_name_, options_.dropout, dy.shape);
  if (site.rate == 0 && options_.scale == 1) return saved.reference(kDsum, dy);
  const TensorView dsum = saved.keep(context.arena, kDsum, dy.dtype, dy.shape);
  if (site.rate == 0)
    context.kernels.copy(dy, dsum);
  else
    context.kernels.dropout_backward({.dy = dy, .dx = dsum, .dropout = site});
  if (options_.scale != 1) context.kernels.scale(dsum, options_.scale);
}

void Embedding::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  const ConstTensorView tokens = saved[kTokens], dy = saved[kDsum];
  const Gradient& table = gradients[0];
  if (!table.view.absent()) {
    TokenGather all_dy(context, dy);
    context.kernels.embedding_backward({.tokens = tokens,
                                        .dy = all_dy.view(),
                                        .dtable = table.view,
                                        .accumulate_table = table.accumulate,
                                        .rows = rows_of(context)});
  }
  if (options_.positions > 0 && !gradients[1].view.absent()) add_position_gradient(context, gradients[1], tokens, dy);
}

// Adds the gradient for the rank's own tokens. Without documents, they are at the same positions in all sequences, and the
// kernel needs only their number, not their values.
void Embedding::add_position_gradient(Context& context, const Gradient& gradient, ConstTensorView tokens,
                                      ConstTensorView dy) const {
  const int64_t sequences = dy.shape[0], length = dy.shape[1];
  const OwnPlaces places(context, first_own_token(context, length), length);
  if (!places.view.absent())
    return context.kernels.embedding_backward(
        {.tokens = places.view, .dy = dy, .dtable = gradient.view, .accumulate_table = gradient.accumulate});
  const Gradient used = rows_used(context, gradient, first_own_token(context, length), length);
  context.kernels.embedding_backward({.tokens = tokens.slice(0, sequences * length).reshaped({sequences, length}),
                                      .dy = dy,
                                      .dpositions = used.view,
                                      .accumulate_positions = used.accumulate});
}

}  // namespace trivet::model
