#include "model/attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/kernels.h"
#include "model/projection_norm.h"
#include "model/qk_norm.h"
#include "tensor_parallel/token_gather.h"

namespace trivet::model {

using tensor_parallel::all_tokens;
using tensor_parallel::split_axis;
namespace {

ConstTensorView documents_of(const Context& context) {
  return context.microbatch ? context.microbatch->documents : ConstTensorView();
}
ConstTensorView positions_in_documents(const Context& context) {
  return context.microbatch ? context.microbatch->positions : ConstTensorView();
}

// The axis of context ranks that exchange heads, and of those that keep their own tokens; empty if there are none.
std::optional<comm::RankAxis> exchange_axis(const Context& context) {
  const comm::RankAxis* const axis = context.axes[Axis::Context];
  return axis ? axis->exchanging_heads() : std::nullopt;
}
std::optional<comm::RankAxis> own_tokens_axis(const Context& context) {
  const comm::RankAxis* const axis = context.axes[Axis::Context];
  return axis ? axis->keeping_tokens() : std::nullopt;
}

Attention::Options with_head_size(Attention::Options options) {
  if (options.head_size == 0) options.head_size = options.hidden / options.heads;
  return options;
}

Linear make_out(const Attention::Options& options) {
  const int64_t width = options.heads * options.latent.value_size_of(options.head_size);
  return Linear({.in = width,
                 .out = options.hidden,
                 .bias = options.bias || options.out_bias,
                 .init_deviation = options.init_deviation_out,
                 .split = {1, {width}, {options.heads}},
                 .adapters = options.out_adapters});
}

std::unique_ptr<Layer> make_projections(const Attention::Options& options) {
  if (options.latent.enabled())
    return std::make_unique<LatentQkv>(LatentQkv::Options{.hidden = options.hidden,
                                                          .heads = options.heads,
                                                          .head_size = options.head_size,
                                                          .sizes = options.latent,
                                                          .init_deviation = options.init_deviation,
                                                          .adapters = options.latent_adapters});
  return std::make_unique<QkvProjection>(QkvProjection::Options{.hidden = options.hidden,
                                                                .heads = options.heads,
                                                                .key_value_heads = options.key_value_heads,
                                                                .head_size = options.head_size,
                                                                .bias = options.bias || options.qkv_bias,
                                                                .init_deviation = options.init_deviation,
                                                                .adapters = options.qkv_adapters});
}

std::unique_ptr<Layer> make_qk_norm(const Attention::Options& options) {
  const QkNorm::Options norm{.heads = options.heads,
                             .key_value_heads = options.key_value_heads,
                             .head_size = options.head_size,
                             .epsilon = options.norm_epsilon};
  if (options.whole_norm) return std::make_unique<ProjectionNorm>(norm);
  return options.qk_norm ? std::make_unique<QkNorm>(norm) : nullptr;
}

}  // namespace

Attention::Attention(std::string name, const Options& options)
    : options_(with_head_size(options)),
      dropout_name_(std::move(name) + ".probabilities"),
      qkv_(make_projections(options_)),
      out_(make_out(options_)),
      qk_norm_(make_qk_norm(options_)) {
  if (options_.rotary_base > 0) {
    const int64_t pairs = (options_.rotated > 0 ? options_.rotated : options_.head_size) / 2;
    const auto frequencies = [&](int64_t length) {
      return rotary_frequencies(options_.rotary_base, pairs, options_.rotary_scaling, length);
    };
    frequencies_ = frequencies(options_.rotary_scaling.original_length);
    long_frequencies_ = frequencies(options_.rotary_scaling.original_length + 1);
  }
  qkv_index_ = sub_layers_.add(options_.latent.enabled() ? "" : "qkv", *qkv_);
  out_index_ = sub_layers_.add("out", out_);
  if (qk_norm_) qk_norm_index_ = sub_layers_.add("", *qk_norm_);
  if (!options_.sinks) return;
  sinks_ = sub_layers_.parameters().size();
  sub_layers_.add_own({.name = "sinks",
                       .shape = {options_.heads},
                       .init = {Init::Kind::Zeros, 0},
                       .split = {0, {options_.heads}, {}},
                       .decay = false});
}

HeadRange Attention::heads_of(const Context& context) const {
  return head_range(options_.heads, options_.key_value_heads, split_axis(context));
}

// With more context ranks than key/value heads, neighbours have the same one.
HeadRange Attention::core_heads_of(const Context& context) const {
  HeadRange heads = heads_of(context);
  const std::optional<comm::RankAxis> sequence = exchange_axis(context);
  if (!sequence) return heads;
  const int64_t ranks = sequence->size();
  if (heads.count % ranks != 0)
    throw ConfigError(fmt::format(
        "{}: {} ranks do not divide the {} heads of attention; use a divisor of {}, or "
        "parallel.context_kind \"gather\"",
        own_tokens_axis(context) ? "parallel.context_ulysses" : "parallel.context", ranks, heads.count, heads.count));
  heads.count /= ranks;
  heads.first += sequence->rank() * heads.count;
  heads.first_key_value += sequence->rank() * heads.key_value_count / ranks;
  heads.key_value_count = std::max<int64_t>(heads.key_value_count / ranks, 1);
  return heads;
}

Shape Attention::own_shape(const Context& context, const Shape& x) const {
  const HeadRange heads = heads_of(context);
  return {x[0], all_tokens(context, x)[1], (heads.count + 2 * heads.key_value_count) * head_size()};
}

void Attention::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  const Shape own = own_shape(context, x.shape);
  const std::optional<comm::RankAxis> sequence = exchange_axis(context);
  const int64_t ranks = sequence ? sequence->size() : 1;
  const HeadRange heads = core_heads_of(context);
  const int64_t width = (heads.count + 2 * heads.key_value_count) * head_size();
  const TensorView qkv = saved.keep(context.arena, kQkv, x.dtype, {own[0], own[1] * ranks, width});
  if (sequence) {
    const ScopedTensor own_qkv(context.arena, x.dtype, own);
    make_qkv(context, weights, x, own_qkv, saved);
    const auto segments = segments_of_qkv(context);
    HeadExchange(context, *sequence, segments).to_heads(own_qkv, qkv);
  } else {
    make_qkv(context, weights, x, qkv, saved);
  }
  if (!own_tokens_axis(context)) rotate(context, qkv, false);
  Saved* keeper = context.recompute_attention ? nullptr : &saved;
  const Core core = run_core(context, weights, qkv, keeper, keeper);
  out_.forward(context, sub_layers_.of(out_index_, weights), core.projected(), y, saved.child(out_index_));
}

