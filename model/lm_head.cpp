#include "model/lm_head.h"

#include <algorithm>
#include <array>

#include "kernels/kernels.h"
#include "model/row_chunks.h"
#include "model/whole_sequences.h"
#include "tensor_parallel/axis_sum.h"
#include "tensor_parallel/split.h"
#include "tensor_parallel/token_gather.h"

namespace trivet::model {

using tensor_parallel::AxisCuts;
using tensor_parallel::AxisSum;
using tensor_parallel::reduce_over;
using tensor_parallel::split_axis;
using tensor_parallel::sum_over;
using tensor_parallel::TokenGather;
namespace {

// Small chunks read and write all of W's gradient too often: on a CPU, 128 rows of GPT-2's vocabulary take 1.2 times as long as
// 512; on a GPU, a step of 32,768 rows in chunks of 640 takes 1.07 times as long as in chunks of 4,096.
constexpr int64_t kChunkBytes = int64_t{128} << 20;  // a chunk may have as many,
constexpr int64_t kMostChunks = 8;                   // and more where there would be more chunks,
constexpr int64_t kMostRows = 4096;                  // but not for more rows
constexpr int64_t kRowMultiple = 64;

int64_t default_rows_of_chunk(int64_t vocabulary, int64_t rows) {
  const int64_t small = kChunkBytes / (vocabulary * 4) / kRowMultiple * kRowMultiple;
  const int64_t few = (rows + kMostChunks * kRowMultiple - 1) / (kMostChunks * kRowMultiple) * kRowMultiple;
  return std::max({small, std::min(few, kMostRows), kRowMultiple});
}

ParameterSpec weight_spec(const LmHead::Options& options) {
  ParameterSpec weight;
  weight.name = "weight";
  weight.shape = {options.vocabulary, options.hidden};
  weight.init = {Init::Kind::Normal, options.init_deviation};
  weight.split = {0, {options.vocabulary}};
  weight.tied_to = options.tied_to;
  return weight;
}

ConstTensorView targets_of(const Context& context) {
  const ConstTensorView targets = context.microbatch->targets;
  return targets.reshaped({targets.elements()});
}

}  // namespace

LmHead::LmHead(const Options& options, std::unique_ptr<Norm> norm)
    : vocabulary_(options.vocabulary),
      rows_of_chunk_(options.rows_of_chunk),
      scaling_(options.scaling),
      soft_cap_(options.soft_cap),
      preference_(options.preference),
      norm_(std::move(norm)) {
  norm_index_ = sub_layers_.add("norm", *norm_);
  weight_ = sub_layers_.parameters().size();
  sub_layers_.add_own(weight_spec(options));
  if (options.frozen) sub_layers_.freeze();
}

int64_t LmHead::rows_of_chunk(int64_t rows) const {
  return rows_of_chunk_ > 0 ? rows_of_chunk_ : default_rows_of_chunk(vocabulary_, rows);
}

ConstTensorView LmHead::factors_of(const ScopedTensor& factors, const RowChunk& chunk) {
  if (factors.empty()) return {};
  return factors.view().slice(chunk.first, chunk.rows);
}

// Context ranks have consecutive leaves. One of them reports the loss of all.
template <typename Work>
void LmHead::sum_chunks(Context& context, int64_t rows, const Gradient& weight, TensorView loss, const Work& work) const {
  const auto leaves = context.leaves ? static_cast<int64_t>(context.leaves->ranges.size()) : 1;
  ScopedTensor of_leaves;
  if (context.leaves && !loss.absent()) of_leaves = ScopedTensor(context.arena, loss.dtype, loss.shape);
  const std::array<Gradient, 2> sums{weight, {of_leaves.empty() ? loss : of_leaves.view(), of_leaves.empty()}};
  for_each_chunk(context, rows, rows_of_chunk(rows / leaves), sums,
                 [&](Context& within, const RowChunk& chunk, Gradients sums_of_leaf) {
                   const Gradient& of_loss = sums_of_leaf[1];
                   if (!of_loss.accumulate) within.kernels.zero(of_loss.view);  // kernels only add to losses
                   work(within, chunk, sums_of_leaf[0], of_loss.view);
                 });
  if (of_leaves.empty()) return;
  const comm::RankAxis* const sequence = context.axes[Axis::Context];
  if (sequence) reduce_over(*sequence, of_leaves, comm::ReduceOp::TreeSum);
  if (!sequence || sequence->rank() == 0) context.kernels.add(of_leaves, loss);
}

// Returns the columns of the logits that this rank computes.
kernels::TableRows LmHead::columns_of(const Context& context) const {
  const comm::RankAxis* axis = split_axis(context);
  if (!axis) return {};
  return {tensor_parallel::unit_range(vocabulary_, axis->rank(), axis->size()).begin, vocabulary_};
}

void LmHead::loss_of_logits(Context& context, ConstTensorView logits, ConstTensorView targets, const Wanted& wanted) const {
  const comm::RankAxis* axis = split_axis(context);
  const AxisCuts cuts(context, split());
  if (!axis)
    return context.kernels.cross_entropy({.logits = logits,
                                          .targets = targets,
                                          .dlogits = wanted.dlogits,
                                          .gradient_scale = wanted.gradient_scale,
                                          .chunk_ends = cuts.ends(),
                                          .loss = wanted.loss,
                                          .row_losses = wanted.row_losses,
                                          .row_factors = wanted.row_factors,
                                          .soft_cap = soft_cap_});
  const kernels::TableRows columns = columns_of(context);
  const ScopedTensor maximum(context.arena, logits.dtype, {logits.shape[0]});
  const ScopedTensor sums(context.arena, logits.dtype, {2, logits.shape[0]});
  context.kernels.row_maxima({.logits = logits, .maximum = maximum});
  reduce_over(*axis, maximum, comm::ReduceOp::Max);
  context.kernels.row_sums(
      {.logits = logits, .targets = targets, .maximum = maximum, .sums = sums, .columns = columns, .chunk_ends = cuts.ends()});
  sum_over(*axis, sums);
  context.kernels.cross_entropy_of_part({.logits = logits,
                                         .targets = targets,
                                         .maximum = maximum,
                                         .sums = sums,
                                         .dlogits = wanted.dlogits,
                                         .columns = columns,
                                         .gradient_scale = wanted.gradient_scale,
                                         .loss = wanted.loss,
                                         .row_losses = wanted.row_losses,
                                         .row_factors = wanted.row_factors,
                                         .soft_cap = soft_cap_});
}

// Computes the logits of some rows and their loss and, if `dlogits` is given, their gradient in its dtype. If the logits have
// the same dtype, they are computed in the memory of `dlogits`.
void LmHead::loss_of_rows(Context& context, ConstTensorView h, ConstTensorView weight, ConstTensorView targets,
                          const Wanted& wanted) const {
  const DType dtype = statistics_dtype(h.dtype);
  const TensorView dlogits = wanted.dlogits;
  ScopedTensor scratch;
  if (dlogits.absent() || dlogits.dtype != dtype) scratch = ScopedTensor(context.arena, dtype, {h.shape[0], weight.shape[0]});
  const TensorView logits = scratch.empty() ? dlogits : scratch.view();
  context.kernels.matmul({.a = h, .b = weight, .out = logits, .transpose_b = true, .cuts = AxisCuts(context, split()).cols()});
  cap(context, logits);
  loss_of_logits(context, logits, targets, wanted);
}

// [Note: pairs of answers]
ScopedTensor LmHead::compare_answers(Context& context, ConstTensorView h, ConstTensorView weight, bool reports) const {
  const Microbatch& batch = *context.microbatch;
  ScopedTensor rows(context.arena, DType::Float64, {h.shape[0]});  // their losses, then their factors
  sum_chunks(context, h.shape[0], {}, {}, [&](Context& within, const RowChunk& chunk, const Gradient&, TensorView) {
    loss_of_rows(within, h.row_range(chunk.first, chunk.rows), weight, targets_of(within).slice(chunk.first, chunk.rows),
                 {.row_losses = rows.view().slice(chunk.first, chunk.rows)});
  });
  const comm::RankAxis* const sequence = context.axes[Axis::Context];
  const TensorView own = rows.view().reshaped(batch.targets.shape);
  ScopedTensor all_rows, all_targets;
  if (sequence) {
    all_rows = gather_sequences(context, *sequence, own);
    all_targets = gather_sequences(context, *sequence, batch.targets);
  }
  kernels::PreferenceLoss loss{.row_losses = sequence ? all_rows.view() : own,
                               .targets = sequence ? all_targets : batch.targets,
                               .documents = batch.documents,
                               .reference = batch.reference,
                               .rule = *preference_,
                               .factors = sequence ? all_rows.view() : own};
  ScopedTensor answers;
  if (reports && context.logits) answers = ScopedTensor(context.arena, DType::Float64, batch.reference.shape);
  loss.log_probabilities = answers.view();
  if (reports && (!sequence || sequence->rank() == 0)) {  // one of the ranks that have the answer counts it
    loss.loss = context.loss;
    loss.correct = context.correct;
    loss.rewards = context.rewards;
  }
  context.kernels.preference_loss(loss);
  if (!answers.empty()) context.logits->read_answers(context.kernels, batch, answers);
  if (sequence) take_own_part(context, sequence->part(), all_rows, own);
  return rows;
}

// dW[V, H] (+)= dlogits^T[V, R] h[R, H]
void LmHead::add_weight_gradient(Context& context, const Gradient& weight, ConstTensorView dlogits, ConstTensorView h) const {
  if (weight.view.absent()) return;
  context.kernels.matmul({.a = dlogits,
                          .b = h,
                          .out = weight.view,
                          .transpose_a = true,
                          .accumulate = weight.accumulate,
                          .cuts = AxisCuts(context, split()).rows()});
}

// Computes this rank's part of dh[R, H] = dlogits[R, V] W[V, H].
void LmHead::make_input_gradient(Context& context, ConstTensorView weight, ConstTensorView dlogits, TensorView dh) const {
  context.kernels.matmul({.a = dlogits, .b = weight, .out = dh, .cuts = AxisCuts(context, split()).sums()});
}

void LmHead::forward(Context& context, Weights weights, ConstTensorView x, TensorView, Saved& saved) const {
  const TensorView own = saved.keep(context.arena, kHidden, x.dtype, x.shape);
  norm_->forward(context, sub_layers_.of(norm_index_, weights), x, own, saved.child(norm_index_));
  divide(context, own);
  TokenGather all(context, own);
  const ConstTensorView h = as_rows(all.view());
  if (preference_) {
    compare_answers(context, h, weights[weight_], true);
    return;
  }
  sum_chunks(context, h.shape[0], {}, context.loss,
             [&](Context& within, const RowChunk& chunk, const Gradient&, TensorView loss) {
               loss_of_rows(within, h.row_range(chunk.first, chunk.rows), weights[weight_],
                            targets_of(within).slice(chunk.first, chunk.rows), {.loss = loss});
             });
  if (context.logits) show_logits(context, h, weights[weight_]);
}

// A few rows at a time: all of them would be the largest tensor of the model. Context ranks compute the rows of their own
// tokens; with zeros for the others, the sum over ranks is exact.
void LmHead::show_logits(Context& context, ConstTensorView h, ConstTensorView weight) const {
  const comm::RankAxis* const sequence = context.axes[Axis::Context];
  Microbatch batch = *context.microbatch;
  const int64_t samples = batch.targets.shape[0], own = h.shape[0] / samples;
  const int64_t length = sequence ? sequence->size() * own : own;
  const OwnTokens tokens = sequence ? sequence->part().tokens(length) : OwnTokens{{{{0, own}, {}}}};
  ScopedTensor all_targets;
  if (sequence) {
    all_targets = gather_sequences(context, *sequence, batch.targets);
    batch.targets = all_targets;
  }
  for (int64_t sample = 0; sample < std::min(samples, context.logits->wants(batch)); ++sample) {
    const TargetRange wanted = context.logits->wants_targets(context.kernels, batch, sample, length);
    for (int64_t done = 0; done < wanted.count; done += LogitsReader::kMostRows) {
      const int64_t rows = std::min(wanted.count - done, LogitsReader::kMostRows), first = wanted.first + done;
      const ScopedTensor logits(context.arena, statistics_dtype(h.dtype), {rows, vocabulary_});
      if (sequence) context.kernels.zero(logits);
      int64_t row = sample * own;  // where the range begins
      for (const TokenRange& range : tokens) {
        const int64_t begin = std::max(first, range.begin), end = std::min(first + rows, range.end);
        if (begin < end)
          logits_of_rows(context, h.row_range(row + begin - range.begin, end - begin), weight,
                         logits.view().row_range(begin - first, end - begin));
        row += range.count();
      }
      if (sequence) reduce_over(*sequence, logits);
      context.logits->read(context.kernels, batch, sample, logits.view().reshaped({1, rows, vocabulary_}), first);
    }
  }
}

void LmHead::backward_input(Context& context, Weights weights, ConstTensorView, TensorView dx, Saved& saved) const {
  TokenGather all(context, saved[kHidden]);
  const ConstTensorView h = as_rows(all.view());
  const TensorView dlogits = saved.keep(context.arena, kDlogits, h.dtype, {h.shape[0], weights[weight_].shape[0]});
  const TensorView dh = saved.keep(context.arena, kDhidden, h.dtype, saved[kHidden].shape);
  const Number scale = context.gradient_scale;
  ScopedTensor factors;
  if (preference_) factors = compare_answers(context, h, weights[weight_], false);
  AxisSum sum(context, split_axis(context), dh);
  sum_chunks(context, h.shape[0], {}, {}, [&](Context& within, const RowChunk& chunk, const Gradient&, TensorView) {
    const TensorView dlogits_rows = dlogits.row_range(chunk.first, chunk.rows);
    loss_of_rows(within, h.row_range(chunk.first, chunk.rows), weights[weight_],
                 targets_of(within).slice(chunk.first, chunk.rows),
                 {.dlogits = dlogits_rows, .gradient_scale = scale, .row_factors = factors_of(factors, chunk)});
    make_input_gradient(within, weights[weight_], dlogits_rows, as_rows(sum.partial()).row_range(chunk.first, chunk.rows));
  });
  sum.start();
  sum.finish();
  divide(context, dh);
  norm_->backward_input(context, sub_layers_.of(norm_index_, weights), dh, dx, saved.child(norm_index_));
}

void LmHead::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  TokenGather all(context, saved[kHidden], !gradients[weight_].view.absent());
  const ConstTensorView h = as_rows(all.view()), dlogits = saved[kDlogits];
  sum_chunks(context, h.shape[0], gradients[weight_], {},
             [&](Context& within, const RowChunk& chunk, const Gradient& weight, TensorView) {
               add_weight_gradient(within, weight, dlogits.row_range(chunk.first, chunk.rows),
                                   h.row_range(chunk.first, chunk.rows));
             });
  norm_->backward_weight(context, sub_layers_.of(norm_index_, gradients), saved.child(norm_index_));
}

