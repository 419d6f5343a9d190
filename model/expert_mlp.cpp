#include "model/expert_mlp.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/rules.h"
#include "model/expert_exchange.h"
#include "model/expert_rows.h"

namespace trivet::model {

using tensor_parallel::AxisSum;
using tensor_parallel::split_axis;
namespace {

// One expert's part of F is that of an MLP; all experts together have it E times.
Split of_all(const Split& of_one, int64_t experts) {
  Split split{of_one.dim, {}, {}};
  for (int64_t expert = 0; expert < (of_one.dim == 0 ? experts : 1); ++expert)
    split.segments.insert(split.segments.end(), of_one.segments.begin(), of_one.segments.end());
  return split;
}

ConstTensorView first_rows(const ScopedTensor& tensor, const RowRange& range) {
  return tensor.view().row_range(range.first, range.count);
}

// Absent: all tokens count, as where blocks leave tokens out.
ConstTensorView targets_of_tokens(const Context& context, int64_t tokens) {
  if (!context.microbatch || context.microbatch->targets.elements() != tokens) return {};
  return context.microbatch->targets.reshaped({tokens});
}

// These return the place of the parameter that they add.
size_t add_bias(const ExpertMlp::Options& options, SubLayers& to) {
  to.add_own({.name = "router.correction_bias",
              .shape = {options.experts},
              .init = {Init::Kind::Zeros, 0},
              .decay = false,
              .trainable = false,
              .update = {.kind = ParameterUpdate::Kind::ExpertBalance, .rate = options.bias_update_rate},
              .keeps_float32 = true});
  return to.parameters().size() - 1;
}

// In the order of ExpertMlp::Parameter.
void add_biases(const ExpertMlp::Options& options, SubLayers& to) {
  const int64_t experts = options.experts;
  to.add_own({.name = "router.bias", .shape = {experts}, .init = {Init::Kind::Zeros, 0}, .decay = false});
  to.add_own({.name = "experts.gate_up.bias",
              .shape = {experts * 2 * options.feed_forward},
              .init = {Init::Kind::Zeros, 0},
              .split = of_all(split_of_gate_up(options.feed_forward), experts),
              .decay = false,
              .sharing = Sharing::Expert,
              .matrices = experts,
              .matrices_per_token = options.chosen});
  to.add_own(
      {.name = "experts.down.bias", .shape = {experts * options.hidden}, .init = {Init::Kind::Zeros, 0}, .decay = false});
}

size_t add_gate(const ExpertMlp::Options& options, SubLayers& to) {
  to.add_own(
      {.name = "shared_gate.weight", .shape = {1, options.hidden}, .init = {Init::Kind::Normal, options.init_deviation}});
  return to.parameters().size() - 1;
}

}  // namespace

ExpertMlp::ExpertMlp(const Options& options)
    : options_(options), ranks_{options.gate_up_adapters.rank, options.down_adapters.rank} {
  const int64_t experts = options.experts, hidden = options.hidden, feed_forward = options.feed_forward;
  sub_layers_.add_own(
      {.name = "router.weight", .shape = {experts, hidden}, .init = {Init::Kind::Normal, options.init_deviation}});
  sub_layers_.add_own({.name = "experts.gate_up.weight",
                       .shape = {experts * 2 * feed_forward, hidden},
                       .init = {Init::Kind::Normal, options.init_deviation},
                       .split = of_all(split_of_gate_up(feed_forward), experts),
                       .sharing = Sharing::Expert,
                       .matrices = experts,
                       .matrices_per_token = options.chosen});
  sub_layers_.add_own({.name = "experts.down.weight",
                       .shape = {experts * hidden, feed_forward},
                       .init = {Init::Kind::Normal, options.init_deviation_out},
                       .split = of_all(split_of_down(feed_forward), experts),
                       .sharing = Sharing::Expert,
                       .matrices = experts,
                       .matrices_per_token = options.chosen});
  if (options.bias) add_biases(options, sub_layers_);
  gate_up_adapter_ = add_adapters("experts.gate_up.", kGateUp, options.gate_up_adapters);
  down_adapter_ = add_adapters("experts.down.", kDown, options.down_adapters);
  if (options.correction_bias) bias_ = add_bias(options, sub_layers_);
  if (options.shared_feed_forward == 0) return;
  if (options.shared_gate) gate_ = add_gate(options, sub_layers_);
  shared_ = std::make_unique<Mlp>(Mlp::Options{.hidden = hidden,
                                               .feed_forward = options.shared_feed_forward,
                                               .activation = Activation::SwiGlu,
                                               .bias = false,
                                               .init_deviation = options.init_deviation,
                                               .init_deviation_out = options.init_deviation_out,
                                               .up_adapters = options.shared_up_adapters,
                                               .down_adapters = options.shared_down_adapters});
  shared_index_ = sub_layers_.add("shared", *shared_);
}

// Each expert has the adapters of one matrix.
size_t ExpertMlp::add_adapters(const std::string& prefix, Parameter weight, const Adapters::Options& options) {
  const size_t first = sub_layers_.parameters().size();
  if (options.parts.empty()) return first;
  const int64_t experts = options_.experts;
  ParameterSpec of_one = sub_layers_.parameters()[weight];
  of_one.shape[0] /= experts;
  of_one.split = weight == kGateUp ? split_of_gate_up(options_.feed_forward) : split_of_down(options_.feed_forward);
  const Adapters adapters(options, of_one);
  for (ParameterSpec spec : adapters.parameters()) {
    spec.name = prefix + spec.name;
    spec.shape[0] *= experts;
    spec.split = of_all(spec.split, experts);
    spec.sharing = Sharing::Expert;
    spec.matrices = experts;
    spec.matrices_per_token = options_.chosen;
    sub_layers_.add_own(spec);
  }
  return first;
}

ExpertWork ExpertMlp::work(Context& context, Weights weights) const {
  const auto adapter = [&](const Adapters::Options& options, size_t first) {
    return options.parts.empty() ? ExpertAdapter{} : ExpertAdapter{weights[first], weights[first + 1], options.scale};
  };
  return {context,
          {weights[kGateUp], of_biases(weights, kGateUpBias), weights[kDown],
           adapter(options_.gate_up_adapters, gate_up_adapter_), adapter(options_.down_adapters, down_adapter_)},
          options_.feed_forward,
          options_.swiglu};
}

ExpertRows ExpertMlp::own_rows(const Context& context, ConstTensorView x_rows, const Saved& saved) const {
  return {x_rows, saved[kEnds], saved[kWeights], saved[kOrder], ranges_of(context, saved[kX].shape.rows()).leaves};
}

int64_t ExpertMlp::most_rows(int64_t tokens, int ranks) const {
  return tokens * std::min(options_.chosen, options_.experts / ranks);
}

void ExpertMlp::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  choose(context, weights, x, saved);
  RowSum sum(context, saved[kOrder].elements(), y, ranks_.down > 0);
  if (const comm::RankAxis* ranks = expert_axis(context)) {
    compute_on_ranks(context, *ranks, weights, x, sum, saved);
  } else {
    activate(context, weights, x, saved);
    const ExpertWork experts = work(context, weights);
    experts.apply_down(saved[kActivated], saved[kEnds], sum.partial());
    if (ranks_.down > 0)
      add_part(context, sum, [&](TensorView part) { experts.apply_down_adapter(saved[kDownLow], saved[kEnds], part); });
  }
  sum.start(saved[kPlaces]);
  sum.finish();
  if (options_.bias) add_down_biases(context, weights, y, saved);
  if (shared_) add_shared(context, weights, x, y, saved);
}

