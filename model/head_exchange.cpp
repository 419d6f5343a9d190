#include "model/head_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/kernels.h"

namespace trivet::model {

HeadExchange::HeadExchange(Context& context, const comm::RankAxis& axis, std::span<const Heads> segments)
    : context_(context), axis_(axis) {
  const int64_t ranks = axis.size();
  for (const Heads& heads : segments) {
    if (heads.count % ranks != 0 && ranks % heads.count != 0)
      throw ConfigError(
          fmt::format("parallel.context: {} ranks and {} heads of attention on a tensor rank do not divide each "
                      "other; use another number of ranks",
                      ranks, heads.count));
    const int64_t parts = std::min(heads.count, ranks);
    const Place place{row_, part_, heads.count / parts * heads.size, parts, ranks / parts};
    places_.push_back(place);
    row_ += heads.count * heads.size;
    part_ += place.width;
  }
}

void HeadExchange::exchange(ConstTensorView sent, TensorView received) const {
  axis_.group.all_to_all(sent.slice(0, sent.elements()), received.slice(0, received.elements()), axis_.stream);
  axis_.stream.record().synchronize();
}

// Packed: for each rank, the rows of the tokens of all sequences, [c, B S / c, W'].
void HeadExchange::to_heads(ConstTensorView own, TensorView whole) const {
  const int64_t ranks = axis_.size(), batch = own.shape[0], tokens = own.shape[1], rows = batch * tokens;
  const ScopedTensor packed(context_.arena, own.dtype, {ranks, rows, part_});
  for (const Place& place : places_)
    context_.kernels.copy_runs({.from = own.slice(place.in_row, own.elements() - place.in_row),
                                .out = packed.view().slice(place.in_part, packed.view().elements() - place.in_part),
                                .counts = {place.parts, place.holders, rows},
                                .run = place.width,
                                .from_steps = {place.width, 0, row_},
                                .out_steps = {place.holders * rows * part_, rows * part_, part_}});
  if (batch == 1) return exchange(packed, whole);  // the ranks' tokens follow each other as in the sequence
  const ScopedTensor received(context_.arena, own.dtype, {ranks, rows, part_});
  exchange(packed, received);
  const int64_t of_sequence = tokens * part_;
  context_.kernels.copy_runs({.from = received,
                              .out = whole,
                              .counts = {1, ranks, batch},
                              .run = of_sequence,
                              .from_steps = {0, batch * of_sequence, of_sequence},
                              .out_steps = {0, of_sequence, ranks * of_sequence}});
}

void HeadExchange::to_tokens(ConstTensorView whole, TensorView own) const {
  const int64_t ranks = axis_.size(), batch = own.shape[0], tokens = own.shape[1], rows = batch * tokens;
  const int64_t of_sequence = tokens * part_;
  ScopedTensor sorted;
  if (batch > 1) {
    sorted = ScopedTensor(context_.arena, whole.dtype, {ranks, rows, part_});
    context_.kernels.copy_runs({.from = whole,
                                .out = sorted,
                                .counts = {1, ranks, batch},
                                .run = of_sequence,
                                .from_steps = {0, of_sequence, ranks * of_sequence},
                                .out_steps = {0, batch * of_sequence, of_sequence}});
  }
  const ScopedTensor received(context_.arena, whole.dtype, {ranks, rows, part_});
  exchange(batch > 1 ? ConstTensorView(sorted) : whole, received);
  for (const Place& place : places_) {
    if (place.holders > 1) {
      add_copies(place, received, own);
      continue;
    }
    context_.kernels.copy_runs({.from = received.view().slice(place.in_part, received.view().elements() - place.in_part),
                                .out = own.slice(place.in_row, own.elements() - place.in_row),
                                .counts = {1, ranks, rows},
                                .run = place.width,
                                .from_steps = {0, rows * part_, part_},
                                .out_steps = {0, place.width, row_}});
  }
}

// Sums the holders' gradients of each head, in the order of the ranks.
void HeadExchange::add_copies(const Place& place, ConstTensorView received, TensorView own) const {
  const int64_t rows = own.shape[0] * own.shape[1], width = place.parts * place.width;
  const ScopedTensor sum(context_.arena, own.dtype, {rows, width}), next(context_.arena, own.dtype, {rows, width});
  for (int64_t holder = 0; holder < place.holders; ++holder) {
    const int64_t first = holder * rows * part_ + place.in_part;
    context_.kernels.copy_runs({.from = received.slice(first, received.elements() - first),
                                .out = holder == 0 ? sum.view() : next.view(),
                                .counts = {1, place.parts, rows},
                                .run = place.width,
                                .from_steps = {0, place.holders * rows * part_, part_},
                                .out_steps = {0, place.width, width}});
    if (holder > 0) context_.kernels.add(next, sum);
  }
  context_.kernels.copy_runs({.from = sum,
                              .out = own.slice(place.in_row, own.elements() - place.in_row),
                              .counts = {1, 1, rows},
                              .run = width,
                              .from_steps = {0, 0, width},
                              .out_steps = {0, 0, row_}});
}

}  // namespace trivet::model