// The gradient of a chunk's h overwrites that h, unless its partial sums need separate memory: nothing reads h after the
// chunk's weight gradient.
void LmHead::forward_backward(Context& context, Weights weights, Gradients gradients, ConstTensorView x, TensorView dx,
                              Saved& saved) const {
  const ScopedTensor own(context.arena, x.dtype, x.shape);
  norm_->forward(context, sub_layers_.of(norm_index_, weights), x, own, saved.child(norm_index_));
  divide(context, own);
  TokenGather all(context, own);
  const ConstTensorView h = as_rows(all.view());
  const Number scale = context.gradient_scale;
  ScopedTensor factors;
  if (preference_) factors = compare_answers(context, h, weights[weight_], true);
  const TensorView loss = preference_ ? TensorView{} : context.loss;
  AxisSum sum(context, split_axis(context), own);
  sum_chunks(
      context, h.shape[0], gradients[weight_], loss,
      [&](Context& within, const RowChunk& chunk, const Gradient& weight, TensorView loss_of_leaf) {
        const ConstTensorView h_rows = h.row_range(chunk.first, chunk.rows);
        const ScopedTensor dlogits(within.arena, h.dtype, {chunk.rows, weights[weight_].shape[0]});
        loss_of_rows(
            within, h_rows, weights[weight_], targets_of(within).slice(chunk.first, chunk.rows),
            {.loss = loss_of_leaf, .dlogits = dlogits, .gradient_scale = scale, .row_factors = factors_of(factors, chunk)});
        add_weight_gradient(within, weight, dlogits, h_rows);
        make_input_gradient(within, weights[weight_], dlogits, as_rows(sum.partial()).row_range(chunk.first, chunk.rows));
      });
  sum.start();
  sum.finish();
  divide(context, own);
  norm_->backward(context, sub_layers_.of(norm_index_, weights), sub_layers_.of(norm_index_, gradients), own, dx,
                  saved.child(norm_index_));
}