void Attention::make_qkv(Context& context, Weights weights, ConstTensorView x, TensorView qkv, Saved& saved) const {
  const TensorView projected = qk_norm_ ? saved.keep(context.arena, kProjected, qkv.dtype, qkv.shape) : qkv;
  qkv_->forward(context, sub_layers_.of(qkv_index_, weights), x, projected, saved.child(qkv_index_));
  if (qk_norm_)
    qk_norm_->forward(context, sub_layers_.of(qk_norm_index_, weights), projected, qkv, saved.child(qk_norm_index_));
}

std::array<Heads, 3> Attention::segments_of_qkv(const Context& context) const {
  const HeadRange heads = heads_of(context);
  const Heads keys{heads.key_value_count, head_size()};
  return {Heads{heads.count, head_size()}, keys, keys};
}

void Attention::through_qkv(const BackwardPass& pass, ConstTensorView dqkv, TensorView dx) const {
  if (!qk_norm_) return pass.through(*qkv_, sub_layers_, qkv_index_, dqkv, dx);
  const IntermediateGradient dprojected(pass, kDprojected, dqkv.dtype, dqkv.shape);
  pass.through(*qk_norm_, sub_layers_, qk_norm_index_, dqkv, dprojected);
  pass.through(*qkv_, sub_layers_, qkv_index_, dprojected, dx);
}

ConstTensorView Attention::sinks_of_core(const Context& context, Weights weights) const {
  const HeadRange heads = core_heads_of(context);
  return weights[sinks_].slice(heads.first - heads_of(context).first, heads.count);
}

