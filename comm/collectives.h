// Blocking collective operations of one rank of a group. [Note: direct and staged]
//
// Direct: every rank publishes the addresses of its tensors, all ranks meet, each reads the others' memory, and all meet again.
// Each received byte is copied once.
//
// Staged: tensors pass through slots in chunks. All ranks step together at each bar:
//
//   step        0          1                 2                        3
//   chunk 0     fill 0 |   combine 0     |   drain 0              |
//   chunk 1            |   fill 1        |   combine 1            |   drain 1
//   chunk 2            |                 |   fill 2               |   combine 2 ...
//
// fill copies into the rank's own slot, combine (all_reduce only) sums the rank's part of the chunk over all slots, drain
// copies out of the other ranks' slots. Chunk k uses slot k mod 3; a rank fills it only after it has met all others since they
// drained chunk k - 3. The chunk count continues across operations, so that the first fill of the next operation may overlap
// the last drain.
//
// Either way, one rank sums each element, in rank order, so the results have the same bits.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "comm/call.h"
#include "comm/lane.h"
#include "comm/shared_memory.h"

namespace trivet::comm {

class Collectives {
 public:
  Collectives(const CounterWait& wait, const Board& board, const SharedMemory& memory);

  void run(const Call& call);
  // The operation in which `rank` waits for this rank, while this rank is in no collective operation.
  std::optional<OperationHeader> ahead(int rank) const { return under_way_ ? std::nullopt : lane_.ahead(rank); }

 private:
  struct Stages {
    int64_t chunks = 0;
    std::function<void(int64_t chunk)> fill, combine, drain;  // combine may be empty
  };

  void run_entered(const Call& call);
  uint64_t address_of(ConstTensorView tensor) const;
  void publish_counts(const ExchangeCounts& counts);
  void compare_counts(const Call& call) const;
  bool all_reachable() const;
  bool any_reachable() const;

  void direct(const Call& call);
  void direct_all_reduce(const Call& call);
  void direct_reduce_scatter(const Call& call);
  void direct_all_to_all_v(const Call& call);

  Stages stages_of(const Call& call);
  Stages staged_all_reduce(const Call& call);
  Stages staged_reduce_scatter(const Call& call);
  Stages staged_all_gather(const Call& call);
  Stages staged_broadcast(const Call& call);
  Stages staged_all_to_all(const Call& call);
  int64_t exchanged_chunks(const Call& call) const;
  void run_stages(const Stages& stages);
  std::byte* slot(int rank, int64_t chunk) const { return board_.collective_slot(rank, chunks_used_ + chunk); }

  const CounterWait& wait_;
  const Board& board_;
  const SharedMemory& memory_;
  Lane lane_;
  int64_t chunks_used_ = 0;
  std::atomic<bool> under_way_{false};
};

}  // namespace trivet::comm
