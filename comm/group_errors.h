// Creates every error of a group's operations, so that all of them name the group, the rank, the host and the operation, and so
// that all ranks of a job name the same first culprit. This is the same for every transport.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/job_state.h"
#include "comm/operation_header.h"
#include "comm/rank_in_group.h"
#include "comm/world_activity.h"

namespace trivet::comm {

// A rank's view of its job; the same in all of its groups.
struct JobView {
  std::chrono::milliseconds deadline{600000};  // for a rank that never enters an operation
  std::shared_ptr<JobState> state;
  std::shared_ptr<WorldActivity> activity;        // may be null
  std::function<bool(int world_rank)> has_ended;  // may be empty; an ended rank enters no more operations
  std::vector<std::string> hosts = {};            // by world rank, for errors; empty if all ranks are on this rank's host
};

class GroupErrors {
 public:
  // `tell_group` may be empty; it is called with a disagreement that this rank has found, before the job is told.
  using TellGroup = std::function<void(const std::string& what)>;
  GroupErrors(RankInGroup self, JobView job, TellGroup tell_group = {})
      : self_(std::move(self)), job_(std::move(job)), tell_group_(std::move(tell_group)) {}

  const RankInGroup& self() const { return self_; }
  const JobView& job() const { return job_; }

  // Throws CommError with the accusation that the job already has.
  [[noreturn]] void throw_accusation(const OperationHeader& during) const;
  // Accuses a group rank and throws CommError: PeerLost with this cause, or with what the job was told before.
  [[noreturn]] void throw_lost(int rank, const std::string& cause, const OperationHeader& during) const;
  // Throws CommError NoProgress that names the missing group ranks, and accuses the first of them.
  [[noreturn]] void throw_no_progress(const std::vector<int>& missing, const OperationHeader& during) const;
  // Accuses the second group rank and throws CommError RanksDisagree, which names both and their calls.
  [[noreturn]] void disagree(int first, const OperationHeader& by_first, int second, const OperationHeader& by_second) const;
  // The same for ranks that disagree in all_to_all_v about how many elements one sends the other.
  struct ExchangeEnd {
    int rank = 0;
    int64_t count = 0;  // elements
  };
  [[noreturn]] void disagree_about_counts(const OperationHeader& header, ExchangeEnd sender, ExchangeEnd receiver) const;
  // Throws CommError RanksDisagree for a disagreement that another rank has found.
  [[noreturn]] void throw_disagreement(const std::string& what) const;

 private:
  [[noreturn]] void disagree(int first, const std::string& by_first, int second, const std::string& by_second) const;

  void accuse(int rank, ExitCode code, const std::string& cause) const;

  RankInGroup self_;
  JobView job_;
  TellGroup tell_group_;
};

}  // namespace trivet::comm