// Computes the part of rows that an adapter adds to them.
template <typename Compute>
void ExpertMlp::add_part(Context& context, const RowSum& sum, Compute&& compute) {
  if (!sum.parts().absent()) return compute(sum.parts());
  const ScopedTensor part(context.arena, sum.partial().dtype, sum.partial().shape);  // on all ranks, whose plans are alike
  if (!sum.adds_parts()) return;
  compute(part);
  sum.add_part(part, sum.partial());
}

ScopedTensor ExpertMlp::spread_weights(Context& context, DType type, const Saved& saved) const {
  ScopedTensor all(context.arena, type, saved[kLogits].shape);
  context.kernels.spread_weights({.weights = saved[kWeights], .chosen = saved[kChosen], .out = all});
  return all;
}

void ExpertMlp::add_down_biases(Context& context, Weights weights, TensorView y, const Saved& saved) const {
  const ScopedTensor all = spread_weights(context, y.dtype, saved);
  context.kernels.matmul(
      {.a = all, .b = weights[kDownBias].reshaped({options_.experts, options_.hidden}), .out = as_rows(y), .accumulate = true});
}

void ExpertMlp::add_gradients_of_weights(const BackwardPass& pass, ConstTensorView dy, TensorView dweights) const {
  Context& context = pass.context();
  const ScopedTensor all(context.arena, dy.dtype, pass.saved()[kLogits].shape);
  context.kernels.matmul({.a = as_rows(dy),
                          .b = pass.weights()[kDownBias].reshaped({options_.experts, options_.hidden}),
                          .out = all,
                          .transpose_b = true});
  context.kernels.add_chosen({.x = all, .chosen = pass.saved()[kChosen], .out = dweights});
}