Attention::Core Attention::run_core(Context& context, Weights weights, ConstTensorView qkv, Saved* keeper_of_out,
                                    Saved* keeper_of_statistics) const {
  const HeadRange heads = core_heads_of(context);
  const int64_t batch = qkv.shape[0], sequence = qkv.shape[1], width = heads.count * head_size();
  const std::optional<comm::RankAxis> ranks = exchange_axis(context);
  // Nobody reads the core's own result after it is exchanged or narrowed but the core's backward, as its statistics.
  Saved* const keeper_of_core = ranks || narrow_values() ? keeper_of_statistics : keeper_of_out;
  Core core{{context.arena, keeper_of_core, kOut, qkv.dtype, {batch, sequence, width}},
            {context.arena, keeper_of_statistics, kLogSumExp, statistics_dtype(qkv.dtype), {batch, heads.count, sequence}},
            std::nullopt,
            std::nullopt};
  run_core_forward(context, {qkv, core.out, core.log_sum_exp});
  if (options_.sinks)
    context.kernels.attention_sinks(
        {.sinks = sinks_of_core(context, weights), .out = core.out, .log_sum_exp = core.log_sum_exp});
  const int64_t own_heads = heads_of(context).count, own_tokens = sequence / (ranks ? ranks->size() : 1);
  if (ranks) {
    core.own_out.emplace(context.arena, narrow_values() ? nullptr : keeper_of_out, kOwnOut, qkv.dtype,
                         Shape{batch, own_tokens, own_heads * head_size()});
    const Heads results{own_heads, head_size()};
    HeadExchange(context, *ranks, {&results, 1}).to_tokens(core.out, *core.own_out);
  }
  if (!narrow_values()) return core;
  const TensorView wide = core.projected();
  core.values.emplace(context.arena, keeper_of_out, kValues, qkv.dtype, Shape{batch, own_tokens, own_heads * value_size()});
  copy_heads(context, wide, *core.values, own_heads);
  core.own_out.reset();
  return core;
}

void Attention::run_core_forward(Context& context, const OwnTensors& own) const {
  const int64_t tokens = own.qkv.shape[1];
  if (const std::optional<comm::RankAxis> axis = own_tokens_axis(context)) {
    const CoreOptions options = core_options(context, tokens * axis->size());
    return axis->context_kind == ContextKind::Ring ? RingAttention(context, *axis, options).forward(own)
                                                   : GatheredAttention(context, *axis, options).forward(own);
  }
  kernels::Attention call = core_call(context, tokens);
  call.qkv = own.qkv, call.out = own.out, call.log_sum_exp = own.log_sum_exp;
  context.kernels.attention(call);
}

// Keeps the result, which the output projection's weight gradient reads; nothing reads log_sum_exp after this pass.
Attention::Core Attention::core_again(const BackwardPass& pass) const {
  Core core = run_core(pass.context(), pass.weights(), pass.saved()[kQkv], pass.keeper(), nullptr);
  out_.renew_input(core.projected(), pass.saved().child(out_index_));
  return core;
}

