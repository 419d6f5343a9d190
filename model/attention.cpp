#include "model/attention.h"

#include "kernels/kernels.h"
#include "tensor_parallel/token_gather.h"

namespace trivet::model {

using tensor_parallel::all_tokens;
using tensor_parallel::split_axis;
namespace {

Attention::Options with_head_size(Attention::Options options) {
  if (options.head_size == 0) options.head_size = options.hidden / options.heads;
  return options;
}

Linear make_out(const Attention::Options& options) {
  const int64_t width = options.heads * options.head_size;
  return Linear({.in = width,
                 .out = options.hidden,
                 .bias = options.bias,
                 .init_deviation = options.init_deviation_out,
                 .split = {1, {width}, {options.heads}},
                 .adapters = options.out_adapters});
}

}  // namespace

Attention::Attention(std::string name, const Options& options)
    : options_(with_head_size(options)),
      dropout_name_(std::move(name) + ".probabilities"),
      qkv_({.hidden = options_.hidden,
            .heads = options_.heads,
            .key_value_heads = options_.key_value_heads,
            .head_size = options_.head_size,
            .bias = options_.bias || options_.qkv_bias,
            .init_deviation = options_.init_deviation,
            .adapters = options_.qkv_adapters}),
      out_(make_out(options_)) {
  if (options_.rotary_base > 0) {
    const int64_t pairs = (options_.rotated > 0 ? options_.rotated : options_.head_size) / 2;
    const auto frequencies = [&](int64_t length) {
      return rotary_frequencies(options_.rotary_base, pairs, options_.rotary_scaling, length);
    };
    frequencies_ = frequencies(options_.rotary_scaling.original_length);
    long_frequencies_ = frequencies(options_.rotary_scaling.original_length + 1);
  }
  qkv_index_ = sub_layers_.add("qkv", qkv_);
  out_index_ = sub_layers_.add("out", out_);
  if (!options_.qk_norm) return;
  qk_norm_.emplace(QkNorm::Options{.heads = options_.heads,
                                   .key_value_heads = options_.key_value_heads,
                                   .head_size = options_.head_size,
                                   .epsilon = options_.norm_epsilon});
  qk_norm_index_ = sub_layers_.add("", *qk_norm_);
}

void Attention::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  const HeadRange heads = qkv_.heads_of(split_axis(context));
  const int64_t width = (heads.count + 2 * heads.key_value_count) * head_size();
  const TensorView qkv = saved.keep(context.arena, kQkv, x.dtype, {x.shape[0], all_tokens(context, x.shape)[1], width});
  make_qkv(context, weights, x, qkv, saved);
  rotate(context, qkv, false);
  Saved* keeper = context.recompute_attention ? nullptr : &saved;
  const Core core = run_core(context, qkv, keeper, keeper);
  out_.forward(context, sub_layers_.of(out_index_, weights), core.out, y, saved.child(out_index_));
}

void Attention::make_qkv(Context& context, Weights weights, ConstTensorView x, TensorView qkv, Saved& saved) const {
  const TensorView projected = qk_norm_ ? saved.keep(context.arena, kProjected, qkv.dtype, qkv.shape) : qkv;
  qkv_.forward(context, sub_layers_.of(qkv_index_, weights), x, projected, saved.child(qkv_index_));
  if (qk_norm_)
    qk_norm_->forward(context, sub_layers_.of(qk_norm_index_, weights), projected, qkv, saved.child(qk_norm_index_));
}

void Attention::through_qkv(const BackwardPass& pass, ConstTensorView dqkv, TensorView dx) const {
  if (!qk_norm_) return pass.through(qkv_, sub_layers_, qkv_index_, dqkv, dx);
  const IntermediateGradient dprojected(pass, kDprojected, dqkv.dtype, dqkv.shape);
  pass.through(*qk_norm_, sub_layers_, qk_norm_index_, dqkv, dprojected);
  pass.through(qkv_, sub_layers_, qkv_index_, dprojected, dx);
}