// Those of the router and of down; that of gate_up follows its weight's.
void ExpertMlp::make_bias_gradients(Context& context, Gradients gradients, ConstTensorView dlogits, const Saved& saved) const {
  const Gradient &router = gradients[kRouterBias], &down = gradients[kDownBias];
  if (!router.view.absent())
    context.kernels.bias_gradient({.dy = dlogits, .dbias = router.view, .accumulate = router.accumulate});
  if (down.view.absent()) return;
  const ConstTensorView dy = saved[kDy];
  const ScopedTensor all = spread_weights(context, dy.dtype, saved);
  context.kernels.matmul({.a = all,
                          .b = as_rows(dy),
                          .out = down.view.reshaped({options_.experts, options_.hidden}),
                          .transpose_a = true,
                          .accumulate = down.accumulate});
}

void ExpertMlp::forward_again(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  choose(context, weights, x, saved);
  if (!expert_axis(context)) activate(context, weights, x, saved);
  if (shared_) add_shared(context, weights, x, {}, saved);
}

void ExpertMlp::choose(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  const int64_t tokens = x.shape.rows(), rows = tokens * options_.chosen;
  const DType type = kernels::statistics_type(x.dtype);
  const TokenRanges parts = ranges_of(context, tokens);
  saved.reference(kX, x);
  const TensorView logits = saved.keep(context.arena, kLogits, type, {tokens, options_.experts});
  const TensorView chosen = saved.keep(context.arena, kChosen, DType::Int32, {tokens, options_.chosen});
  const TensorView shares = saved.keep(context.arena, kWeights, type, {tokens, options_.chosen});
  const TensorView order = saved.keep(context.arena, kOrder, DType::Int32, {rows});
  const TensorView places = saved.keep(context.arena, kPlaces, DType::Int32, {tokens, options_.chosen});
  const TensorView ends =
      saved.keep(context.arena, kEnds, DType::Int32, {options_.experts, static_cast<int64_t>(parts.ranges.size())});
  context.kernels.matmul(
      {.a = as_rows(x), .b = weights[kRouter], .out = logits, .transpose_b = true, .bias = of_biases(weights, kRouterBias)});
  context.kernels.choose_experts({.logits = logits,
                                  .bias = options_.correction_bias ? weights[bias_] : ConstTensorView{},
                                  .chosen = chosen,
                                  .weights = shares,
                                  .rule = options_.rule});
  context.kernels.order_by_expert({.chosen = chosen, .order = order, .places = places, .ends = ends, .ranges = parts.ranges});
  if (!context.expert_tokens.absent())
    context.kernels.count_rows({.ends = ends, .counts = context.expert_tokens, .accumulate = true});
}

