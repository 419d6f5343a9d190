#include "pipeline/transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace trivet::pipeline {
namespace {

struct Ends {
  std::vector<size_t> sends, receives;  // positions in the programs of the two ranks
};
using Key = std::tuple<int, int, bool>;  // from rank, to rank, forward

bool is_send(Op op) { return op == Op::SendForward || op == Op::SendBackward; }
bool moves_activations(Op op) { return op == Op::SendForward || op == Op::ReceiveForward; }

// Returns the stage at the other end of the boundary.
int other_stage(const Instruction& i) { return i.stage + (i.op == Op::SendForward || i.op == Op::ReceiveBackward ? 1 : -1); }

Instruction receive_of(const Instruction& send) {
  return {moves_activations(send.op) ? Op::ReceiveForward : Op::ReceiveBackward, other_stage(send), send.microbatch};
}

Key link_of(const Instruction& i, int rank, const std::vector<Stage>& stages) {
  const auto fail = [&](const std::string& why) {
    throw std::logic_error(fmt::format("schedule: rank {}: {} {}", rank, to_string(i), why));
  };
  const auto has_stage = [&](int stage) { return stage >= 0 && stage < static_cast<int>(stages.size()); };
  if (!has_stage(i.stage) || stages[i.stage].rank != rank) fail("belongs to a stage that is not on this rank");
  if (!has_stage(other_stage(i))) fail("has no stage at the other end");
  const int other = stages[other_stage(i)].rank;
  if (other == rank) fail("goes from the rank to itself; stages on the same rank need no transfer");
  return is_send(i.op) ? Key{rank, other, moves_activations(i.op)} : Key{other, rank, moves_activations(i.op)};
}

LinkTransfers pair(const Schedule& schedule, const Key& key, const Ends& ends) {
  const auto [from, to, forward] = key;
  const Program &sender = schedule[from], &receiver = schedule[to];
  const auto text = [](const Program& program, const std::vector<size_t>& places, size_t k) {
    return k < places.size() ? to_string(program[places[k]]) : "nothing";
  };
  LinkTransfers link;
  for (size_t k = 0; k < std::max(ends.sends.size(), ends.receives.size()); ++k) {
    if (k >= ends.sends.size() || k >= ends.receives.size() || receive_of(sender[ends.sends[k]]) != receiver[ends.receives[k]])
      throw std::logic_error(
          fmt::format("schedule: ranks disagree about transfer {} from rank {} to rank {} ({}): rank {} has {}, but "
                      "rank {} has {}",
                      k, from, to, forward ? "forward" : "backward", from, text(sender, ends.sends, k), to,
                      text(receiver, ends.receives, k)));
    link.push_back({sender[ends.sends[k]], from, to, ends.sends[k], ends.receives[k]});
  }
  return link;
}

}  // namespace

bool has_sends(const Schedule& schedule) {
  return std::any_of(schedule.begin(), schedule.end(), [](const Program& program) {
    return std::any_of(program.begin(), program.end(), [](const Instruction& i) { return communicates_between_stages(i.op); });
  });
}

std::vector<LinkTransfers> find_links(const Schedule& schedule, const std::vector<Stage>& stages) {
  std::map<Key, Ends> ends;
  for (size_t rank = 0; rank < schedule.size(); ++rank)
    for (size_t at = 0; at < schedule[rank].size(); ++at) {
      const Instruction& i = schedule[rank][at];
      if (!communicates_between_stages(i.op)) continue;
      Ends& link = ends[link_of(i, static_cast<int>(rank), stages)];
      (is_send(i.op) ? link.sends : link.receives).push_back(at);
    }
  std::vector<LinkTransfers> links;
  for (const auto& [key, places] : ends) links.push_back(pair(schedule, key, places));
  return links;
}

}  // namespace trivet::pipeline