void Attention::run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  Context& context = pass.context();
  const Saved& saved = pass.saved();
  const std::optional<comm::RankAxis> sequence = exchange_axis(context);
  const TensorView qkv = saved[kQkv];
  const Shape own_dqkv = own_shape(context, dy.shape);
  std::optional<IntermediateGradient> dqkv;
  if (!sequence) dqkv.emplace(pass, kDqkv, dy.dtype, own_dqkv);
  {
    std::optional<Core> again;
    if (context.recompute_attention) again = core_again(pass);
    ScopedTensor dout(context.arena, dy.dtype, {own_dqkv[0], own_dqkv[1], heads_of(context).count * head_size()});
    gradient_of_core(pass, dy, dout);
    for (int slot : {kOwnOut, kValues}) pass.done_with(slot);
    const TensorView out = again ? again->out.view() : saved[kOut];
    ScopedTensor dout_of_core, dqkv_of_core;
    if (sequence) {
      const Heads results{heads_of(context).count, head_size()};
      dout_of_core = ScopedTensor(context.arena, dy.dtype, out.shape);
      HeadExchange(context, *sequence, {&results, 1}).to_heads(dout, dout_of_core);
      dout.reset();
      dqkv_of_core = ScopedTensor(context.arena, dy.dtype, qkv.shape);
    }
    const TensorView to = sequence ? dqkv_of_core.view() : dqkv->view();
    run_core_backward(pass, again ? &*again : nullptr, sequence ? dout_of_core : dout, to);
    if (options_.sinks) {
      const IntermediateGradient dsinks(pass, kDsinks, dy.dtype, {own_dqkv[0], own_dqkv[1], heads_of(context).count});
      make_sink_gradients(pass, sequence ? dout_of_core : dout, out, again ? again->log_sum_exp.view() : saved[kLogSumExp],
                          dsinks);
      if (pass.fused()) sum_sink_gradients(context, pass.gradients(), dsinks);
    }
    for (int slot : {kQkv, kOut, kLogSumExp}) pass.done_with(slot);
    dout.reset(), dout_of_core.reset(), again.reset();
    if (!own_tokens_axis(context)) rotate(context, to, true);
    if (sequence) {
      const auto segments = segments_of_qkv(context);
      dqkv.emplace(pass, kDqkv, dy.dtype, own_dqkv);
      HeadExchange(context, *sequence, segments).to_tokens(to, *dqkv);
    }
  }
  through_qkv(pass, *dqkv, dx);
}

// Makes the gradient of the core's results, of own tokens.
void Attention::gradient_of_core(const BackwardPass& pass, ConstTensorView dy, TensorView dout) const {
  if (!narrow_values()) return pass.through(out_, sub_layers_, out_index_, dy, dout);
  Context& context = pass.context();
  const int64_t heads = heads_of(context).count;
  const ScopedTensor dvalues(context.arena, dout.dtype, {dout.shape[0], dout.shape[1], heads * value_size()});
  pass.through(out_, sub_layers_, out_index_, dy, dvalues);
  copy_heads(context, dvalues, dout, heads);
}

// The part of each token in the gradients of sinks; if ranks exchange heads, of own tokens.
void Attention::make_sink_gradients(const BackwardPass& pass, ConstTensorView dout, ConstTensorView out,
                                    ConstTensorView log_sum_exp, TensorView dsinks) const {
  Context& context = pass.context();
  const std::optional<comm::RankAxis> ranks = exchange_axis(context);
  ScopedTensor of_core;
  if (ranks) of_core = ScopedTensor(context.arena, dsinks.dtype, {out.shape[0], out.shape[1], core_heads_of(context).count});
  context.kernels.attention_sinks_backward({.dout = dout,
                                            .out = out,
                                            .log_sum_exp = log_sum_exp,
                                            .sinks = sinks_of_core(context, pass.weights()),
                                            .dsinks = ranks ? of_core.view() : dsinks});
  if (!ranks) return;
  const Heads sinks{heads_of(context).count, 1};
  HeadExchange(context, *ranks, {&sinks, 1}).to_tokens(of_core, dsinks);
}

void Attention::sum_sink_gradients(Context& context, Gradients gradients, ConstTensorView dsinks) const {
  const Gradient& gradient = gradients[sinks_];
  if (gradient.view.absent()) return;
  context.kernels.bias_gradient({.dy = as_rows(dsinks), .dbias = gradient.view, .accumulate = gradient.accumulate});
}