// Everything up to the input of down.
void ExpertMlp::activate(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  const ExpertWork experts = work(context, weights);
  const int64_t rows = saved[kOrder].elements();
  const TensorView wide = saved.keep(context.arena, kWide, x.dtype, {rows, 2 * experts.width()});
  const TensorView activated = saved.keep(context.arena, kActivated, x.dtype, {rows, experts.width()});
  LowRows low;
  if (ranks_.gate_up > 0) low.gate_up = saved.keep(context.arena, kGateUpLow, x.dtype, {rows, ranks_.gate_up});
  if (ranks_.down > 0) low.down = saved.keep(context.arena, kDownLow, x.dtype, {rows, ranks_.down});
  const ScopedTensor x_rows = gathered(context, x, saved[kOrder]);
  experts.activate(own_rows(context, x_rows, saved), wide, activated, low);
}

void ExpertMlp::compute_on_ranks(Context& context, const comm::RankAxis& ranks, Weights weights, ConstTensorView x,
                                 const RowSum& sum, const Saved& saved) const {
  const TensorView out = sum.partial();
  const ExpertWork experts = work(context, weights);
  const int64_t rows = saved[kOrder].elements(), most = most_rows(x.shape.rows(), ranks.size()), hidden = options_.hidden;
  ExpertExchange exchange(context, ranks, saved[kEnds], rows, most);
  const ScopedTensor x_rows = gathered(context, x, saved[kOrder]);
  const ScopedTensor row_weights = gathered(context, saved[kWeights].reshaped({rows, 1}), saved[kOrder]);
  const RowNumbers numbers(context, most);
  const ScopedTensor x_there(context.arena, x.dtype, {most, hidden}), result(context.arena, out.dtype, {most, hidden});
  const ScopedTensor weights_there(context.arena, row_weights.view().dtype, {most, 1});
  const ScopedTensor wide(context.arena, x.dtype, {most, 2 * experts.width()});
  const ScopedTensor activated(context.arena, x.dtype, {most, experts.width()});
  const LowMemory low(context, ranks_, x.dtype, most);
  const ScopedTensor parts_there(context.arena, x.dtype, {ranks_.down > 0 ? most : 0, hidden});
  for (int round = 0; round < exchange.rounds(); ++round) {
    const RowRange sent = exchange.sent(round);
    const int64_t count = exchange.received(round);
    const ExpertRows there{exchange.send(round, first_rows(x_rows, sent), x_there), exchange.ends(round),
                           exchange.send(round, first_rows(row_weights, sent), weights_there), numbers.first(count)};
    experts.activate(there, wide.view().row_range(0, count), activated.view().row_range(0, count), low);
    experts.apply_down(activated.view().row_range(0, count), there.ends, result.view().row_range(0, count));
    if (ranks_.down > 0 && sum.adds_parts()) {
      const TensorView part = parts_there.view().row_range(0, count);
      experts.apply_down_adapter(LowRows(low).down, there.ends, part);
      return_part(exchange, round, sum, part, result.view().row_range(0, count));
    }
    exchange.send_back(round, result.view().row_range(0, count), out.row_range(sent.first, sent.count));
  }
}

void ExpertMlp::return_part(ExpertExchange& exchange, int round, const RowSum& sum, ConstTensorView part, TensorView rows) {
  if (sum.parts().absent()) return sum.add_part(part, rows);
  const RowRange sent = exchange.sent(round);
  exchange.send_back(round, part, sum.parts().row_range(sent.first, sent.count));
}

