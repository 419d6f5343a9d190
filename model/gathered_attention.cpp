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

// Of a group's query heads: whole[B, N / G, S], own[B, N, n].
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

// One exchange for all: the columns of each token are packed one after another.
void GatheredAttention::gather(std::span<const Gathered> all) const {
  const int64_t batch = all[0].own.shape[0], tokens = all[0].own.shape[1];
  int64_t width = 0;
  for (const Gathered& one : all) width += one.from.width;
  const DType dtype = all[0].own.dtype;
  const ScopedTensor packed(context_.arena, dtype, {batch, tokens, width});
  const ScopedTensor received(context_.arena, dtype, {axis_.size(), batch, tokens, width});
  int64_t done = 0;
  for (const Gathered& one : all) {
    const int64_t row = one.own.shape[2];
    context_.kernels.copy_runs({.from = from_element(one.own, one.from.first),
                                .out = from_element(packed.view(), done),
                                .counts = {1, 1, batch * tokens},
                                .run = one.from.width,
                                .from_steps = {0, 0, row},
                                .out_steps = {0, 0, width}});
    done += one.from.width;
  }
  axis_.group.all_gather(packed, received, axis_.stream);
  axis_.stream.record().synchronize();
  const int64_t of_rank = batch * tokens * width;
  for (int rank = 0; rank < axis_.size(); ++rank) {
    const ConstTensorView part = received.view().slice(rank * of_rank, of_rank).reshaped({batch, tokens, width});
    done = 0;
    for (const Gathered& one : all) {
      place_tokens(context_, axis_.part(), rank, part, {done, one.from.width}, one.whole, one.to);
      done += one.from.width;
    }
  }
}

// own[B, N, n] -> [B, N / G, S] of the group's query heads
ScopedTensor GatheredAttention::gather_statistics(ConstTensorView own, int64_t group) const {
  const int64_t batch = own.shape[0], tokens = own.shape[2], heads = queries_per_key(), sequence = tokens * axis_.size();
  ScopedTensor whole(context_.arena, own.dtype, {batch, heads, sequence});
  const ScopedTensor packed(context_.arena, own.dtype, {batch, heads, tokens});
  const ScopedTensor received(context_.arena, own.dtype, {axis_.size(), batch, heads, tokens});
  context_.kernels.copy_runs({.from = from_element(own, group * heads * tokens),
                              .out = packed,
                              .counts = {1, 1, batch},
                              .run = heads * tokens,
                              .from_steps = {0, 0, own.shape[1] * tokens},
                              .out_steps = {0, 0, heads * tokens}});
  axis_.group.all_gather(packed, received, axis_.stream);
  axis_.stream.record().synchronize();
  const TensorView rows = whole.view().reshaped({batch * heads, sequence, 1});
  const int64_t of_rank = batch * heads * tokens;
  for (int rank = 0; rank < axis_.size(); ++rank)
    place_tokens(context_, axis_.part(), rank,
                 received.view().slice(rank * of_rank, of_rank).reshaped({batch * heads, tokens, 1}), {0, 1}, rows, 0);
  return whole;
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

void GatheredAttention::forward(const OwnTensors& own) const {
  const int64_t batch = own.qkv.shape[0], tokens = length(own.qkv), heads = queries_per_key(), size = options_.head_size;
  for (int64_t group = 0; group < options_.core.key_value_heads; ++group) {
    const ScopedTensor qkv(context_.arena, own.qkv.dtype, group_shape(own.qkv));
    const std::array<Gathered, 2> keys_and_values{
        {{own.qkv, key_of(group), qkv, heads * size}, {own.qkv, value_of(group), qkv, (heads + 1) * size}}};
    gather(keys_and_values);
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

void GatheredAttention::backward(const OwnTensors& own, ConstTensorView dout, TensorView dqkv) const {
  const int64_t batch = own.qkv.shape[0], tokens = length(own.qkv), heads = queries_per_key(), size = options_.head_size;
  for (int64_t group = 0; group < options_.core.key_value_heads; ++group) {
    const Shape narrow{batch, tokens, heads * size};
    const ScopedTensor qkv(context_.arena, own.qkv.dtype, group_shape(own.qkv));
    const ScopedTensor all_dout(context_.arena, dout.dtype, narrow), out(context_.arena, own.out.dtype, narrow);
    const TokenColumns queries = queries_of(group), key = key_of(group), value = value_of(group);
    const std::array<Gathered, 5> all{{{own.qkv, queries, qkv, 0},
                                       {own.qkv, key, qkv, queries.width},
                                       {own.qkv, value, qkv, queries.width + size},
                                       {dout, queries, all_dout, 0},
                                       {own.out, queries, out, 0}}};
    gather(all);
    rotate(qkv, false);
    const ScopedTensor log_sum_exp = gather_statistics(own.log_sum_exp, group);
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
    take_tokens(context_, axis_.part(), group_dqkv, 0, dqkv, queries);
    take_tokens(context_, axis_.part(), group_dqkv, queries.width, dqkv, key);
    take_tokens(context_, axis_.part(), group_dqkv, queries.width + size, dqkv, value);
  }
}

}  // namespace trivet::model
