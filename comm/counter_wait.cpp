#include "comm/counter_wait.h"

namespace trivet::comm {

CounterWait::CounterWait(RankInGroup self, JobView job, Disagreement* disagreement)
    : disagreement_(disagreement),
      errors_(std::move(self), std::move(job), [disagreement](const std::string& what) { disagreement->record(what); }) {}

void CounterWait::await(std::span<SharedCounter* const> counters, std::span<const int> peers, uint32_t target,
                        const OperationHeader& during) const {
  constexpr std::chrono::milliseconds kShortSlice{1};
  OperationWait wait(errors_, waits_elsewhere_, during);
  const auto slice = while_waiting_ ? kShortSlice : OperationWait::kSlice;
  for (SharedCounter* counter : counters) {
    while (!counter->wait(target, slice)) {
      if (while_waiting_) while_waiting_();
      const bool accused = errors_.job().state->accused();
      if (counter->reached(target)) break;
      if (disagreement_->recorded()) errors_.throw_disagreement(disagreement_->text());
      wait.look(accused, {peers, [&](size_t i) { return counters[i]->reached(target); }});
    }
  }
  wait.ended_well();
}

void CounterWait::await(SharedCounter& counter, int peer, uint32_t target, const OperationHeader& during) const {
  SharedCounter* const counters[] = {&counter};
  const int peers[] = {peer};
  await(counters, peers, target, during);
}

}  // namespace trivet::comm
