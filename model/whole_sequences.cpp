#include "model/whole_sequences.h"

#include "kernels/kernels.h"

namespace trivet::model {
namespace {

template <typename View>
View one_column(View view) {
  return view.reshaped({view.shape[0], view.shape[1], 1});
}

// The columns of neighbouring rows; all rows are one run if they have no other columns.
struct Run {
  int64_t elements = 0, count = 0;

  Run(int64_t width, int64_t rows, int64_t row_here, int64_t row_there) : elements(width), count(rows) {
    if (width == row_here && width == row_there) elements = width * rows, count = 1;
  }
};

}  // namespace

void place_tokens(Context& context, const SequencePart& part, int rank, ConstTensorView own, const TokenColumns& from,
                  TensorView whole, int64_t to) {
  const int64_t narrow = own.shape[2], wide = whole.shape[2], length = whole.shape[1];
  int64_t done = 0;
  for (const TokenRange& range : part.tokens_of(rank, length)) {
    const Run run(from.width, range.count(), narrow, wide);
    context.kernels.copy_runs({.from = from_element(own, done * narrow + from.first),
                               .out = from_element(whole, range.begin * wide + to),
                               .counts = {1, whole.shape[0], run.count},
                               .run = run.elements,
                               .from_steps = {0, own.shape[1] * narrow, narrow},
                               .out_steps = {0, length * wide, wide}});
    done += range.count();
  }
}

void take_tokens(Context& context, const SequencePart& part, ConstTensorView whole, int64_t from, TensorView own,
                 const TokenColumns& to) {
  const int64_t narrow = own.shape[2], wide = whole.shape[2], length = whole.shape[1];
  int64_t done = 0;
  for (const TokenRange& range : part.tokens(length)) {
    const Run run(to.width, range.count(), narrow, wide);
    context.kernels.copy_runs({.from = from_element(whole, range.begin * wide + from),
                               .out = from_element(own, done * narrow + to.first),
                               .counts = {1, whole.shape[0], run.count},
                               .run = run.elements,
                               .from_steps = {0, length * wide, wide},
                               .out_steps = {0, own.shape[1] * narrow, narrow}});
    done += range.count();
  }
}

ScopedTensor gather_sequences(Context& context, const comm::RankAxis& axis, ConstTensorView own) {
  const int64_t batch = own.shape[0], tokens = own.shape[1];
  const ScopedTensor by_rank(context.arena, own.dtype, {axis.size(), batch, tokens});
  ScopedTensor whole(context.arena, own.dtype, {batch, axis.size() * tokens});
  axis.group.all_gather(own, by_rank, axis.stream);
  axis.stream.record().synchronize();
  for (int rank = 0; rank < axis.size(); ++rank)
    place_tokens(context, axis.part(), rank,
                 by_rank.view().slice(rank * batch * tokens, batch * tokens).reshaped({batch, tokens, 1}), {0, 1},
                 one_column(whole.view()), 0);
  return whole;
}

void take_own_part(Context& context, const SequencePart& part, ConstTensorView whole, TensorView own) {
  take_tokens(context, part, one_column(whole), 0, one_column(own), {0, 1});
}

}  // namespace trivet::model
