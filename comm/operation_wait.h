// One rank's wait for others in an operation. Each transport waits in its own way, for kSlice at a time; between slices, look()
// decides whether waiting longer can help. This is the same for every transport.
#pragma once

#include <optional>
#include <span>

#include "comm/group_errors.h"

namespace trivet::comm {

// The ranks that are waited for, as group ranks. A rank that has arrived stays arrived.
struct AwaitedPeers {
  std::span<const int> ranks;
  std::function<bool(size_t index)> has_arrived;  // checks ranks[index]
  // Tells whether something that ranks[index] sent may still be on its way after it has ended. Empty: nothing may.
  std::function<bool(size_t index)> may_still_arrive = {};
};

// Returns the operation in which `peer` waits for this rank, if it is of another kind than `during`: neither would ever end.
using WaitsElsewhere = std::function<std::optional<OperationHeader>(int peer, const OperationHeader& during)>;

class OperationWait {
 public:
  static constexpr std::chrono::milliseconds kSlice{20};  // longest delay until a failure is noticed

  // Records that this rank has entered the operation. All arguments must outlive the wait; `waits_elsewhere` may be empty.
  OperationWait(const GroupErrors& errors, const WaitsElsewhere& waits_elsewhere, const OperationHeader& during);

  // Call it when a slice has passed and a peer is missing. `accused` says whether the job had an accusation before this rank
  // last looked whether the peer has arrived; an arrived peer is noticed before a failure, so an operation that can complete
  // does. Throws CommError: with the job's accusation; PeerLost for a missing peer that has ended; RanksDisagree for one that
  // waits elsewhere; NoProgress with all missing peers at the deadline. The world's activity names them long before that.
  void look(bool accused, const AwaitedPeers& peers);
  void ended_well();

 private:
  using Clock = std::chrono::steady_clock;
  void check_ended(const AwaitedPeers& peers) const;
  void check_elsewhere(const AwaitedPeers& peers) const;
  std::vector<int> missing(const AwaitedPeers& peers) const;
  Activity activity() const;

  const GroupErrors& errors_;
  const WaitsElsewhere& waits_elsewhere_;
  const OperationHeader& during_;
  Clock::time_point start_{};  // set by the first look
  std::optional<WorldActivity::Wait> reported_;
};

}  // namespace trivet::comm
