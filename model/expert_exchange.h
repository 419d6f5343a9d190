// Ranks that share experts: each has E / n consecutive experts of every block, and the tokens of microbatches of its own.
//
//   n rounds: in round r a rank sends the rows of its tokens to the rank whose number is r higher, computes those that it gets
//   from the rank whose number is r lower with its own experts, and sends the results back; in round 0 it serves itself.
//
// Where sums over tokens have a fixed order, context ranks of one microbatch are served one after the other, those of a run of
// `of_one_microbatch` ranks (comm/rank_axis.h): run r higher or lower, and in it the rank at the place (own place xor j), for
// j = 0, 1, 2 ... So their sums are added in the same balanced tree on every rank, apart from the order of two summands.
//
// So all ranks send and receive in every round, and work on the rows of one microbatch at a time. All rows of a microbatch may
// want experts of one rank, but they are no more than T K: memory is planned whatever routers decide, no token is dropped, and
// the number of rounds is always n. A rank that gets no rows in a round waits for nobody and computes nothing.
//
// Since a round is one microbatch, or a part of one, its gradient for an expert is one sum over its tokens in their order,
// which is rounded by itself (Gradient::next): the same sum as that of a rank that has all experts.
//
// Rows of a rank's tokens are ordered by expert (kernels/experts.h), so that those for another rank's experts are consecutive.
#pragma once

#include <vector>

#include "comm/rank_axis.h"
#include "core/layer.h"
#include "kernels/leaf_sum.h"
#include "model/expert_work.h"

namespace trivet::model {

// The rows that go from one rank to another in a round, of this rank's rows or of those that it gets.
struct RowRange {
  int64_t first = 0, count = 0;
};

class ExpertExchange {
 public:
  // Collective over the ranks of the axis. `ends`, int32 [E, ranges]: the ends of this rank's rows; all ranks have as many
  // ranges. The host waits for those of all ranks. `most` rows may go from one rank to another.
  ExpertExchange(Context& context, const comm::RankAxis& axis, ConstTensorView ends, int64_t rows, int64_t most);

  int rounds() const { return axis_.size(); }
  // This rank's rows that it sends in a round.
  RowRange sent(int round) const;
  // The rows that it gets, and int32 [own experts, ranges]: their ends.
  int64_t received(int round) const;
  ConstTensorView ends(int round);

  // Sends `rows`, those of `sent`, and fills the first of `out`. Returns these.
  TensorView send(int round, ConstTensorView rows, TensorView out);
  // Sends what belongs to the rows that were received back, and fills `out`, of those that were sent.
  void send_back(int round, ConstTensorView results, TensorView out);

 private:
  // The rank to which rows go in this round, and that from which they come.
  int higher(int round) const { return partner(round / axis_.of_one_microbatch, round); }
  int lower(int round) const { return partner(-(round / axis_.of_one_microbatch), round); }
  int partner(int runs, int round) const;
  // The end of a rank's rows for the experts before `expert`.
  int64_t end_before(int rank, int64_t expert) const;
  int64_t count(int from, int to) const {
    return end_before(from, (to + 1) * own_experts_) - end_before(from, to * own_experts_);
  }
  void exchange(ConstTensorView in, int to, TensorView out, int from);

  Context& context_;
  const comm::RankAxis& axis_;
  int64_t own_experts_, ranges_;
  std::vector<int32_t> all_ends_;  // [rank][expert][range]
  ScopedTensor ends_;
};

// The gradient of a parameter of experts in the rounds of an exchange: those of one microbatch are added up in a balanced tree.
class RoundGradient {
 public:
  RoundGradient(Context& context, const comm::RankAxis& axis, const Gradient& gradient);

  // Where that of this round goes.
  Gradient begin();
  // `last`: no round follows.
  void end(bool last);

 private:
  Gradient gradient_;
  int rounds_;  // with parts of one microbatch
  int done_ = 0;
  kernels::LeafSum sum_;
};

// Those of an adapter's A and B, which follow one another among the parameters.
class AdapterRounds {
 public:
  AdapterRounds(Context& context, const comm::RankAxis& axis, Gradients gradients, size_t first)
      : a_(context, axis, gradients[first]), b_(context, axis, gradients[first + 1]) {}
  AdapterGradients begin() { return {a_.begin(), b_.begin()}; }
  void end(bool last) {
    a_.end(last);
    b_.end(last);
  }

 private:
  RoundGradient a_, b_;
};

}  // namespace trivet::model
