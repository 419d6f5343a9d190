// A rank's seat in a group: its identity in messages, how long it waits, and where it looks for failures while it waits.
//
// Every wait in this folder goes through Seat::await, and every error of an operation is created here, so that all of them name
// the group, the rank, the host and the operation. An arrived peer is noticed before a failure, so an operation that can
// complete does.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/futex.h"
#include "comm/job_state.h"
#include "comm/operation_header.h"
#include "comm/verdict.h"
#include "comm/whereabouts.h"

namespace trivet::comm {

struct Seat {
  std::string group;
  int rank = 0;
  std::vector<int> world_ranks;  // of the group's ranks
  std::string host;
  std::chrono::milliseconds deadline{600000};  // for a rank that never arrives
  std::shared_ptr<JobState> job;
  std::shared_ptr<Whereabouts> whereabouts;       // the world's; may be null
  Verdict* verdict = nullptr;                     // on the group's board
  std::function<bool(int world_rank)> has_ended;  // may be empty; an ended rank enters no more operations
  // May be empty. The operation in which a missing peer waits for this rank, if it is of another kind: neither would ever end.
  std::function<std::optional<OperationHeader>(int peer, const OperationHeader& during)> waits_elsewhere;

  int size() const { return static_cast<int>(world_ranks.size()); }

  // Waits until all counters have reached `target`. counters[i] belongs to group rank peers[i]. Throws CommError with the job's
  // accusation, or NoProgress with the missing ranks (and accuses the first of them). The whereabouts name the missing ranks
  // long before that.
  void await(std::span<SharedCounter* const> counters, std::span<const int> peers, uint32_t target,
             const OperationHeader& during) const;
  // The same for one peer.
  void await(SharedCounter& counter, int peer, uint32_t target, const OperationHeader& during) const;
  // Throws CommError RanksDisagree that names both ranks, and tells the rest of the job.
  [[noreturn]] void disagree(int first, const OperationHeader& by_first, int second, const OperationHeader& by_second) const;

 private:
  std::string prefix() const;
  Whereabout place_of(const OperationHeader& during) const;
  std::vector<int> missing_in_world(std::span<SharedCounter* const> counters, std::span<const int> peers,
                                    uint32_t target) const;
  void check_elsewhere(std::span<SharedCounter* const> counters, std::span<const int> peers, uint32_t target,
                       const OperationHeader& during) const;
  void check_ended(std::span<SharedCounter* const> counters, std::span<const int> peers, uint32_t target,
                   const OperationHeader& during) const;
  [[noreturn]] void throw_disagreement(const std::string& what) const;
  [[noreturn]] void throw_accusation(const OperationHeader& during) const;
  [[noreturn]] void give_up(const std::vector<int>& missing, const OperationHeader& during) const;
};

}  // namespace trivet::comm