void LmHead::logits(Context& context, Weights weights, ConstTensorView x, TensorView logits) const {
  const ScopedTensor h(context.arena, x.dtype, x.shape);
  Saved saved;
  norm_->forward(context, sub_layers_.of(norm_index_, weights), x, h, saved);
  divide(context, h);
  logits_of_rows(context, h, weights[weight_], logits);
}

void LmHead::cap(Context& context, TensorView logits) const {
  if (soft_cap_ > 0) context.kernels.soft_cap({.x = logits, .y = logits, .cap = soft_cap_});
}

void LmHead::divide(Context& context, TensorView h) const {
  if (scaling_ != 1) context.kernels.scale(h, 1 / scaling_);
}

void LmHead::logits_of_rows(Context& context, ConstTensorView h, ConstTensorView weight, TensorView logits) const {
  if (split_axis(context))
    logits_of_all_parts(context, h, weight, logits);
  else
    context.kernels.matmul({.a = h, .b = weight, .out = logits, .transpose_b = true});
  cap(context, logits);
}

// Each rank writes its columns into a tensor of zeros. The sum over ranks is then exact, and the parts may be uneven.
void LmHead::logits_of_all_parts(Context& context, ConstTensorView h, ConstTensorView weight, TensorView logits) const {
  const int64_t rows = h.shape[0], columns = weight.shape[0], first = columns_of(context).first;
  const ScopedTensor own(context.arena, logits.dtype, {rows, columns});
  context.kernels.matmul({.a = h, .b = weight, .out = own, .transpose_b = true});
  context.kernels.zero(logits);
  for (int64_t row = 0; row < rows; ++row)
    context.kernels.copy(own.view().slice(row * columns, columns), logits.slice(row * vocabulary_ + first, columns));
  reduce_over(*split_axis(context), logits);
}

}  // namespace trivet::model
