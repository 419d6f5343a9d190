// One rank's use of a lane of the board: all ranks enter an operation, see what the others entered, and continue in steps.
#pragma once

#include <vector>

#include "comm/board.h"
#include "comm/counter_wait.h"

namespace trivet::comm {

class Lane {
 public:
  // All ranks of the group share the board.
  Lane(Line* lines, const CounterWait& wait);
  // Only these group ranks do; each has the line of its place in the list. `steps` is for the waits of step(), whose peers may
  // have to wait for ranks elsewhere.
  Lane(Line* lines, std::vector<int> ranks, const CounterWait& enters, const CounterWait& steps);

  // Returns when all ranks that share the board have entered; throws on all of them when headers differ.
  void enter(const Entry& entry);
  // Returns when all ranks have stepped as often as this one.
  void step();
  // Returns the message of the rank of this line when it last entered. Valid until this rank enters the next operation.
  const Entry& entry(int line) const { return lines_[line].entries[operations_ % 2]; }
  uint32_t operations() const { return operations_; }  // entered by this rank
  // The operation that the rank of this line has entered and this rank has not. Call it only while this rank is in no operation
  // of the lane.
  std::optional<OperationHeader> ahead(int line) const;

 private:
  void meet(const CounterWait& wait);

  Line* lines_;
  const std::vector<int> ranks_;  // by line
  const int line_;                // this rank's line
  const CounterWait& enters_;
  const CounterWait& step_wait_;
  std::vector<SharedCounter*> counters_;  // the other ranks' counters, those after this one first
  std::vector<int> peers_;
  uint32_t operations_ = 0, steps_ = 0;
};

}  // namespace trivet::comm
