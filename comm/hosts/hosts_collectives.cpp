#include "comm/hosts/hosts_collectives.h"

#include <algorithm>

namespace trivet::comm {
namespace {

// The first ranks of all hosts meet; the others meet nobody.
std::vector<int> meeting_peers(const HostMap& map) {
  std::vector<int> peers;
  for (int host = 0; host < map.hosts(); ++host)
    if (map.line == 0 && host != map.host) peers.push_back(map.ranks[host].front());
  return peers;
}

}  // namespace

HostsCollectives::HostsCollectives(const HostSide& side)
    : side_(side),
      lane_(side.board.data_lane(), side.map.here(), side.enters, side.steps),
      meeting_(side.link, MessageKind::HostHeader, meeting_peers(side.map)),
      flat_(side.link) {}

void HostsCollectives::run(const Call& call) {
  current_ = call.header;
  under_way_ = true;
  enter(call);
  if (is_direct(call.header)) {
    flat_.run(call);
  } else if (call.header.operation != Operation::Barrier && call.header.count > 0) {
    OperationHeader during = call.header;
    during.number = lane_.operations();
    HostMessages messages(side_.link, during);
    const Stages stages = stages_of(call, messages);
    run_stages(stages, messages);
  }
  under_way_ = false;  // stays true after a failure: the group cannot be used any more
}

// Checks whether hosts add one after another, so that the sum is in rank order.
bool HostsCollectives::is_chain(const OperationHeader& header) const {
  return header.reduce == ReduceOp::Sum && is_float(header.dtype) && side_.sums == HostSums::Chain;
}

// Checks whether ranks exchange data directly, each with every other.
bool HostsCollectives::is_direct(const OperationHeader& header) const {
  if (header.operation == Operation::AllToAll || header.operation == Operation::AllToAllV) return true;
  const bool sums = header.operation == Operation::AllReduce || header.operation == Operation::ReduceScatter;
  if (!sums || !is_float(header.dtype)) return false;
  if (header.reduce == ReduceOp::TreeSum) return !side_.map.in_equal_trees();
  return is_chain(header) && !side_.map.in_rank_order();
}

std::optional<OperationHeader> HostsCollectives::ahead(int rank) const {
  if (under_way_) return std::nullopt;
  const std::vector<int>& here = side_.map.here();
  const auto found = std::find(here.begin(), here.end(), rank);
  if (found == here.end()) return std::nullopt;
  return lane_.ahead(static_cast<int>(found - here.begin()));
}

// Returns when all ranks of the group have entered: those here first, then the first ranks of all hosts know of each other, and
// then the ranks here hear it from theirs.
void HostsCollectives::enter(const Call& call) {
  ++entered_;
  lane_.enter({.header = call.header});
  if (line() == 0) meeting_.enter({call.header});
  lane_.step();
}

void HostsCollectives::run_stages(const Stages& stages, HostMessages& messages) {
  int64_t last_lag = 0;
  for (const Stage& stage : stages.stages) last_lag = std::max(last_lag, stage.lag);
  for (int64_t step = 0; step < stages.chunks + last_lag; ++step) {
    if (step > 0) lane_.step();
    for (const Stage& stage : stages.stages)
      if (step >= stage.lag && step - stage.lag < stages.chunks) stage.work(step - stage.lag);
    messages.await_sends_before(stages.sends_under_way);
  }
  messages.await_sends_before(0);
}

HostsCollectives::Stages HostsCollectives::stages_of(const Call& call, HostMessages& messages) {
  const OperationHeader& header = call.header;
  switch (header.operation) {
    case Operation::AllReduce: return is_chain(header) ? chain_all_reduce(call, messages) : exchange_all_reduce(call, messages);
    case Operation::ReduceScatter:
      return is_chain(header) ? chain_reduce_scatter(call, messages) : exchange_reduce_scatter(call, messages);
    case Operation::AllGather: return all_gather(call, messages);
    default: return broadcast(call, messages);
  }
}

}  // namespace trivet::comm