void ExpertMlp::add_shared(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  const Weights of_shared = sub_layers_.of(shared_index_, weights);
  Saved& saved_of_shared = saved.child(shared_index_);
  if (options_.shared_gate) {
    apply_gated(context, weights, x, saved);
    if (!y.absent()) context.kernels.add_gated({.x = as_rows(saved[kShared]), .logits = saved[kGateLogits], .y = as_rows(y)});
  } else if (y.absent()) {
    shared_->forward_again(context, of_shared, x, saved_of_shared);
  } else {
    const ScopedTensor out(context.arena, y.dtype, y.shape);
    shared_->forward(context, of_shared, x, out, saved_of_shared);
    context.kernels.add(out, y);
  }
}

// The gate multiplies the complete rows of the shared MLP, as every tensor rank has them: its gradient is their product with
// dy.
void ExpertMlp::apply_gated(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  const TensorView logits = saved.keep(context.arena, kGateLogits, kernels::statistics_type(x.dtype), {x.shape.rows(), 1});
  context.kernels.matmul({.a = as_rows(x), .b = weights[gate_], .out = logits, .transpose_b = true});
  const TensorView out = saved.keep(context.arena, kShared, x.dtype, x.shape);
  shared_->forward(context, sub_layers_.of(shared_index_, weights), x, out, saved.child(shared_index_));
}

void ExpertMlp::run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  Context& context = pass.context();
  Saved& saved = pass.saved();
  saved.reference(kDy, dy);
  const IntermediateGradient dlogits(pass, kDlogits, dy.dtype, saved[kLogits].shape);
  const ScopedTensor dweights(context.arena, saved[kWeights].dtype, saved[kWeights].shape);
  if (const comm::RankAxis* ranks = expert_axis(context))
    through_experts_on_ranks(pass, *ranks, dy, dx, dweights);
  else
    through_experts(pass, dy, dx, dweights);
  through_choice(pass, dy, dweights, dlogits);
  context.kernels.matmul({.a = dlogits, .b = pass.weights()[kRouter], .out = as_rows(dx), .accumulate = true});
  if (pass.fused()) make_gradient(context, pass.gradients()[kRouter], dlogits, saved);
  if (pass.fused() && options_.bias) make_bias_gradients(context, pass.gradients(), dlogits, saved);
  if (!shared_) return;
  options_.shared_gate ? through_gate(pass, dy, dx) : through_shared(pass, dy, dx);
}

void ExpertMlp::through_experts(const BackwardPass& pass, ConstTensorView dy, TensorView dx, TensorView dweights) const {
  Context& context = pass.context();
  Saved& saved = pass.saved();
  const ExpertWork experts = work(context, pass.weights());
  const int64_t rows = saved[kOrder].elements();
  const IntermediateGradient dwide(pass, kDwide, dy.dtype, saved[kWide].shape);
  const IntermediateGradient dlow_gate_up(pass, kGateUpDlow, dy.dtype, {ranks_.gate_up > 0 ? rows : 0, ranks_.gate_up});
  const IntermediateGradient dlow_down(pass, kDownDlow, dy.dtype, {ranks_.down > 0 ? rows : 0, ranks_.down});
  const LowRows dlow{dlow_gate_up, dlow_down};
  {
    const ScopedTensor dy_rows = gathered(context, dy, saved[kOrder]);
    experts.begin_backward(dy_rows, saved[kEnds], dlow);
    if (pass.fused()) make_down_gradients(context, pass.gradients(), dy_rows, dlow.down, saved);
    pass.done_with(kActivated);
    const ScopedTensor dactivated(context.arena, dy.dtype, {rows, experts.width()});
    experts.backward(own_rows(context, {}, saved), dy_rows, saved[kWide], dactivated, dwide, dweights, dlow);
    pass.done_with(kWide);
  }
  RowSum sum(context, rows, dx, ranks_.gate_up > 0);
  experts.backward_input(dwide, saved[kEnds], sum.partial());
  if (ranks_.gate_up > 0)
    add_part(context, sum, [&](TensorView part) { experts.backward_input_adapter(dlow.gate_up, saved[kEnds], part); });
  sum.start(saved[kPlaces]);
  if (pass.fused()) make_gate_up_gradients(context, pass.gradients(), dwide, dlow.gate_up, saved);
  sum.finish();
}

