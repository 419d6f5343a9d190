// Ranks that share experts: each has E / n consecutive experts of every block, and the tokens of microbatches of its own.
//
//   n rounds: in round r a rank sends the rows of its tokens to the rank whose number is r higher, computes those that it gets
//   from the rank whose number is r lower with its own experts, and sends the results back; in round 0 it serves itself.
//
// So all ranks send and receive in every round, and work on the rows of one microbatch at a time. All rows of a microbatch may
// want experts of one rank, but they are no more than T K: memory is planned whatever routers decide, no token is dropped, and
// the number of rounds is always n. A rank that gets no rows in a round waits for nobody and computes nothing.
//
// Since a round is one microbatch, its gradient for an expert is one sum over its tokens in their order, which is rounded by
// itself (Gradient::next): the same sum as that of a rank that has all experts.
//
// Rows of a rank's tokens are ordered by expert (kernels/experts.h), so that those for another rank's experts are consecutive.
#pragma once

#include <vector>

#include "comm/rank_axis.h"
#include "core/layer.h"

namespace trivet::model {

// The rows that go from one rank to another in a round, of this rank's rows or of those that it gets.
struct RowRange {
  int64_t first = 0, count = 0;
};

class ExpertExchange {
 public:
  // Collective over the ranks of the axis. `ends`, int32 [E, ranges]: the ends of this rank's rows. The host waits for the
  // counts of all ranks. `most` rows may go from one rank to another.
  ExpertExchange(Context& context, const comm::RankAxis& axis, ConstTensorView ends, int64_t rows, int64_t most);

  int rounds() const { return axis_.size(); }
  // This rank's rows that it sends in a round.
  RowRange sent(int round) const;
  // The rows that it gets, and int32 [own experts, 1]: their ends.
  int64_t received(int round) const;
  ConstTensorView ends(int round);

  // Sends `rows`, those of `sent`, and fills the first of `out`. Returns these.
  TensorView send(int round, ConstTensorView rows, TensorView out);
  // Sends what belongs to the rows that were received back, and fills `out`, of those that were sent.
  void send_back(int round, ConstTensorView results, TensorView out);

 private:
  int higher(int round) const { return (axis_.rank() + round) % axis_.size(); }
  int lower(int round) const { return (axis_.rank() + axis_.size() - round) % axis_.size(); }
  int64_t count(int from, int to) const { return counts_[static_cast<size_t>(from * axis_.size() + to)]; }
  void exchange(ConstTensorView in, int to, TensorView out, int from);

  Context& context_;
  const comm::RankAxis& axis_;
  int64_t own_experts_;
  std::vector<int32_t> of_experts_;  // [rank][expert] rows
  std::vector<int64_t> counts_;      // [from][to] rows
  ScopedTensor ends_;
};

}  // namespace trivet::model
