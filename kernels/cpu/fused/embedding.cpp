// Looks up rows of a table by token id, and sums the gradients of each id and of each position.
//
// Backward sorts the tokens by id, keeping their order, so that each row of the table is summed by one thread in token order
// and rounded once.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu/fused/gradient_types.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"

#define TRIVET_LOOPS "kernels/cpu/fused/embedding_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {
namespace {

void check_tokens(ConstTensorView tokens, const TableRows& rows, int64_t rows_here, const char* kernel) {
  const int32_t* ids = tokens.as<int32_t>();
  const int64_t vocabulary = rows.vocabulary > 0 ? rows.vocabulary : rows_here;
  for (int64_t t = 0; t < tokens.elements(); ++t)
    if (ids[t] < 0 || ids[t] >= vocabulary)
      throw std::out_of_range(std::string(kernel) + ": token " + std::to_string(ids[t]) + " at index " + std::to_string(t) +
                              " of " + to_string(tokens.shape) + " is outside the vocabulary [0, " +
                              std::to_string(vocabulary) + ")");
}

// Places of tokens, sorted by id and then by place; the tokens of the i-th id are places[first[i]] .. places[first[i + 1] - 1].
struct Occurrences {
  std::vector<int64_t> places, first;

  explicit Occurrences(ConstTensorView tokens) : places(tokens.elements()) {
    const int32_t* ids = tokens.as<int32_t>();
    std::iota(places.begin(), places.end(), int64_t{0});
    std::stable_sort(places.begin(), places.end(), [ids](int64_t a, int64_t b) { return ids[a] < ids[b]; });
    for (size_t i = 0; i < places.size(); ++i)
      if (i == 0 || ids[places[i]] != ids[places[i - 1]]) first.push_back(static_cast<int64_t>(i));
    first.push_back(static_cast<int64_t>(places.size()));
  }
  int64_t distinct() const { return static_cast<int64_t>(first.size()) - 1; }
};

template <typename T, typename G>
struct RowSums {
  void (*add)(const T*, SumOf<T>*, int64_t) = by_isa(&baseline::add_row<T>, &v3::add_row<T>, &v4::add_row<T>);
  void (*store)(const SumOf<T>*, G*, int64_t, bool) = by_isa(&baseline::store_row<SumOf<T>, G>, &v3::store_row<SumOf<T>, G>,
                                                             &v4::store_row<SumOf<T>, G>);
};

template <typename T, typename G>
void table_gradient(const EmbeddingBackward& args, int threads) {
  const int64_t hidden = args.dy.shape.cols(), rows = args.dtable.shape[0];
  const Occurrences occurrences(args.tokens);
  const RowSums<T, G> sums;
  const int32_t* ids = args.tokens.as<int32_t>();
  if (!args.accumulate_table) compute(Zero{args.dtable}, threads);
  const int64_t rows_each = args.tokens.elements() / std::max<int64_t>(occurrences.distinct(), 1);
  for_each_range(occurrences.distinct(), threads, 1, hidden * std::max<int64_t>(rows_each, 1), [&](int64_t begin, int64_t end) {
    std::vector<SumOf<T>> row(hidden);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = occurrences.first[i], last = occurrences.first[i + 1];
      const int64_t id = ids[occurrences.places[first]] - args.rows.first;
      if (id < 0 || id >= rows) continue;
      std::fill(row.begin(), row.end(), SumOf<T>{0});
      for (int64_t p = first; p < last; ++p) sums.add(args.dy.as<T>() + occurrences.places[p] * hidden, row.data(), hidden);
      sums.store(row.data(), args.dtable.as<G>() + id * hidden, hidden, args.accumulate_table);
    }
  });
}

template <typename T, typename G>
void position_gradient(const EmbeddingBackward& args, int threads) {
  const int64_t batch = args.tokens.shape[0], sequence = args.tokens.shape[1], hidden = args.dy.shape.cols();
  const RowSums<T, G> sums;
  if (!args.accumulate_positions) compute(Zero{args.dpositions}, threads);
  for_each_range(sequence, threads, 1, hidden * batch, [&](int64_t begin, int64_t end) {
    std::vector<SumOf<T>> row(hidden);
    for (int64_t s = begin; s < end; ++s) {
      std::fill(row.begin(), row.end(), SumOf<T>{0});
      for (int64_t b = 0; b < batch; ++b) sums.add(args.dy.as<T>() + (b * sequence + s) * hidden, row.data(), hidden);
      sums.store(row.data(), args.dpositions.as<G>() + s * hidden, hidden, args.accumulate_positions);
    }
  });
}

}  // namespace

void compute(const Embedding& args, int threads) {
  const int64_t rows = args.table.shape[0], hidden = args.table.shape[1], sequence = args.tokens.shape[1];
  check_tokens(args.tokens, args.rows, rows, "embedding");
  const int32_t* ids = args.tokens.as<int32_t>();
  const int32_t* places = args.places.absent() ? nullptr : args.places.as<int32_t>();
  dispatch_float(args.table.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::add_pair<T>, &v3::add_pair<T>, &v4::add_pair<T>);
    const std::vector<T> zeros(args.rows.vocabulary > 0 ? hidden : 0, T{});
    for_each_range(args.tokens.elements(), threads, 1, hidden, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t id = ids[t] - args.rows.first;
        const T* row = id >= 0 && id < rows ? args.table.as<T>() + id * hidden : zeros.data();
        T* out = args.out.as<T>() + t * hidden;
        if (args.positions.absent())
          std::memcpy(out, row, hidden * sizeof(T));
        else
          loop(row, args.positions.as<T>() + (places ? places[t] : t % sequence) * hidden, out, hidden);
      }
    });
  });
}

void compute(const EmbeddingBackward& args, int threads) {
  if (!args.dtable.absent()) {
    check_tokens(args.tokens, args.rows, args.dtable.shape[0], "embedding_backward");
    dispatch_gradient(args.dy.dtype, args.dtable.dtype, [&]<typename T, typename G>() { table_gradient<T, G>(args, threads); });
  }
  if (!args.dpositions.absent())
    dispatch_gradient(args.dy.dtype, args.dpositions.dtype,
                      [&]<typename T, typename G>() { position_gradient<T, G>(args, threads); });
}

}  // namespace trivet::kernels::cpu