// Each round is one rank's rows, from the work of forward on, which was not kept.
void ExpertMlp::through_experts_on_ranks(const BackwardPass& pass, const comm::RankAxis& ranks, ConstTensorView dy,
                                         TensorView dx, TensorView dweights) const {
  if (!pass.fused())
    throw std::logic_error("experts: ranks that share them cannot compute gradients of weights later than those of inputs");
  Context& context = pass.context();
  const Saved& saved = pass.saved();
  const ExpertWork experts = work(context, pass.weights());
  const int64_t rows = saved[kOrder].elements(), most = most_rows(saved[kX].shape.rows(), ranks.size());
  const int64_t hidden = options_.hidden, width = experts.width(), own = options_.experts / ranks.size();
  const int64_t leaves = ranges_of(context, saved[kX].shape.rows()).leaves;
  RoundGradient of_gate_up(context, ranks, pass.gradients()[kGateUp]), of_down(context, ranks, pass.gradients()[kDown]);
  std::optional<AdapterRounds> of_gate_up_adapter, of_down_adapter;
  if (ranks_.gate_up > 0) of_gate_up_adapter.emplace(context, ranks, pass.gradients(), gate_up_adapter_);
  if (ranks_.down > 0) of_down_adapter.emplace(context, ranks, pass.gradients(), down_adapter_);
  std::optional<RoundGradient> of_bias;
  ScopedTensor ones;
  if (options_.bias) {
    of_bias.emplace(context, ranks, pass.gradients()[kGateUpBias]);
    ones = ones_of_rows(context, dy.dtype, most);
  }
  ExpertExchange exchange(context, ranks, saved[kEnds], rows, most);
  RowSum sum(context, rows, dx, ranks_.gate_up > 0);
  const TensorView dx_rows = sum.partial();
  const ScopedTensor x_rows = gathered(context, saved[kX], saved[kOrder]), dy_rows = gathered(context, dy, saved[kOrder]);
  const ScopedTensor row_weights = gathered(context, saved[kWeights].reshaped({rows, 1}), saved[kOrder]);
  const DType type = dweights.dtype;
  const ScopedTensor dweights_of_rows(context.arena, type, {rows, 1});
  {
    const RowNumbers numbers(context, most);
    const ScopedTensor x_there(context.arena, dy.dtype, {most, hidden}), dy_there(context.arena, dy.dtype, {most, hidden});
    const ScopedTensor weights_there(context.arena, type, {most, 1}), dweights_there(context.arena, type, {most, 1});
    const ScopedTensor wide(context.arena, dy.dtype, {most, 2 * width}), dwide(context.arena, dy.dtype, {most, 2 * width});
    const ScopedTensor activated(context.arena, dy.dtype, {most, width}),
        dx_there(context.arena, dx_rows.dtype, {most, hidden});
    const LowMemory low_memory(context, ranks_, dy.dtype, most), dlow_memory(context, ranks_, dy.dtype, most);
    const LowRows low = low_memory, dlow = dlow_memory;
    const ScopedTensor parts_there(context.arena, dy.dtype, {ranks_.gate_up > 0 ? most : 0, hidden});
    for (int round = 0; round < exchange.rounds(); ++round) {
      const RowRange sent = exchange.sent(round);
      const int64_t count = exchange.received(round);
      const auto of_count = [&](const ScopedTensor& tensor) { return tensor.view().row_range(0, count); };
      const bool last = round + 1 == exchange.rounds();
      const ExpertRows there{exchange.send(round, first_rows(x_rows, sent), x_there), exchange.ends(round),
                             exchange.send(round, first_rows(row_weights, sent), weights_there), numbers.first(count), leaves};
      const ConstTensorView dy_of_there = exchange.send(round, first_rows(dy_rows, sent), dy_there);
      experts.activate(there, of_count(wide), of_count(activated), low);
      experts.begin_backward(dy_of_there, there.ends, dlow);
      make_down_gradient(context, of_down.begin(), own, options_.feed_forward, there, dy_of_there, of_count(activated));
      of_down.end(last);
      if (of_down_adapter) {
        make_down_adapter_gradients(context, of_down_adapter->begin(), own, options_.feed_forward, there, dy_of_there,
                                    of_count(activated), low.down, dlow.down);
        of_down_adapter->end(last);
      }
      // Nothing reads `activated` any more.
      experts.backward(there, dy_of_there, of_count(wide), of_count(activated), of_count(dwide), of_count(dweights_there),
                       dlow);
      experts.backward_input(of_count(dwide), there.ends, of_count(dx_there));
      make_gate_up_gradient(context, of_gate_up.begin(), own, options_.feed_forward, there, of_count(dwide));
      of_gate_up.end(last);
      if (of_bias) {
        make_gate_up_bias_gradient(context, of_bias->begin(), own, there, of_count(dwide), of_count(ones));
        of_bias->end(last);
      }
      if (of_gate_up_adapter) {
        make_gate_up_adapter_gradients(context, of_gate_up_adapter->begin(), own, options_.feed_forward, there, of_count(dwide),
                                       low.gate_up, dlow.gate_up);
        of_gate_up_adapter->end(last);
      }
      if (of_gate_up_adapter && sum.adds_parts()) {
        experts.backward_input_adapter(dlow.gate_up, there.ends, of_count(parts_there));
        return_part(exchange, round, sum, of_count(parts_there), of_count(dx_there));
      }
      exchange.send_back(round, of_count(dx_there), dx_rows.row_range(sent.first, sent.count));
      exchange.send_back(round, of_count(dweights_there), dweights_of_rows.view().row_range(sent.first, sent.count));
    }
  }
  sum.start(saved[kPlaces]);
  // The row of each choice.
  context.kernels.gather_rows(
      {.x = dweights_of_rows, .order = saved[kPlaces].reshaped({rows}), .out = dweights.reshaped({rows, 1})});
  sum.finish();
}

