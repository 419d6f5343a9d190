// The transfers between the ranks of a schedule.
//
// A link is (from rank, to rank, direction). Its sends run in the order of the sender's program and its receives in the order
// of the receiver's. A transfer is a rendezvous of the k-th send with the k-th receive, so the two must name the same
// microbatch at the same boundary between stages.
#pragma once

#include <cstddef>
#include <vector>

#include "pipeline/instruction.h"
#include "pipeline/stages.h"

namespace trivet::pipeline {

// A receive never blocks its program; it is only posted. A send blocks its program while this many earlier sends of the link
// are in flight.
inline constexpr size_t kSendsInFlight = 2;

struct Transfer {
  Instruction send;
  int from = 0, to = 0;                // ranks
  size_t send_at = 0, receive_at = 0;  // positions in their programs
};

using LinkTransfers = std::vector<Transfer>;  // one link's, in order

bool has_sends(const Schedule& schedule);

// Throws std::logic_error ("ranks disagree") naming a send and a receive that are paired but do not carry the same tensor, or
// one that has no counterpart.
std::vector<LinkTransfers> find_links(const Schedule& schedule, const std::vector<Stage>& stages);

}  // namespace trivet::pipeline
