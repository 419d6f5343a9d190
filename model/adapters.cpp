#include "model/adapters.h"

#include <cmath>

#include "kernels/kernels.h"
#include "tensor_parallel/axis_sum.h"
#include "tensor_parallel/split.h"

namespace trivet::model {

using tensor_parallel::AxisCuts;
using tensor_parallel::AxisSum;
using tensor_parallel::split_axis;
namespace {

constexpr std::string_view kDown = "lora_a", kUp = "lora_b";

// The part of W's split that B has: one segment, or all of them.
Split split_of_up(const Split& weight, int segment) {
  if (weight.dim != 0) return {};
  if (segment < 0) return weight;
  const auto index = static_cast<size_t>(segment);
  return {0, {weight.segments[index]}, weight.units.empty() ? std::vector<int64_t>{} : std::vector{weight.units[index]}};
}

// Stores a gradient that was computed elsewhere.
void store(Context& context, ConstTensorView value, const Gradient& gradient) {
  const ConstTensorView shaped = value.reshaped(gradient.view.shape);
  if (gradient.accumulate)
    context.kernels.add(shaped, gradient.view);
  else
    context.kernels.copy(shaped, gradient.view);
}

void transpose(Context& context, ConstTensorView from, TensorView out) {
  context.kernels.transpose(from.reshaped({1, from.shape[0], from.shape[1]}), out.reshaped({1, out.shape[0], out.shape[1]}));
}

}  // namespace

bool is_adapter(std::string_view parameter_name) {
  const size_t dot = parameter_name.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? parameter_name : parameter_name.substr(dot + 1);
  return last == kDown || last == kUp;
}

Adapters::Adapters(const Options& options, const ParameterSpec& weight) : options_(options), weight_(weight) {
  const int64_t out = weight.shape[0], in = weight.shape[1];
  for (const Part& part : options.parts) {
    const std::string prefix = part.name.empty() ? "" : part.name + ".";
    const int64_t rows = part.segment < 0 ? out : weight.split.segments.at(static_cast<size_t>(part.segment));
    parameters_.push_back({.name = prefix + std::string(kDown),
                           .shape = {options.rank, in},
                           .init = {Init::Kind::Uniform, 1 / std::sqrt(static_cast<double>(in))},
                           .split = row_parallel() ? weight.split : Split{}});
    parameters_.push_back({.name = prefix + std::string(kUp),
                           .shape = {rows, options.rank},
                           .init = {Init::Kind::Zeros, 0},
                           .split = split_of_up(weight.split, part.segment)});
  }
}

// The rows of this rank's part of W.
int64_t Adapters::local_out(const Context& context) const {
  const comm::RankAxis* axis = split_axis(context);
  return axis && column_parallel() ? tensor_parallel::local_part(weight_, axis->rank(), axis->size()).shape[0]
                                   : weight_.shape[0];
}

// The rows of the part among them.
Adapters::Rows Adapters::rows_of(const Context& context, const Part& part) const {
  if (part.segment < 0) return {0, local_out(context)};
  const auto segment = static_cast<size_t>(part.segment);
  const comm::RankAxis* axis = split_axis(context);
  Rows rows;
  if (!axis) {
    for (size_t i = 0; i < segment; ++i) rows.first += weight_.split.segments[i];
    rows.count = weight_.split.segments[segment];
    return rows;
  }
  const tensor_parallel::LocalPart local = tensor_parallel::local_part(weight_, axis->rank(), axis->size());
  for (size_t i = 0; i < segment; ++i) rows.first += local.boxes[i].shape[0];
  rows.count = local.boxes[segment].shape[0];
  return rows;
}

// [p r, out of the rank], with the scale.
ScopedTensor Adapters::make_up(Context& context, Weights weights) const {
  const int64_t out = local_out(context), rank = options_.rank;
  ScopedTensor up(context.arena, weights[1].dtype, {width(), out});
  for (size_t i = 0; i < options_.parts.size(); ++i) {
    const ConstTensorView part = weights[2 * i + 1];
    const TensorView transposed = up.view().row_range(static_cast<int64_t>(i) * rank, rank);
    const Rows rows = rows_of(context, options_.parts[i]);
    if (rows.count == out) {
      transpose(context, part, transposed);
      continue;
    }
    const ScopedTensor padded(context.arena, part.dtype, {out, rank});
    context.kernels.zero(padded);
    context.kernels.copy(part, padded.view().row_range(rows.first, rows.count));
    transpose(context, padded.view(), transposed);
  }
  context.kernels.scale(up, options_.scale);
  return up;
}

// All A, one after another, [p r, in of the rank]; none if there is only one part, whose A serves.
ScopedTensor Adapters::copy_of_downs(Context& context, Weights weights) const {
  if (options_.parts.size() == 1) return {};
  const int64_t rank = options_.rank;
  ScopedTensor downs(context.arena, weights[0].dtype, {width(), weights[0].shape[1]});
  for (size_t i = 0; i < options_.parts.size(); ++i)
    context.kernels.copy(weights[2 * i], downs.view().row_range(static_cast<int64_t>(i) * rank, rank));
  return downs;
}

TensorView Adapters::keep_low(Context& context, Weights weights, ConstTensorView x, Shape y, Saved& saved) const {
  const AxisCuts cuts(context, weight_.split);
  y[-1] = width();
  const TensorView low = saved.keep(context.arena, kLow, x.dtype, y);
  const ScopedTensor downs = copy_of_downs(context, weights);
  AxisSum sum(context, row_parallel() ? split_axis(context) : nullptr, low);
  context.kernels.matmul({.a = as_rows(x),
                          .b = downs.empty() ? weights[0] : downs.view(),
                          .out = as_rows(sum.partial()),
                          .transpose_b = true,
                          .cuts = row_parallel() ? cuts.sums() : nullptr});
  sum.start();
  sum.finish();
  return low;
}

void Adapters::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  const AxisCuts cuts(context, weight_.split);
  const TensorView low = keep_low(context, weights, x, y.shape, saved);
  const ScopedTensor up = make_up(context, weights);
  context.kernels.matmul({.a = as_rows(low),
                          .b = up.view(),
                          .out = as_rows(y),
                          .accumulate = true,
                          .cuts = column_parallel() ? cuts.cols() : nullptr});
}