// What chose the experts of a token sees it whole on every tensor rank, but each of these has only a part of its output.
void ExpertMlp::through_choice(const BackwardPass& pass, ConstTensorView dy, TensorView dweights, TensorView dlogits) const {
  Context& context = pass.context();
  const Saved& saved = pass.saved();
  if (const comm::RankAxis* axis = split_axis(context)) tensor_parallel::sum_over(*axis, dweights);
  if (options_.bias) add_gradients_of_weights(pass, dy, dweights);
  const comm::RankAxis* others = context.axes[Axis::Context];
  const ConstTensorView targets = targets_of_tokens(context, saved[kLogits].shape[0]);
  const ScopedTensor counts(context.arena, DType::Int64, {options_.balance > 0 ? options_.experts + 1 : 0});
  if (options_.balance > 0) {
    context.kernels.count_choices({.chosen = saved[kChosen], .targets = targets, .counts = counts});
    if (others) tensor_parallel::reduce_over(*others, counts);
  }
  context.kernels.choose_experts_backward({.logits = saved[kLogits],
                                           .chosen = saved[kChosen],
                                           .dweights = dweights,
                                           .counts = options_.balance > 0 ? ConstTensorView(counts) : ConstTensorView(),
                                           .targets = targets,
                                           .dlogits = dlogits,
                                           .rule = options_.rule,
                                           .balance = options_.balance,
                                           .z_loss = options_.z_loss,
                                           .gradient_scale = context.gradient_scale});
}

void ExpertMlp::through_shared(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  const ScopedTensor of_shared(pass.context().arena, dx.dtype, dx.shape);
  pass.through(*shared_, sub_layers_, shared_index_, dy, of_shared);
  pass.context().kernels.add(of_shared, dx);
}

