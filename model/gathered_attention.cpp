#include "model/gathered_attention.h"

#include <array>

#include "kernels/kernels.h"
#include "model/whole_sequences.h"

namespace trivet::model {
TokenColumns GatheredAttention::queries_of(int64_t group) const {
  const int64_t width = queries_per_key() * options_.head_size;
  return {group * width, width};
}
TokenColumns GatheredAttention::key_of(int64_t group) const {
  return {(options_.core.heads + group) * options_.head_size, options_.head_size};
}
TokenColumns GatheredAttention::value_of(int64_t group) const {
  return {(options_.core.heads + options_.core.key_value_heads + group) * options_.head_size, options_.head_size};
}

Shape GatheredAttention::group_shape(ConstTensorView own_qkv) const {
  return {own_qkv.shape[0], length(own_qkv), (queries_per_key() + 2) * options_.head_size};
}

// Copies those of a group's query heads from whole[B, N / G, S] to own[B, N, n].
void GatheredAttention::copy_own_statistics(ConstTensorView whole, TensorView own, int64_t group) const {
  const int64_t batch = own.shape[0], tokens = own.shape[2], sequence = whole.shape[2], heads = queries_per_key();
  int64_t done = group * heads * tokens;
  for (const TokenRange& range : axis_.part().tokens(sequence).ranges) {
    if (range.count() == 0) continue;
    context_.kernels.copy_runs({.from = from_element(whole, range.begin),
                                .out = from_element(own, done),
                                .counts = {1, batch, heads},
                                .run = range.count(),
                                .from_steps = {0, heads * sequence, sequence},
                                .out_steps = {0, own.shape[1] * tokens, tokens}});
    done += range.count();
  }
}

// One exchange for all of them: the columns of each token are packed one after another.
GatheredAttention::Exchange GatheredAttention::start(std::span<const OwnColumns> all) const {
  const int64_t batch = all[0].own.shape[0], tokens = all[0].own.shape[1];
  int64_t width = 0;
  for (const OwnColumns& one : all) width += one.columns.width;
  const DType dtype = all[0].own.dtype;
  Exchange exchange{{context_.arena, dtype, {batch, tokens, width}},
                    {context_.arena, dtype, {axis_.size(), batch, tokens, width}}};
  int64_t done = 0;
  for (const OwnColumns& one : all) {
    context_.kernels.copy_runs({.from = from_element(one.own, one.columns.first),
                                .out = from_element(exchange.packed.view(), done),
                                .counts = {1, 1, batch * tokens},
                                .run = one.columns.width,
                                .from_steps = {0, 0, one.own.shape[2]},
                                .out_steps = {0, 0, width}});
    done += one.columns.width;
  }
  start(exchange);
  return exchange;
}

// Sends those of a group's query heads, own[B, N, n]; receives [c][B, N / G, n].
GatheredAttention::Exchange GatheredAttention::start_statistics(ConstTensorView own, int64_t group) const {
  const int64_t batch = own.shape[0], tokens = own.shape[2], heads = queries_per_key();
  Exchange exchange{{context_.arena, own.dtype, {batch * heads, tokens, 1}},
                    {context_.arena, own.dtype, {axis_.size(), batch * heads, tokens, 1}}};
  context_.kernels.copy_runs({.from = from_element(own, group * heads * tokens),
                              .out = exchange.packed,
                              .counts = {1, 1, batch},
                              .run = heads * tokens,
                              .from_steps = {0, 0, own.shape[1] * tokens},
                              .out_steps = {0, 0, heads * tokens}});
  start(exchange);
  return exchange;
}

void GatheredAttention::start(Exchange& exchange) const {
  axis_.group.all_gather(exchange.packed, exchange.received, axis_.stream);
  exchange.arrived = axis_.stream.record();
}

void GatheredAttention::finish(Exchange& exchange, std::span<const Destination> to) const {
  exchange.arrived.synchronize();
  const Shape shape = exchange.packed.view().shape;
  for (int rank = 0; rank < axis_.size(); ++rank) {
    const ConstTensorView part = exchange.received.view().slice(rank * shape.elements(), shape.elements()).reshaped(shape);
    int64_t done = 0;
    for (const Destination& one : to) {
      place_tokens(context_, axis_.part(), rank, part, {done, one.columns.width}, one.whole, one.columns.first);
      done += one.columns.width;
    }
  }
  exchange = {};
}

kernels::Attention GatheredAttention::core_of(int64_t group, int64_t tokens) const {
  kernels::Attention core = options_.core;
  core.heads = queries_per_key(), core.key_value_heads = 1;
  core.dropout.first_element += group * core.heads * tokens * tokens;
  core.own = axis_.part().tokens(tokens);
  return core;
}

// Rows of queries that the rank does not have are rotated, too.
void GatheredAttention::rotate(TensorView group_qkv, bool backward) const {
  kernels::Rotary rotary = options_.rotary;
  if (rotary.frequencies.empty()) return;
  rotary.qkv = group_qkv, rotary.backward = backward;
  rotary.heads = queries_per_key(), rotary.key_value_heads = 1;
  context_.kernels.rotary(rotary);
}

GatheredAttention::Exchange GatheredAttention::start_forward(const OwnTensors& own, int64_t group) const {
  const std::array<OwnColumns, 2> keys_and_values{{{own.qkv, key_of(group)}, {own.qkv, value_of(group)}}};
  return start(keys_and_values);
}

void GatheredAttention::forward(const OwnTensors& own) const {
  const int64_t batch = own.qkv.shape[0], tokens = length(own.qkv), heads = queries_per_key(), size = options_.head_size;
  const int64_t groups = options_.core.key_value_heads;
  Exchange next = start_forward(own, 0);
  for (int64_t group = 0; group < groups; ++group) {
    const ScopedTensor qkv(context_.arena, own.qkv.dtype, group_shape(own.qkv));
    const std::array<Destination, 1> keys_and_values{{{qkv, {heads * size, 2 * size}}}};
    finish(next, keys_and_values);
    if (group + 1 < groups) next = start_forward(own, group + 1);
    place_tokens(context_, axis_.part(), axis_.rank(), own.qkv, queries_of(group), qkv, 0);
    rotate(qkv, false);
    const ScopedTensor out(context_.arena, own.out.dtype, {batch, tokens, heads * size});
    const ScopedTensor log_sum_exp(context_.arena, own.log_sum_exp.dtype, {batch, heads, tokens});
    kernels::Attention core = core_of(group, tokens);
    core.qkv = qkv, core.out = out, core.log_sum_exp = log_sum_exp;
    context_.kernels.attention(core);
    take_tokens(context_, axis_.part(), out, 0, own.out, queries_of(group));
    copy_own_statistics(log_sum_exp, own.log_sum_exp, group);
  }
}

GatheredAttention::BackwardExchange GatheredAttention::start_backward(const OwnTensors& own, ConstTensorView dout,
                                                                      int64_t group) const {
  const TokenColumns queries = queries_of(group);
  const std::array<OwnColumns, 5> all{
      {{own.qkv, queries}, {own.qkv, key_of(group)}, {own.qkv, value_of(group)}, {dout, queries}, {own.out, queries}}};
  return {start(all), start_statistics(own.log_sum_exp, group)};
}

void GatheredAttention::backward(const OwnTensors& own, ConstTensorView dout, TensorView dqkv) const {
  const int64_t batch = own.qkv.shape[0], tokens = length(own.qkv), heads = queries_per_key(), size = options_.head_size;
  const int64_t groups = options_.core.key_value_heads, width = heads * size;
  BackwardExchange next = start_backward(own, dout, 0);
  for (int64_t group = 0; group < groups; ++group) {
    const ScopedTensor qkv(context_.arena, own.qkv.dtype, group_shape(own.qkv));
    const ScopedTensor all_dout(context_.arena, dout.dtype, {batch, tokens, width});
    const ScopedTensor out(context_.arena, own.out.dtype, {batch, tokens, width});
    const ScopedTensor log_sum_exp(context_.arena, own.log_sum_exp.dtype, {batch, heads, tokens});
    const std::array<Destination, 3> tensors{{{qkv, {0, width + 2 * size}}, {all_dout, {0, width}}, {out, {0, width}}}};
    const std::array<Destination, 1> statistics{{{log_sum_exp.view().reshaped({batch * heads, tokens, 1}), {0, 1}}}};
    finish(next.tensors, tensors);
    finish(next.statistics, statistics);
    if (group + 1 < groups) next = start_backward(own, dout, group + 1);
    rotate(qkv, false);
    const ScopedTensor group_dqkv(context_.arena, dqkv.dtype, qkv.view().shape);
    const kernels::Attention core = core_of(group, tokens);
    context_.kernels.attention_backward({.dout = all_dout,
                                         .qkv = qkv,
                                         .out = out,
                                         .log_sum_exp = log_sum_exp,
                                         .dqkv = group_dqkv,
                                         .heads = core.heads,
                                         .key_value_heads = core.key_value_heads,
                                         .causal = core.causal,
                                         .window = core.window,
                                         .scale = core.scale,
                                         .soft_cap = core.soft_cap,
                                         .dropout = core.dropout,
                                         .documents = core.documents,
                                         .own = core.own});
    rotate(group_dqkv, true);
    take_tokens(context_, axis_.part(), group_dqkv, 0, dqkv, queries_of(group));
    take_tokens(context_, axis_.part(), group_dqkv, width, dqkv, key_of(group));
    take_tokens(context_, axis_.part(), group_dqkv, width + size, dqkv, value_of(group));
  }
}

}  // namespace trivet::model
