// What the ranks of a schedule send each other.
//
// A link is (from rank, to rank, direction). Its sends run in the order of the sender's program, its receives in that of the
// receiver's, and a transfer is a rendezvous of the k-th of each, so these must name the same microbatch of the same boundary.
#pragma once

#include <cstddef>
#include <vector>

#include "pipeline/instruction.h"
#include "pipeline/stages.h"

namespace trivet::pipeline {

// A receive never blocks its program, it is only posted. A send blocks it while this many earlier ones of the link are under
// way.
inline constexpr size_t kSendsInFlight = 2;

struct Transfer {
  Instruction send;
  int from = 0, to = 0;                // ranks
  size_t send_at = 0, receive_at = 0;  // in their programs
};

using Link = std::vector<Transfer>;  // in order

bool has_sends(const Schedule& schedule);

// Throws std::logic_error ("ranks disagree") naming a send and a receive that meet and are not of the same tensor, or one that
// meets none.
std::vector<Link> find_links(const Schedule& schedule, const std::vector<Stage>& stages);

}  // namespace trivet::pipeline