void ExpertMlp::through_gate(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  Context& context = pass.context();
  const IntermediateGradient dlogits(pass, kDgateLogits, dy.dtype, pass.saved()[kGateLogits].shape);
  const IntermediateGradient dshared(pass, kDshared, dy.dtype, dy.shape);
  context.kernels.add_gated_backward({.dy = as_rows(dy),
                                      .x = as_rows(pass.saved()[kShared]),
                                      .logits = pass.saved()[kGateLogits],
                                      .dx = as_rows(dshared.view()),
                                      .dlogits = dlogits});
  pass.done_with(kShared);
  context.kernels.matmul({.a = dlogits, .b = pass.weights()[gate_], .out = as_rows(dx), .accumulate = true});
  if (pass.fused()) make_gradient(context, pass.gradients()[gate_], dlogits, pass.saved());
  through_shared(pass, dshared, dx);
}

void ExpertMlp::make_down_gradients(Context& context, Gradients gradients, ConstTensorView dy_rows, ConstTensorView dlow,
                                    const Saved& saved) const {
  const ExpertRows rows = own_rows(context, {}, saved);
  make_down_gradient(context, gradients[kDown], options_.experts, options_.feed_forward, rows, dy_rows, saved[kActivated]);
  if (ranks_.down > 0)
    make_down_adapter_gradients(context, {gradients[down_adapter_], gradients[down_adapter_ + 1]}, options_.experts,
                                options_.feed_forward, rows, dy_rows, saved[kActivated], saved[kDownLow], dlow);
}

void ExpertMlp::make_gate_up_gradients(Context& context, Gradients gradients, ConstTensorView dwide, ConstTensorView dlow,
                                       const Saved& saved) const {
  const ScopedTensor x_rows = gathered(context, saved[kX], saved[kOrder]);
  const ExpertRows rows = own_rows(context, x_rows, saved);
  make_gate_up_gradient(context, gradients[kGateUp], options_.experts, options_.feed_forward, rows, dwide);
  if (options_.bias)
    make_gate_up_bias_gradient(context, gradients[kGateUpBias], options_.experts, rows, dwide,
                               ones_of_rows(context, dwide.dtype, dwide.shape[0]));
  if (ranks_.gate_up > 0)
    make_gate_up_adapter_gradients(context, {gradients[gate_up_adapter_], gradients[gate_up_adapter_ + 1]}, options_.experts,
                                   options_.feed_forward, rows, dwide, saved[kGateUpLow], dlow);
}

void ExpertMlp::make_gradient(Context& context, const Gradient& gradient, ConstTensorView dlogits, const Saved& saved) {
  if (gradient.view.absent()) return;
  context.kernels.matmul(
      {.a = dlogits, .b = as_rows(saved[kX]), .out = gradient.view, .transpose_a = true, .accumulate = gradient.accumulate});
}

void ExpertMlp::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  run_backward(BackwardPass(context, weights, saved), dy, dx);
}

void ExpertMlp::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                         Saved& saved) const {
  run_backward(BackwardPass(context, weights, gradients, saved), dy, dx);
}

void ExpertMlp::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  const ScopedTensor dy_rows = gathered(context, saved[kDy], saved[kOrder]);
  make_down_gradients(context, gradients, dy_rows, ranks_.down > 0 ? saved[kDownDlow] : TensorView{}, saved);
  make_gate_up_gradients(context, gradients, saved[kDwide], ranks_.gate_up > 0 ? saved[kGateUpDlow] : TensorView{}, saved);
  make_gradient(context, gradients[kRouter], saved[kDlogits], saved);
  if (options_.bias) make_bias_gradients(context, gradients, saved[kDlogits], saved);
  if (options_.shared_gate) make_gradient(context, gradients[gate_], saved[kDgateLogits], saved);
  if (shared_) shared_->backward_weight(context, sub_layers_.of(shared_index_, gradients), saved.child(shared_index_));
}

}  // namespace trivet::model
