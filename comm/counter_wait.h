// Lets the ranks of a group that share memory wait for each other, on counters. Every wait on a counter goes through await().
#pragma once

#include <span>

#include "comm/disagreement.h"
#include "comm/futex.h"
#include "comm/operation_wait.h"

namespace trivet::comm {

class CounterWait {
 public:
  // `disagreement` is in memory that all ranks of the group share, and outlives this object.
  CounterWait(RankInGroup self, JobView job, Disagreement* disagreement);
  CounterWait(const CounterWait&) = delete;
  CounterWait& operator=(const CounterWait&) = delete;

  int rank() const { return errors_.self().rank; }
  int size() const { return errors_.self().size(); }
  const GroupErrors& errors() const { return errors_; }
  // Before the first wait.
  void set_waits_elsewhere(WaitsElsewhere waits_elsewhere) { waits_elsewhere_ = std::move(waits_elsewhere); }
  // Called about every millisecond while this rank waits, so that its messages to other hosts move. Before the first wait.
  void set_while_waiting(std::function<void()> while_waiting) { while_waiting_ = std::move(while_waiting); }

  // Waits until all counters have reached `target`. counters[i] belongs to group rank peers[i]. Throws what OperationWait::look
  // throws, and RanksDisagree when a rank of the group has recorded a disagreement.
  void await(std::span<SharedCounter* const> counters, std::span<const int> peers, uint32_t target,
             const OperationHeader& during) const;
  // Does the same for one peer.
  void await(SharedCounter& counter, int peer, uint32_t target, const OperationHeader& during) const;
  // Throws CommError RanksDisagree that names both group ranks, and tells the rest of the group and of the job.
  [[noreturn]] void disagree(int first, const OperationHeader& by_first, int second, const OperationHeader& by_second) const {
    errors_.disagree(first, by_first, second, by_second);
  }

 private:
  Disagreement* disagreement_;
  GroupErrors errors_;
  WaitsElsewhere waits_elsewhere_;
  std::function<void()> while_waiting_;
};

}  // namespace trivet::comm