Attention::Core Attention::run_core(Context& context, ConstTensorView qkv, Saved* keeper_of_out,
                                    Saved* keeper_of_statistics) const {
  const HeadRange heads = qkv_.heads_of(split_axis(context));
  const int64_t batch = qkv.shape[0], sequence = qkv.shape[1];
  Core core{{context.arena, keeper_of_out, kOut, qkv.dtype, {batch, sequence, heads.count * head_size()}},
            {context.arena, keeper_of_statistics, kLogSumExp, statistics_dtype(qkv.dtype), {batch, heads.count, sequence}}};
  context.kernels.attention({.qkv = qkv,
                             .out = core.out,
                             .log_sum_exp = core.log_sum_exp,
                             .heads = heads.count,
                             .key_value_heads = heads.key_value_count,
                             .causal = options_.causal,
                             .window = options_.window,
                             .scale = options_.score_scale,
                             .soft_cap = options_.soft_cap,
                             .dropout = dropout(context, sequence)});
  return core;
}

// Keeps `out`, which the output projection's weight gradient reads; nothing reads log_sum_exp after this pass.
Attention::Core Attention::core_again(const BackwardPass& pass) const {
  Core core = run_core(pass.context(), pass.saved()[kQkv], pass.keeper(), nullptr);
  out_.renew_input(core.out, pass.saved().child(out_index_));
  return core;
}

void Attention::run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  Context& context = pass.context();
  const Saved& saved = pass.saved();
  const HeadRange heads = qkv_.heads_of(split_axis(context));
  const TensorView qkv = saved[kQkv];
  const IntermediateGradient dqkv(pass, kDqkv, dy.dtype, qkv.shape);
  {
    std::optional<Core> again;
    if (context.recompute_attention) again = core_again(pass);
    const TensorView out = again ? again->out : saved[kOut];
    const ScopedTensor dout(context.arena, dy.dtype, out.shape);
    pass.through(out_, sub_layers_, out_index_, dy, dout);
    context.kernels.attention_backward({.dout = dout,
                                        .qkv = qkv,
                                        .out = out,
                                        .log_sum_exp = again ? again->log_sum_exp : saved[kLogSumExp],
                                        .dqkv = dqkv,
                                        .heads = heads.count,
                                        .key_value_heads = heads.key_value_count,
                                        .causal = options_.causal,
                                        .window = options_.window,
                                        .scale = options_.score_scale,
                                        .soft_cap = options_.soft_cap,
                                        .dropout = dropout(context, qkv.shape[1])});
  }
  rotate(context, dqkv, true);
  through_qkv(pass, dqkv, dx);
}

void Attention::rotate(Context& context, TensorView qkv, bool backward) const {
  if (frequencies_.empty()) return;
  const HeadRange heads = qkv_.heads_of(split_axis(context));
  const int64_t length = context.present_tokens > 0 ? context.present_tokens : qkv.shape[1];
  context.kernels.rotary({.qkv = qkv,
                          .heads = heads.count,
                          .key_value_heads = heads.key_value_count,
                          .frequencies = length > options_.rotary_scaling.original_length ? long_frequencies_ : frequencies_,
                          .backward = backward,
                          .magnitude = magnitude_of(options_.rotary_scaling),
                          .positions = context.positions});
}

// A head gets the same random draws on whichever rank it is.
kernels::DropoutSite Attention::dropout(const Context& context, int64_t sequence) const {
  kernels::DropoutSite site = dropout_site(context, dropout_name_, options_.dropout);
  site.first_element = qkv_.heads_of(split_axis(context)).first * sequence * sequence;
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
  out_.backward_weight(context, sub_layers_.of(out_index_, gradients), saved.child(out_index_));
  if (qk_norm_) qk_norm_->backward_weight(context, sub_layers_.of(qk_norm_index_, gradients), saved.child(qk_norm_index_));
  qkv_.backward_weight(context, sub_layers_.of(qkv_index_, gradients), saved.child(qkv_index_));
}

}  // namespace trivet::model
