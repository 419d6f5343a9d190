// One rank's use of a lane of the board: all ranks enter an operation, see what the others entered, and continue in steps.
#pragma once

#include <vector>

#include "comm/board.h"
#include "comm/counter_wait.h"

namespace trivet::comm {

class Lane {
 public:
  Lane(Line* lines, const CounterWait& wait);

  // Returns when all ranks have entered; throws on all of them when headers differ.
  void enter(const Entry& entry);
  // Returns when all ranks have stepped as often as this one.
  void step();
  // What `rank` published when it last entered. Valid until this rank enters the next operation.
  const Entry& entry(int rank) const { return lines_[rank].entries[operations_ % 2]; }
  uint32_t operations() const { return operations_; }  // entered by this rank
  // The operation that `rank` has entered and this rank has not. Call it only while this rank is in no operation of the lane.
  std::optional<OperationHeader> ahead(int rank) const;

 private:
  Line* lines_;
  const CounterWait& wait_;
  std::vector<SharedCounter*> counters_;  // of the other ranks, those after this one first
  std::vector<int> peers_;
  uint32_t operations_ = 0, steps_ = 0;
};

}  // namespace trivet::comm
