#include "model/ring_attention.h"

#include <utility>

#include "kernels/kernels.h"
#include "model/whole_sequences.h"

namespace trivet::model {

std::vector<RingAttention::Pair> RingAttention::pairs(int step, int64_t length) const {
  const SequencePart part = axis_.part();
  const int other = (part.rank - step + part.ranks) % part.ranks;
  const OwnTokens own = part.tokens(length), theirs = part.tokens_of(other, length);
  std::vector<Pair> seen;
  for (int64_t q = 0; q < own.pieces(); ++q)
    for (int64_t k = 0; k < theirs.pieces(); ++k) {
      const int64_t queries = own.ranges[q].begin, keys = theirs.ranges[k].begin;
      const int64_t tokens = own.ranges[q].count();
      if (!options_.core.causal || keys <= queries)
        seen.push_back({q, k, options_.core.causal && keys == queries, queries / tokens * (length / tokens) + keys / tokens});
    }
  return seen;
}

// All pairs together have as many random draws as the whole sequence.
kernels::Attention RingAttention::core_of(const Pair& pair, int64_t tokens) const {
  kernels::Attention core = options_.core;
  core.causal = pair.causal;
  core.dropout.first_element += pair.index * core.heads * tokens * tokens;
  return core;
}

void RingAttention::copy_columns(ConstTensorView from, int64_t first, TensorView to, int64_t to_first, int64_t width) const {
  const int64_t rows = from.shape[0] * from.shape[1];
  context_.kernels.copy_runs({.from = from_element(from, first),
                              .out = from_element(to, to_first),
                              .counts = {1, 1, rows},
                              .run = width,
                              .from_steps = {0, 0, from.shape[2]},
                              .out_steps = {0, 0, to.shape[2]}});
}

RingAttention::Pieces RingAttention::pieces_of(ConstTensorView own, int count) const {
  Pieces pieces;
  const int64_t batch = own.shape[0], tokens = own.shape[1] / count, width = own.shape[2];
  for (int64_t index = 0; index < count; ++index) {
    pieces.emplace_back(context_.arena, own.dtype, Shape{batch, tokens, width});
    context_.kernels.copy_runs({.from = from_element(own, index * tokens * width),
                                .out = pieces.back(),
                                .counts = {1, 1, batch},
                                .run = tokens * width,
                                .from_steps = {0, 0, own.shape[1] * width},
                                .out_steps = {0, 0, tokens * width}});
  }
  return pieces;
}

void RingAttention::store_piece(ConstTensorView piece, TensorView own, int64_t index) const {
  const int64_t run = piece.shape[1] * piece.shape[2];
  context_.kernels.copy_runs({.from = piece,
                              .out = from_element(own, index * run),
                              .counts = {1, 1, piece.shape[0]},
                              .run = run,
                              .from_steps = {0, 0, run},
                              .out_steps = {0, 0, own.shape[1] * own.shape[2]}});
}

void RingAttention::copy_statistics(ConstTensorView from, TensorView to, int64_t index, bool store) const {
  const int64_t tokens = (store ? from : to).shape[2], all = (store ? to : from).shape[2];
  context_.kernels.copy_runs({.from = store ? from : from_element(from, index * tokens),
                              .out = store ? from_element(to, index * tokens) : to,
                              .counts = {1, 1, from.shape[0] * from.shape[1]},
                              .run = tokens,
                              .from_steps = {0, 0, store ? tokens : all},
                              .out_steps = {0, 0, store ? all : tokens}});
}

void RingAttention::rotate(TensorView piece, int64_t first_position, bool backward) const {
  kernels::Rotary rotary = options_.rotary;
  if (rotary.frequencies.empty()) return;
  rotary.qkv = piece, rotary.first = first_position, rotary.backward = backward;
  context_.kernels.rotary(rotary);
}

RingAttention::Pieces RingAttention::rotated_pieces(ConstTensorView own_qkv) const {
  const OwnTokens own = own_tokens(own_qkv);
  Pieces pieces = pieces_of(own_qkv, own.pieces());
  for (size_t i = 0; i < pieces.size(); ++i) rotate(pieces[i], own.ranges[i].begin, false);
  return pieces;
}

// The part of one piece, [B, n / P, 2 G D].
TensorView RingAttention::keys(const Travelling& travelling, int64_t piece, const Pieces& qkv) const {
  const Shape& shape = qkv[0].view().shape;
  const Shape of_keys{shape[0], shape[1], key_width()};
  return travelling.now.view().slice(piece * of_keys.elements(), of_keys.elements()).reshaped(of_keys);
}

RingAttention::Travelling RingAttention::keys_of(const Pieces& qkv) const {
  const Shape& shape = qkv[0].view().shape;
  const Shape all{static_cast<int64_t>(qkv.size()), shape[0], shape[1], key_width()};
  Travelling keys{{context_.arena, qkv[0].view().dtype, all}, {context_.arena, qkv[0].view().dtype, all}, {}};
  for (size_t i = 0; i < qkv.size(); ++i)
    copy_columns(qkv[i], query_width(), this->keys(keys, static_cast<int64_t>(i), qkv), 0, key_width());
  return keys;
}

void RingAttention::send_on(Travelling& travelling) const {
  const int64_t ranks = axis_.size(), count = travelling.now.view().elements();
  comm::ExchangeCounts counts{std::vector<int64_t>(ranks), std::vector<int64_t>(ranks)};
  counts.sent[(axis_.rank() + 1) % ranks] = counts.received[(axis_.rank() + ranks - 1) % ranks] = count;
  axis_.group.all_to_all_v(travelling.now.view().slice(0, count), travelling.next.view().slice(0, count), counts, axis_.stream);
  travelling.arrived = axis_.stream.record();
}

void RingAttention::receive(Travelling& travelling) const {
  travelling.arrived.synchronize();
  std::swap(travelling.now, travelling.next);
}

void RingAttention::forward(const OwnTensors& own) const {
  const int64_t length = own.qkv.shape[1] * axis_.size(), heads = options_.core.heads;
  const Pieces qkv = rotated_pieces(own.qkv);
  Travelling travelling = keys_of(qkv);
  const Shape& shape = qkv[0].view().shape;
  const Shape out_shape{shape[0], shape[1], query_width()}, statistics{shape[0], heads, shape[1]};
  const ScopedTensor out(context_.arena, own.out.dtype, out_shape);
  const ScopedTensor log_sum_exp(context_.arena, own.log_sum_exp.dtype, statistics);
  Pieces outs, sums;
  for (size_t i = 0; i < qkv.size(); ++i) {
    outs.emplace_back(context_.arena, own.log_sum_exp.dtype, out_shape);
    sums.emplace_back(context_.arena, own.log_sum_exp.dtype, statistics);
  }
  std::vector<bool> begun(qkv.size());
  for (int step = 0; step < axis_.size(); ++step) {
    const bool goes_on = step + 1 < axis_.size();
    if (goes_on) send_on(travelling);
    for (const Pair& pair : pairs(step, length)) {
      const int64_t queries = pair.queries;
      copy_columns(keys(travelling, pair.keys, qkv), 0, qkv[queries], query_width(), key_width());
      kernels::Attention core = core_of(pair, shape[1]);
      core.qkv = qkv[queries], core.out = out, core.log_sum_exp = log_sum_exp;
      context_.kernels.attention(core);
      if (begun[queries]) {
        context_.kernels.merge_attention(
            {.more = out, .more_log_sum_exp = log_sum_exp, .out = outs[queries], .log_sum_exp = sums[queries], .heads = heads});
      } else {
        context_.kernels.copy(out, outs[queries]);
        context_.kernels.copy(log_sum_exp, sums[queries]);
        begun[queries] = true;
      }
    }
    if (goes_on) receive(travelling);
  }
  for (size_t i = 0; i < qkv.size(); ++i) {
    context_.kernels.copy(outs[i], out);
    store_piece(out, own.out, static_cast<int64_t>(i));
    copy_statistics(sums[i], own.log_sum_exp, static_cast<int64_t>(i), true);
  }
}

// Adds columns [first, first + w) of rows to sum[..., w], in the sum's type.
void RingAttention::add_columns(ConstTensorView from, int64_t first, TensorView sum) const {
  const ScopedTensor columns(context_.arena, from.dtype, sum.shape);
  copy_columns(from, first, columns, 0, sum.shape[2]);
  if (from.dtype == sum.dtype) return context_.kernels.add(columns, sum);
  const ScopedTensor wide(context_.arena, sum.dtype, sum.shape);
  context_.kernels.copy(columns, wide);
  context_.kernels.add(wide, sum);
}

void RingAttention::store_columns(ConstTensorView sum, TensorView to, int64_t first) const {
  const ScopedTensor narrow(context_.arena, to.dtype, sum.shape);
  context_.kernels.copy(sum, narrow);
  copy_columns(narrow, 0, to, first, sum.shape[2]);
}

void RingAttention::backward(const OwnTensors& own, ConstTensorView dout, TensorView dqkv) const {
  const OwnTokens tokens = own_tokens(own.qkv);
  const int64_t length = own.qkv.shape[1] * axis_.size();
  const Pieces qkv = rotated_pieces(own.qkv), douts = pieces_of(dout, tokens.pieces()),
               outs = pieces_of(own.out, tokens.pieces());
  Travelling travelling = keys_of(qkv);
  const Shape& shape = qkv[0].view().shape;
  const DType wide = own.log_sum_exp.dtype;
  const Shape& all_keys = travelling.now.view().shape;
  Travelling gradients{{context_.arena, wide, all_keys}, {context_.arena, wide, all_keys}, {}};
  const ScopedTensor partial(context_.arena, wide, all_keys), dpiece(context_.arena, dqkv.dtype, shape);
  Pieces sums, dqueries;
  for (int64_t i = 0; i < tokens.pieces(); ++i) {
    sums.emplace_back(context_.arena, wide, Shape{shape[0], options_.core.heads, shape[1]});
    copy_statistics(own.log_sum_exp, sums.back(), i, false);
    dqueries.emplace_back(context_.arena, wide, Shape{shape[0], shape[1], query_width()});
    context_.kernels.zero(dqueries.back());
  }
  const int64_t of_piece = all_keys.elements() / tokens.pieces();
  const auto piece_of = [&](TensorView all, int64_t piece) {
    return all.slice(piece * of_piece, of_piece).reshaped({shape[0], shape[1], key_width()});
  };
  for (int step = 0; step < axis_.size(); ++step) {
    const bool goes_on = step + 1 < axis_.size();
    if (goes_on) send_on(travelling);
    if (step > 0) send_on(gradients);
    context_.kernels.zero(partial);
    for (const Pair& pair : pairs(step, length)) {
      const int64_t queries = pair.queries;
      copy_columns(keys(travelling, pair.keys, qkv), 0, qkv[queries], query_width(), key_width());
      const kernels::Attention core = core_of(pair, shape[1]);
      context_.kernels.attention_backward({.dout = douts[queries],
                                           .qkv = qkv[queries],
                                           .out = outs[queries],
                                           .log_sum_exp = sums[queries],
                                           .dqkv = dpiece,
                                           .heads = core.heads,
                                           .key_value_heads = core.key_value_heads,
                                           .causal = core.causal,
                                           .scale = core.scale,
                                           .soft_cap = core.soft_cap,
                                           .dropout = core.dropout});
      add_columns(dpiece, 0, dqueries[queries]);
      add_columns(dpiece, query_width(), piece_of(partial, pair.keys));
    }
    if (step > 0)
      receive(gradients), context_.kernels.add(partial, gradients.now);
    else
      context_.kernels.copy(partial, gradients.now);
    if (goes_on) receive(travelling);
  }
  send_on(gradients);  // home
  receive(gradients);
  for (int64_t i = 0; i < tokens.pieces(); ++i) {
    store_columns(dqueries[i], dpiece, 0);
    store_columns(piece_of(gradients.now, i), dpiece, query_width());
    rotate(dpiece, tokens.ranges[i].begin, true);
    store_piece(dpiece, dqkv, i);
  }
}

}  // namespace trivet::model
