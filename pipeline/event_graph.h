// Everything that happens when a schedule runs, and what each event waits for: the rules of the executor, once, as a graph.
// validate() proves that no event waits for ever; simulate() finds when each happens.
//
//   step      an instruction of a program, one after the other: F waits for its input, I for its gradient ...
//   transfer  a send meets its receive; after the one before it on the link (pipeline/transfers.h)
//   job       an UNSHARD or REDUCE on its rank's queue, beside the program; the first use of a block waits for its UNSHARD, a
//             REDUCE or TIE for the REDUCE before it
//   meeting   the ranks that have the same TIE, or all at SUM_LOSS
//
// F waits for its RECV_F, or for the previous stage's F when that is on the same rank or the schedule has no sends; I likewise.
// Within a stage the blocks follow each other; a stage's F is complete with its last block, its I with its first.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "pipeline/instruction.h"
#include "pipeline/work.h"

namespace trivet::pipeline {

// Tensor: sums over the tensor axis. They are part of the computation here; only what was measured tells them apart.
enum class Queue : uint8_t { Compute, Gather, Reduce, Send, Meet, Tensor };

struct Event {
  int rank = -1;
  size_t at = 0;  // of the instruction in the rank's program
  Queue queue = Queue::Compute;
  int peer = -1;         // of a transfer: the rank that receives
  bool instant = false;  // takes no time: what the instruction costs is at another event
};

struct EventGraph {
  std::vector<Event> events;               // first the steps, numbered as the instructions are
  std::vector<std::pair<int, int>> waits;  // (earlier event, event that waits for it)
};

enum class Overlap : uint8_t { Queues, None };  // None: UNSHARD and REDUCE keep the program waiting

// A rank's program waits at a REDUCE while so many earlier ones run beside it. More would hold more whole gradients.
inline constexpr int kReductionsInFlight = 1;

// Throws std::logic_error where ranks disagree about a transfer or a meeting.
EventGraph event_graph(const Schedule& schedule, const Work& work, Overlap overlap = Overlap::Queues);

// [event] When it ends if all start as soon as they can; negative: never. `earliest`: [event] not before; empty: 0.
std::vector<double> end_times(const EventGraph& graph, std::span<const double> durations, std::vector<double> earliest = {});

// Throws std::logic_error naming every rank with a step that never ends, and its instruction.
void expect_all_end(const Schedule& schedule, const Numbering& numbers, std::span<const double> ends);

}  // namespace trivet::pipeline