// `again`: the core's results if they were not kept.
void Attention::run_core_backward(const BackwardPass& pass, const Core* again, ConstTensorView dout, TensorView dqkv) const {
  Context& context = pass.context();
  const Saved& saved = pass.saved();
  const TensorView qkv = saved[kQkv], out = again ? again->out.view() : saved[kOut],
                   log_sum_exp = again ? again->log_sum_exp.view() : saved[kLogSumExp];
  if (const std::optional<comm::RankAxis> axis = own_tokens_axis(context)) {
    const OwnTensors own{qkv, out, log_sum_exp};
    const CoreOptions options = core_options(context, qkv.shape[1] * axis->size());
    return axis->context_kind == ContextKind::Ring ? RingAttention(context, *axis, options).backward(own, dout, dqkv)
                                                   : GatheredAttention(context, *axis, options).backward(own, dout, dqkv);
  }
  const HeadRange heads = core_heads_of(context);
  context.kernels.attention_backward({.dout = dout,
                                      .qkv = qkv,
                                      .out = out,
                                      .log_sum_exp = log_sum_exp,
                                      .dqkv = dqkv,
                                      .heads = heads.count,
                                      .key_value_heads = heads.key_value_count,
                                      .causal = options_.causal,
                                      .window = options_.window,
                                      .scale = options_.score_scale,
                                      .soft_cap = options_.soft_cap,
                                      .dropout = dropout(context, dqkv.shape[1]),
                                      .documents = documents_of(context)});
}

// Returns the arguments of the core's kernel but its tensors, for sequences of `tokens`.
kernels::Attention Attention::core_call(const Context& context, int64_t tokens) const {
  const HeadRange heads = core_heads_of(context);
  return {.heads = heads.count,
          .key_value_heads = heads.key_value_count,
          .causal = options_.causal,
          .window = options_.window,
          .scale = options_.score_scale,
          .soft_cap = options_.soft_cap,
          .dropout = dropout(context, tokens),
          .documents = documents_of(context)};
}

// Returns the arguments for context ranks that keep their own tokens, in sequences of `tokens`.
CoreOptions Attention::core_options(const Context& context, int64_t tokens) const {
  const ContextKind kind = context.axes[Axis::Context]->context_kind;
  if (kind != ContextKind::Gather && options_.window > 0 && options_.window < tokens)
    throw ConfigError(
        fmt::format("parallel.context_kind: \"{}\" is not accepted with windows, and a layer has one of {} "
                    "tokens; use \"ulysses\" or \"gather\"",
                    name_of(kind), options_.window));
  return {core_call(context, tokens), rotary(context, tokens), head_size()};
}

void Attention::rotate(Context& context, TensorView qkv, bool backward) const {
  kernels::Rotary call = rotary(context, qkv.shape[1]);
  if (call.frequencies.empty()) return;
  call.qkv = qkv, call.backward = backward;
  context.kernels.rotary(call);
}

// Returns the arguments of rotary but its tensor, for sequences of `tokens`.
kernels::Rotary Attention::rotary(const Context& context, int64_t tokens) const {
  const HeadRange heads = core_heads_of(context);
  const int64_t length = context.present_tokens > 0 ? context.present_tokens : tokens;
  return {.heads = heads.count,
          .key_value_heads = heads.key_value_count,
          .frequencies = length > options_.rotary_scaling.original_length ? long_frequencies_ : frequencies_,
          .magnitude = magnitude_of(options_.rotary_scaling),
          .positions = context.positions.absent() ? positions_in_documents(context) : context.positions,
          .query_growth = options_.query_growth,
          .query_step = options_.query_step};
}

// A head gets the same random draws on whichever rank it is.
kernels::DropoutSite Attention::dropout(const Context& context, int64_t sequence) const {
  kernels::DropoutSite site = dropout_site(context, dropout_name_, options_.dropout);
  site.first_element = core_heads_of(context).first * sequence * sequence;
  return site;
}

void Attention::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  run_backward(BackwardPass(context, weights, saved), dy, dx);
}

void Attention::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                         Saved& saved) const {
  run_backward(BackwardPass(context, weights, gradients, saved), dy, dx);
}

void Attention::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  if (options_.sinks) sum_sink_gradients(context, gradients, saved[kDsinks]);
  out_.backward_weight(context, sub_layers_.of(out_index_, gradients), saved.child(out_index_));
  if (qk_norm_) qk_norm_->backward_weight(context, sub_layers_.of(qk_norm_index_, gradients), saved.child(qk_norm_index_));
  qkv_->backward_weight(context, sub_layers_.of(qkv_index_, gradients), saved.child(qkv_index_));
}

}  // namespace trivet::model