// dlow[T, p r] = dy[T, out] up^T, and dx[T, in] += dlow A
void Adapters::backward_input(Context& context, Weights weights, ConstTensorView dy, const Shape& x, TensorView dx,
                              Saved& saved) const {
  const AxisCuts cuts(context, weight_.split);
  Shape narrow = x;
  narrow[-1] = width();
  const TensorView dlow = saved.keep(context.arena, kDlow, dy.dtype, narrow);
  {
    const ScopedTensor up = make_up(context, weights);
    AxisSum sum(context, column_parallel() ? split_axis(context) : nullptr, dlow);
    context.kernels.matmul({.a = as_rows(dy),
                            .b = up.view(),
                            .out = as_rows(sum.partial()),
                            .transpose_b = true,
                            .cuts = column_parallel() ? cuts.sums() : nullptr});
    sum.start();
    sum.finish();
  }
  if (dx.absent()) return;
  const ScopedTensor downs = copy_of_downs(context, weights);
  context.kernels.matmul({.a = as_rows(dlow),
                          .b = downs.empty() ? weights[0] : downs.view(),
                          .out = as_rows(dx),
                          .accumulate = true,
                          .cuts = row_parallel() ? cuts.cols() : nullptr});
}

void Adapters::backward_weight(Context& context, Gradients gradients, ConstTensorView x, ConstTensorView dy,
                               const Saved& saved) const {
  add_up_gradients(context, gradients, dy, saved);
  add_down_gradients(context, gradients, x, saved);
}

// dup[p r, out] = scale low^T dy; the gradient of a part's B is the transpose of its block.
void Adapters::add_up_gradients(Context& context, Gradients gradients, ConstTensorView dy, const Saved& saved) const {
  const AxisCuts cuts(context, weight_.split);
  const int64_t out = dy.shape.cols(), rank = options_.rank;
  ScopedTensor all;
  for (size_t i = 0; i < options_.parts.size(); ++i) {
    const Gradient& gradient = gradients[2 * i + 1];
    if (gradient.view.absent()) continue;
    if (all.empty()) {
      all = ScopedTensor(context.arena, gradient.view.dtype, {width(), out});
      context.kernels.matmul({.a = as_rows(saved[kLow]),
                              .b = as_rows(dy),
                              .out = all.view(),
                              .transpose_a = true,
                              .cuts = column_parallel() ? cuts.cols() : nullptr});
      context.kernels.scale(all, options_.scale);
    }
    const ScopedTensor rows_of_all(context.arena, gradient.view.dtype, {out, rank});
    transpose(context, all.view().row_range(static_cast<int64_t>(i) * rank, rank), rows_of_all.view());
    const Rows rows = rows_of(context, options_.parts[i]);
    store(context, rows_of_all.view().row_range(rows.first, rows.count), gradient);
  }
}

// dA[p r, in] += dlow^T x
void Adapters::add_down_gradients(Context& context, Gradients gradients, ConstTensorView x, const Saved& saved) const {
  const AxisCuts cuts(context, weight_.split);
  const auto product = [&](TensorView out, bool accumulate) {
    context.kernels.matmul({.a = as_rows(saved[kDlow]),
                            .b = as_rows(x),
                            .out = out,
                            .transpose_a = true,
                            .accumulate = accumulate,
                            .cuts = row_parallel() ? cuts.cols() : nullptr});
  };
  if (options_.parts.size() == 1) {
    if (!gradients[0].view.absent()) product(gradients[0].view, gradients[0].accumulate);
    return;
  }
  ScopedTensor all;
  for (size_t i = 0; i < options_.parts.size(); ++i) {
    const Gradient& gradient = gradients[2 * i];
    if (gradient.view.absent()) continue;
    if (all.empty()) {
      all = ScopedTensor(context.arena, gradient.view.dtype, {width(), x.shape.cols()});
      product(all.view(), false);
    }
    store(context, all.view().row_range(static_cast<int64_t>(i) * options_.rank, options_.rank), gradient);
  }
}

}  // namespace trivet::model
