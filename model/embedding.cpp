#include "model/embedding.h"

#include <vector>

#include "core/error.h"
#include "model/sub_layers.h"
#include "tensor_parallel/axis_sum.h"
#include "tensor_parallel/split.h"
#include "tensor_parallel/token_gather.h"

namespace trivet::model {

using tensor_parallel::AxisSum;
using tensor_parallel::own_tokens;
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

// The places in documents of the tokens that this rank has of each sequence. Absent: samples are not several documents.
struct OwnPlaces {
  ScopedTensor copied;
  ConstTensorView view;

  OwnPlaces(Context& context, const OwnTokens& tokens, int64_t own, bool wanted = true) {
    const ConstTensorView all = wanted && context.microbatch ? context.microbatch->positions : ConstTensorView();
    view = all;
    if (all.absent() || own == all.shape[1]) return;
    copied = ScopedTensor(context.arena, DType::Int32, {all.shape[0], own});
    int64_t done = 0;
    for (const TokenRange& range : tokens) {
      context.kernels.copy_runs({.from = all.slice(range.begin, all.elements() - range.begin),
                                 .out = copied.view().slice(done, copied.view().elements() - done),
                                 .counts = {1, 1, all.shape[0]},
                                 .run = range.count(),
                                 .from_steps = {0, 0, all.shape[1]},
                                 .out_steps = {0, 0, own}});
      done += range.count();
    }
    view = copied.view();
  }
};

// Neighbouring tokens in memory of one or several sequences, all at the same places of their sequence.
struct Block {
  int64_t first_row = 0, sequences = 0;
  TokenRange places;

  template <typename View>  // the block's rows of [rows, ...], for tokens without columns
  View of(const View& all, int64_t columns = 1) const {
    const int64_t rows = sequences * places.count();
    return all.slice(first_row * columns, rows * columns)
        .reshaped(columns == 1 ? Shape{sequences, places.count()} : Shape{sequences, places.count(), columns});
  }
};
std::vector<Block> blocks_of(const OwnTokens& tokens, int64_t sequences) {
  if (tokens.pieces() == 1) return {{0, sequences, tokens.ranges[0]}};
  std::vector<Block> blocks;
  int64_t row = 0;
  for (int64_t sequence = 0; sequence < sequences; ++sequence)
    for (const TokenRange& range : tokens) {
      blocks.push_back({row, 1, range});
      row += range.count();
    }
  return blocks;
}

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
  const OwnTokens all_own = sequence ? sequence->part().tokens(length) : OwnTokens{{{{0, own}, {}}}};
  const OwnPlaces places(context, all_own, own, options_.positions > 0);
  const comm::RankAxis* axis = split_axis(context);
  if (axis && axis->rank() != 0) positions = {};
  AxisSum sum(context, axis, y, {}, AxisSum::Terms::Exact);
  if (positions.absent() || !places.view.absent()) {
    context.kernels.embedding({.tokens = tokens,
                               .table = weights[0],
                               .positions = positions,
                               .out = sum.partial(),
                               .rows = rows_of(context),
                               .places = places.view});
  } else {
    for (const Block& block : blocks_of(all_own, tokens.shape[0]))
      context.kernels.embedding({.tokens = block.of(tokens),
                                 .table = weights[0],
                                 .positions = positions.row_range(block.places.begin, block.places.count()),
                                 .out = block.of(sum.partial(), options_.hidden),
                                 .rows = rows_of(context)});
  }
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
  const OwnTokens own = own_tokens(context, length);
  const OwnPlaces places(context, own, length);
  if (!places.view.absent())
    return context.kernels.embedding_backward(
        {.tokens = places.view, .dy = dy, .dtable = gradient.view, .accumulate_table = gradient.accumulate});
  Gradient all = gradient;
  if (own.pieces() > 1 && !gradient.accumulate) context.kernels.zero(gradient.view), all.accumulate = true;
  for (const Block& block : blocks_of(own, sequences)) {
    const Gradient used = rows_used(context, all, block.places.begin, block.places.count());
    context.kernels.embedding_backward({.tokens = block.of(tokens),
                                        .dy = block.of(dy, options_.hidden),
                                        .dpositions = used.view,
                                        .accumulate_positions = used.accumulate});
  }
}

}  // namespace trivet::model
