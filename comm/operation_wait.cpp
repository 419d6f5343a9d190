#include "comm/operation_wait.h"

#include <fmt/format.h>

namespace trivet::comm {

OperationWait::OperationWait(const GroupErrors& errors, const WaitsElsewhere& waits_elsewhere, const OperationHeader& during)
    : errors_(errors), waits_elsewhere_(waits_elsewhere), during_(during) {
  if (const auto& world = errors_.job().activity) world->enter(activity());
}

void OperationWait::look(bool accused, const AwaitedPeers& peers) {
  if (accused) errors_.throw_accusation(during_);
  check_ended(peers);
  check_elsewhere(peers);
  const auto now = Clock::now();
  if (start_ == Clock::time_point{}) start_ = now;
  const JobView& job = errors_.job();
  if (job.activity && !reported_) reported_.emplace(*job.activity, activity(), job.deadline);
  if (reported_) {
    std::vector<int> in_world = missing(peers);
    for (int& rank : in_world) rank = errors_.self().world_ranks[rank];
    reported_->look(in_world);
  }
  if (now - start_ < job.deadline) return;
  const std::vector<int> late = missing(peers);
  if (!late.empty()) errors_.throw_no_progress(late, during_);
}

void OperationWait::ended_well() {
  if (reported_) reported_->ended_well();
}

void OperationWait::check_ended(const AwaitedPeers& peers) const {
  const auto& has_ended = errors_.job().has_ended;
  if (!has_ended) return;
  for (size_t i = 0; i < peers.ranks.size(); ++i) {
    const int peer = peers.ranks[i];
    if (!has_ended(errors_.self().world_ranks[peer]) || peers.has_arrived(i)) continue;
    if (peers.may_still_arrive && peers.may_still_arrive(i)) continue;
    errors_.throw_lost(peer, fmt::format("ended without entering {}", to_string(during_)), during_);
  }
}

void OperationWait::check_elsewhere(const AwaitedPeers& peers) const {
  if (!waits_elsewhere_) return;
  const int self = errors_.self().rank;
  for (size_t i = 0; i < peers.ranks.size(); ++i) {
    const int peer = peers.ranks[i];
    const auto other = waits_elsewhere_(peer, during_);
    if (!other || peers.has_arrived(i)) continue;
    if (self < peer) errors_.disagree(self, during_, peer, *other);
    errors_.disagree(peer, *other, self, during_);
  }
}

std::vector<int> OperationWait::missing(const AwaitedPeers& peers) const {
  std::vector<int> missing;
  for (size_t i = 0; i < peers.ranks.size(); ++i)
    if (!peers.has_arrived(i)) missing.push_back(peers.ranks[i]);
  return missing;
}

Activity OperationWait::activity() const {
  Activity activity;
  activity.header = during_;
  errors_.self().group.copy(activity.group, sizeof activity.group - 1);
  return activity;
}

}  // namespace trivet::comm
