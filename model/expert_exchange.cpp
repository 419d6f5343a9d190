#include "model/expert_exchange.h"

#include <stdexcept>

#include "kernels/kernels.h"

namespace trivet::model {
namespace {

// A plan has no tokens: it counts with experts that have equally many.
std::vector<int32_t> balanced(int64_t ranks, int64_t experts, int64_t rows) {
  std::vector<int32_t> counts;
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t expert = 0; expert < experts; ++expert)
      counts.push_back(static_cast<int32_t>(rows * (expert + 1) / experts - rows * expert / experts));
  return counts;
}

}  // namespace

ExpertExchange::ExpertExchange(Context& context, const comm::RankAxis& axis, ConstTensorView ends, int64_t rows, int64_t most)
    : context_(context),
      axis_(axis),
      own_experts_(ends.shape[0] / axis.size()),
      ends_(context.arena, DType::Int32, {own_experts_, 1}) {
  const int64_t experts = ends.shape[0], ranks = axis.size();
  const ScopedTensor own(context.arena, DType::Int64, {experts}), all(context.arena, DType::Int64, {ranks * experts});
  context.kernels.count_rows({.ends = ends, .counts = own});
  axis.group.all_gather(own, all, axis.stream);
  axis.stream.record().synchronize();
  if (context.kernels.device() == Device::Meta) {
    of_experts_ = balanced(ranks, experts, rows);
  } else {
    std::vector<int64_t> counts(static_cast<size_t>(ranks * experts));
    context.kernels.to_host(all, {counts.data(), DType::Int64, {ranks * experts}});
    of_experts_.assign(counts.begin(), counts.end());
  }
  counts_.assign(static_cast<size_t>(ranks * ranks), 0);
  for (int64_t from = 0; from < ranks; ++from)
    for (int64_t expert = 0; expert < experts; ++expert)
      counts_[static_cast<size_t>(from * ranks + expert / own_experts_)] +=
          of_experts_[static_cast<size_t>(from * experts + expert)];
  for (const int64_t count : counts_)
    if (count > most) throw std::logic_error("experts: a rank has more rows for another than its tokens can have");
}

RowRange ExpertExchange::sent(int round) const {
  RowRange range{0, count(axis_.rank(), higher(round))};
  for (int to = 0; to < higher(round); ++to) range.first += count(axis_.rank(), to);
  return range;
}

int64_t ExpertExchange::received(int round) const { return count(lower(round), axis_.rank()); }

ConstTensorView ExpertExchange::ends(int round) {
  std::vector<int32_t> ends;
  const auto* counts = of_experts_.data() + (lower(round) * axis_.size() + axis_.rank()) * own_experts_;
  for (int64_t expert = 0; expert < own_experts_; ++expert) ends.push_back((ends.empty() ? 0 : ends.back()) + counts[expert]);
  context_.kernels.from_host({ends.data(), DType::Int32, {own_experts_, 1}}, ends_);
  return ends_;
}

TensorView ExpertExchange::send(int round, ConstTensorView rows, TensorView out) {
  const TensorView received = out.row_range(0, this->received(round));
  exchange(rows, higher(round), received, lower(round));
  return received;
}

void ExpertExchange::send_back(int round, ConstTensorView results, TensorView out) {
  exchange(results, lower(round), out, higher(round));
}

void ExpertExchange::exchange(ConstTensorView in, int to, TensorView out, int from) {
  if (to == axis_.rank()) return context_.kernels.copy(in, out);
  comm::ExchangeCounts counts{std::vector<int64_t>(static_cast<size_t>(axis_.size()), 0),
                              std::vector<int64_t>(static_cast<size_t>(axis_.size()), 0)};
  counts.sent[static_cast<size_t>(to)] = in.elements();
  counts.received[static_cast<size_t>(from)] = out.elements();
  axis_.group.all_to_all_v(in.reshaped({in.elements()}), out.reshaped({out.elements()}), counts, axis_.stream);
  axis_.stream.record().synchronize();
}

}  // namespace trivet::model
