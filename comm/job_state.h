// Records why a job ends: the first accusation, which every rank reports alike.
//
// There is one JobState per process (with run_threads, one for all ranks). The liveness monitor, World::abort and an operation
// whose deadline has passed make accusations; the first one wins and stays. A thread that waits for a peer checks here whenever
// it wakes. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace trivet::comm {

struct Accusation {
  int world_rank = -1;
  std::string host;
  ExitCode code = ExitCode::PeerLost;
  std::string cause;  // "eof", "silent", "abort: ..."
};

class JobState {
 public:
  // The first one wins; later ones are ignored. Wakes wait_for and calls the subscribed listeners.
  void accuse(Accusation accusation) noexcept;
  bool accused() const noexcept { return accused_.load(std::memory_order_acquire); }
  std::optional<Accusation> accusation() const;
  // True as soon as somebody is accused, false when the time is up.
  bool wait_for(std::chrono::milliseconds time) const;
  // Waits for an accusation, before a peer is accused because its connection has ended. False if there is none after `grace`,
  // and rank 0, which would pass on an accusation, has been heard since. Rank 0 may be the rank that is lost: then the others
  // hear nothing until Liveness accuses it.
  bool wait_for_accusation(std::chrono::milliseconds grace) const;
  // Called by Liveness on ranks other than 0: rank 0 was known to be alive at this time, directly or from the ranks between.
  // Where it is never called, this process decides.
  void heard_rank_zero(std::chrono::steady_clock::time_point when) noexcept;
  // Called once, on the accuser's thread, with the first accusation (at once when there is one already). Must not throw, wait
  // or call back into this object.
  void subscribe(std::function<void(const Accusation&)> listener);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> accused_{false};
  std::atomic<std::chrono::steady_clock::time_point> heard_rank_zero_{};
  std::optional<Accusation> accusation_;  // never changes again once set
  std::vector<std::function<void(const Accusation&)>> listeners_;
};

}  // namespace trivet::comm
