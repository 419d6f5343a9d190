#include "model/expert_exchange.h"

#include <stdexcept>

#include "kernels/kernels.h"

namespace trivet::model {
namespace {

// A plan has no tokens: it counts with experts that have equally many.
std::vector<int32_t> balanced_ends(int64_t ranks, int64_t ends_of_rank, int64_t rows) {
  std::vector<int32_t> ends;
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t i = 1; i <= ends_of_rank; ++i) ends.push_back(static_cast<int32_t>(rows * i / ends_of_rank));
  return ends;
}

}  // namespace

ExpertExchange::ExpertExchange(Context& context, const comm::RankAxis& axis, ConstTensorView ends, int64_t rows, int64_t most)
    : context_(context),
      axis_(axis),
      own_experts_(ends.shape[0] / axis.size()),
      ranges_(ends.shape[1]),
      ends_(context.arena, DType::Int32, {own_experts_, ranges_}) {
  const int64_t of_rank = ends.elements(), of_all = of_rank * axis.size();
  const ScopedTensor all(context.arena, DType::Int32, {of_all});
  axis.group.all_gather(ends.reshaped({of_rank}), all, axis.stream);
  axis.stream.record().synchronize();
  if (context.kernels.device() == Device::Meta) {
    all_ends_ = balanced_ends(axis.size(), of_rank, rows);
  } else {
    all_ends_.resize(static_cast<size_t>(of_all));
    context.kernels.to_host(all, {all_ends_.data(), DType::Int32, {of_all}});
  }
  for (int from = 0; from < axis.size(); ++from)
    for (int to = 0; to < axis.size(); ++to)
      if (count(from, to) > most) throw std::logic_error("experts: a rank has more rows for another than its tokens can have");
}

int ExpertExchange::partner(int runs, int round) const {
  const int length = axis_.of_one_microbatch, all_runs = axis_.size() / length;
  const int run = (axis_.rank() / length + runs + all_runs) % all_runs;
  return run * length + ((axis_.rank() % length) ^ (round % length));
}

int64_t ExpertExchange::end_before(int rank, int64_t expert) const {
  const int64_t place = (rank * own_experts_ * axis_.size() + expert) * ranges_ - 1;
  return expert == 0 ? 0 : all_ends_[static_cast<size_t>(place)];
}

RowRange ExpertExchange::sent(int round) const {
  return {end_before(axis_.rank(), higher(round) * own_experts_), count(axis_.rank(), higher(round))};
}

int64_t ExpertExchange::received(int round) const { return count(lower(round), axis_.rank()); }

ConstTensorView ExpertExchange::ends(int round) {
  const int64_t first_expert = axis_.rank() * own_experts_, count = own_experts_ * ranges_;
  const auto before = static_cast<int32_t>(end_before(lower(round), first_expert));
  const auto first = all_ends_.begin() + (lower(round) * own_experts_ * axis_.size() + first_expert) * ranges_;
  std::vector<int32_t> ends(first, first + count);
  for (int32_t& end : ends) end -= before;
  context_.kernels.from_host({ends.data(), DType::Int32, {own_experts_, ranges_}}, ends_);
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

RoundGradient::RoundGradient(Context& context, const comm::RankAxis& axis, const Gradient& gradient)
    : gradient_(gradient),
      rounds_(axis.of_one_microbatch),
      sum_(context.kernels, context.arena, gradient.view.dtype, gradient.view.shape) {}

Gradient RoundGradient::begin() {
  if (gradient_.view.absent() || rounds_ == 1) return gradient_;
  return {.view = sum_.begin_leaf(), .accumulate = false};
}

void RoundGradient::end(bool last) {
  if (gradient_.view.absent()) return;
  if (rounds_ > 1) {
    sum_.end_leaf();
    if (++done_ % rounds_ != 0) return;
    sum_.store(gradient_.view, gradient_.accumulate);
  }
  if (!last) gradient_.accumulate = gradient_.next();  // what is last ends with the block's contribution
}

}  // namespace trivet::model
