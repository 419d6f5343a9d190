// A rank's seat in a group: who it is in messages, how long it waits, and where it looks for bad news while it waits.
//
// Every wait of the folder goes through Seat::await, and every error of an operation is made here, so that all of them name the
// group, the rank, the host and the operation. A peer that has arrived is seen before bad news: an operation that can complete
// does.
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
  std::chrono::milliseconds deadline{600000};  // for a rank that never comes
  std::shared_ptr<JobState> job;
  std::shared_ptr<Whereabouts> whereabouts;       // of the world; may be null
  Verdict* verdict = nullptr;                     // on the group's board
  std::function<bool(int world_rank)> has_ended;  // may be empty; such a rank enters nothing any more
  // May be empty. What a missing peer waits for this rank in, when that is another kind of operation: neither would ever end.
  std::function<std::optional<OperationHeader>(int peer, const OperationHeader& during)> waits_elsewhere;

  int size() const { return static_cast<int>(world_ranks.size()); }

  // Waits until all counters have reached `target`. counters[i] belongs to group rank peers[i].
  // Throws CommError: what the job was accused of, or NoProgress naming the ranks that are missing (and accuses the first of
  // them). Long before that the whereabouts name them.
  void await(std::span<SharedCounter* const> counters, std::span<const int> peers, uint32_t target,
             const OperationHeader& during) const;
  // One peer.
  void await(SharedCounter& counter, int peer, uint32_t target, const OperationHeader& during) const;
  // CommError RanksDisagree naming both; tells the rest of the job.
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
