#include "comm/seat.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/log.h"

namespace trivet::comm {
namespace {

constexpr std::chrono::milliseconds kSlice{20};  // how late a failure may be noticed

}  // namespace

void Seat::await(std::span<SharedCounter* const> counters, std::span<const int> peers, uint32_t target,
                 const OperationHeader& during) const {
  if (whereabouts) whereabouts->enter(place_of(during));
  std::chrono::steady_clock::time_point start{};  // set only when a rank has to be waited for
  std::optional<Whereabouts::Wait> wait;
  for (SharedCounter* counter : counters) {
    while (!counter->wait(target, kSlice)) {
      const bool accused = job->accused();
      if (counter->reached(target)) break;
      if (verdict->given()) throw_disagreement(verdict->text());
      if (accused) throw_accusation(during);
      check_ended(counters, peers, target, during);
      check_elsewhere(counters, peers, target, during);
      const auto now = std::chrono::steady_clock::now();
      if (start == std::chrono::steady_clock::time_point{}) start = now;
      if (whereabouts && !wait) wait.emplace(*whereabouts, place_of(during), deadline);
      if (wait) wait->look(missing_in_world(counters, peers, target));
      if (now - start < deadline) continue;
      std::vector<int> missing;
      for (size_t i = 0; i < counters.size(); ++i)
        if (!counters[i]->reached(target)) missing.push_back(peers[i]);
      if (!missing.empty()) give_up(missing, during);
    }
  }
  if (wait) wait->ended_well();
}

Whereabout Seat::place_of(const OperationHeader& during) const {
  Whereabout place;
  place.header = during;
  group.copy(place.group, sizeof place.group - 1);
  return place;
}

std::vector<int> Seat::missing_in_world(std::span<SharedCounter* const> counters, std::span<const int> peers,
                                        uint32_t target) const {
  std::vector<int> missing;
  for (size_t i = 0; i < counters.size(); ++i)
    if (!counters[i]->reached(target)) missing.push_back(world_ranks[peers[i]]);
  return missing;
}

void Seat::await(SharedCounter& counter, int peer, uint32_t target, const OperationHeader& during) const {
  SharedCounter* const counters[] = {&counter};
  const int peers[] = {peer};
  await(counters, peers, target, during);
}

void Seat::check_ended(std::span<SharedCounter* const> counters, std::span<const int> peers, uint32_t target,
                       const OperationHeader& during) const {
  if (!has_ended) return;
  for (size_t i = 0; i < counters.size(); ++i) {
    if (!has_ended(world_ranks[peers[i]]) || counters[i]->reached(target)) continue;
    job->accuse({world_ranks[peers[i]], host, ExitCode::PeerLost, fmt::format("ended without entering {}", to_string(during))});
    throw_accusation(during);
  }
}

void Seat::check_elsewhere(std::span<SharedCounter* const> counters, std::span<const int> peers, uint32_t target,
                           const OperationHeader& during) const {
  if (!waits_elsewhere) return;
  for (size_t i = 0; i < counters.size(); ++i) {
    const auto other = waits_elsewhere(peers[i], during);
    if (!other || counters[i]->reached(target)) continue;
    if (rank < peers[i]) disagree(rank, during, peers[i], *other);
    disagree(peers[i], *other, rank, during);
  }
}

void Seat::disagree(int first, const OperationHeader& by_first, int second, const OperationHeader& by_second) const {
  const std::string what =
      fmt::format("rank {} (world rank {}) runs {}, rank {} (world rank {}) runs {}", first, world_ranks[first],
                  to_string(by_first), second, world_ranks[second], to_string(by_second));
  verdict->give(what);
  job->accuse({world_ranks[second], host, ExitCode::RanksDisagree, fmt::format("group \"{}\": {}", group, what)});
  throw_disagreement(what);
}

void Seat::throw_disagreement(const std::string& what) const {
  throw CommError(
      ExitCode::RanksDisagree,
      fmt::format("{}ranks disagree: {}; all ranks of a group must make the same calls in the same order", prefix(), what));
}

std::string Seat::prefix() const {
  return fmt::format("comm: group \"{}\" rank {} (world rank {}, host {}): ", group, rank, world_ranks[rank], host);
}

void Seat::throw_accusation(const OperationHeader& during) const {
  const Accusation a = *job->accusation();
  if (a.code == ExitCode::RanksDisagree)
    throw CommError(a.code, fmt::format("{}ranks disagree while this one runs {}: {}", prefix(), to_string(during),
                                        escape_control(a.cause)));
  if (a.world_rank == world_ranks[rank])
    throw CommError(a.code, fmt::format("{}the job considers this rank lost during {}: {}", prefix(), to_string(during),
                                        escape_control(a.cause)));
  throw CommError(a.code, fmt::format("{}lost rank {} (host {}) during {}: {}", prefix(), a.world_rank, a.host,
                                      to_string(during), escape_control(a.cause)));
}

void Seat::give_up(const std::vector<int>& missing, const OperationHeader& during) const {
  std::vector<int> in_world;
  for (int peer : missing) in_world.push_back(world_ranks[peer]);
  const std::string what = fmt::format("has not entered {} of group \"{}\" within {} s", to_string(during), group,
                                       static_cast<double>(deadline.count()) / 1000);
  job->accuse({in_world.front(), host, ExitCode::NoProgress, what});
  throw CommError(ExitCode::NoProgress, fmt::format("{}no progress: rank {} (world rank {}) {}", prefix(),
                                                    fmt::join(missing, ", "), fmt::join(in_world, ", "), what));
}

}  // namespace trivet::comm
