// Blocking collective operations of one rank of a group whose ranks are on several hosts, several of them on each.
//
// Ranks on one host share a board, as in [Note: direct and staged] of collectives.h; tensors pass through its slots in chunks.
// Data crosses between hosts by lines: rank p of a host communicates with rank p of the others, and handles its part of
// every chunk. `fewest` ranks of each host do this, as many as the host with the fewest has. So all connections between two
// hosts carry the same amount, and each byte crosses once. [Note: sums over hosts]
//
// Chain (a sum of floats, unless the job chose otherwise): host 0 adds its ranks in order and sends the sums, unrounded, to
// host 1, which adds its ranks ...; the last host rounds, and the results come back the same way. So an element is added in
// rank order, with the same bits as on one host. 2 S bytes leave a host between two others.
//
//   host 0   fill | sum ->                      | <- result | drain
//   host 1   fill |     -> sum, round ->  drain |
//
// Exchange (integers, maxima, tree sums; sums of floats if the job chose HostSums::Exchange): each host combines its own ranks,
// sends the other hosts what they combine further, in the order of the hosts, and gets the results of the others.
// 2 (H-1)/H S bytes leave a host.
//
// All ranks of a host step together; a rank that waits for another on its own host moves its messages meanwhile. In an exchange
// and in all_gather every host waits for every other, so a rank sends some chunks more before it waits for the first
// (steps_ahead): otherwise the links would be idle from one step to the next. In a chain and in broadcast a host does not wait
// for those after it; a step ends when the transport has taken what it sends.
#pragma once

#include <atomic>
#include <functional>

#include "comm/board.h"
#include "comm/call.h"
#include "comm/host_sums.h"
#include "comm/hosts/host_map.h"
#include "comm/hosts/host_messages.h"
#include "comm/lane.h"
#include "comm/transport/group_meeting.h"
#include "comm/transport/transport_collectives.h"

namespace trivet::comm {

// The objects that the ranks of a host work with. All of them outlive the operations.
struct HostSide {
  const GroupLink& link;  // to all ranks of the group
  const HostMap& map;
  const Board& board;         // board of the ranks here, by line
  const CounterWait& enters;  // waits for ranks here that have not entered an operation
  const CounterWait& steps;   // waits for ranks here that may themselves wait for another host
  HostSums sums = HostSums::Chain;
};

class HostsCollectives {
 public:
  explicit HostsCollectives(const HostSide& side);

  void run(const Call& call);
  // The operation in which `rank` waits for this rank, while this rank is in no collective operation; known for ranks here.
  std::optional<OperationHeader> ahead(int rank) const;
  // Returns how many operations this rank has entered. On any thread.
  uint32_t entered() const { return entered_; }
  bool under_way() const { return under_way_; }
  // The operation that is under way. On a thread that waits in it.
  const OperationHeader& current() const { return current_; }

 private:
  // The work on a chunk `lag` steps after the first stage.
  struct Stage {
    int64_t lag = 0;
    std::function<void(int64_t chunk)> work;
  };
  struct Stages {
    int64_t chunks = 0;
    std::vector<Stage> stages;
    int64_t sends_under_way = 0;  // steps whose sends need not be complete before the next step
  };

  void enter(const Call& call);
  bool is_chain(const OperationHeader& header) const;
  bool is_direct(const OperationHeader& header) const;
  void run_stages(const Stages& stages, HostMessages& messages);
  Stages stages_of(const Call& call, HostMessages& messages);
  Stages chain_all_reduce(const Call& call, HostMessages& messages);
  Stages chain_reduce_scatter(const Call& call, HostMessages& messages);
  class ExchangedAllReduce;
  Stages exchange_all_reduce(const Call& call, HostMessages& messages);
  Stages exchange_reduce_scatter(const Call& call, HostMessages& messages);
  Stages all_gather(const Call& call, HostMessages& messages);
  Stages broadcast(const Call& call, HostMessages& messages);

  int lines() const { return static_cast<int>(side_.map.here().size()); }
  int line() const { return side_.map.line; }
  bool drives() const { return line() < side_.map.fewest(); }
  // The rank of another host that communicates with this one.
  int partner(int host) const { return side_.map.ranks[host][line()]; }
  std::byte* slot(int line, int64_t chunk) const { return side_.board.collective_slot(line, chunk); }
  std::byte* result(int line, int64_t chunk) const { return side_.board.result_slot(line, chunk); }

  const HostSide side_;
  std::atomic<uint32_t> entered_{0};
  OperationHeader current_;
  Lane lane_;
  GroupMeeting meeting_;       // for the first ranks of the hosts
  TransportCollectives flat_;  // for operations that gain nothing from sharing memory
  std::atomic<bool> under_way_{false};
};

}  // namespace trivet::comm
