#include "comm/group_errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/log.h"

namespace trivet::comm {

void GroupErrors::throw_accusation(const OperationHeader& during) const {
  const Accusation a = *job_.state->accusation();
  if (a.code == ExitCode::RanksDisagree)
    throw CommError(a.code, fmt::format("{}ranks disagree while this one runs {}: {}", self_.prefix(), to_string(during),
                                        escape_control(a.cause)));
  if (a.world_rank == self_.world_ranks[self_.rank])
    throw CommError(a.code, fmt::format("{}the job considers this rank lost during {}: {}", self_.prefix(), to_string(during),
                                        escape_control(a.cause)));
  throw CommError(a.code, fmt::format("{}lost rank {} (host {}) during {}: {}", self_.prefix(), a.world_rank, a.host,
                                      to_string(during), escape_control(a.cause)));
}

void GroupErrors::accuse(int rank, ExitCode code, const std::string& cause) const {
  const int in_world = self_.world_ranks[rank];
  job_.state->accuse({in_world, job_.hosts.empty() ? self_.host : job_.hosts[in_world], code, cause});
}

void GroupErrors::throw_lost(int rank, const std::string& cause, const OperationHeader& during) const {
  accuse(rank, ExitCode::PeerLost, cause);
  throw_accusation(during);
}

void GroupErrors::throw_no_progress(const std::vector<int>& missing, const OperationHeader& during) const {
  std::vector<int> in_world;
  for (int rank : missing) in_world.push_back(self_.world_ranks[rank]);
  const std::string what = fmt::format("has not entered {} of group \"{}\" within {} s", to_string(during), self_.group,
                                       static_cast<double>(job_.deadline.count()) / 1000);
  accuse(missing.front(), ExitCode::NoProgress, what);
  throw CommError(ExitCode::NoProgress, fmt::format("{}no progress: rank {} (world rank {}) {}", self_.prefix(),
                                                    fmt::join(missing, ", "), fmt::join(in_world, ", "), what));
}

void GroupErrors::throw_disagreement(const std::string& what) const {
  throw CommError(ExitCode::RanksDisagree,
                  fmt::format("{}ranks disagree: {}; all ranks of a group must make the same calls in the same order",
                              self_.prefix(), what));
}

void GroupErrors::disagree(int first, const OperationHeader& by_first, int second, const OperationHeader& by_second) const {
  disagree(first, to_string(by_first), second, to_string(by_second));
}

void GroupErrors::disagree_about_counts(const OperationHeader& header, ExchangeEnd sender, ExchangeEnd receiver) const {
  const std::string call = to_string(header);
  disagree(sender.rank, fmt::format("{} with {} elements for rank {}", call, sender.count, receiver.rank), receiver.rank,
           fmt::format("{} with {} elements from rank {}", call, receiver.count, sender.rank));
}

void GroupErrors::disagree(int first, const std::string& by_first, int second, const std::string& by_second) const {
  const std::string what = fmt::format("rank {} (world rank {}) runs {}, rank {} (world rank {}) runs {}", first,
                                       self_.world_ranks[first], by_first, second, self_.world_ranks[second], by_second);
  if (tell_group_) tell_group_(what);
  accuse(second, ExitCode::RanksDisagree, fmt::format("group \"{}\": {}", self_.group, what));
  throw_disagreement(what);
}

}  // namespace trivet::comm
