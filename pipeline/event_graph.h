// Everything that happens when a schedule runs, and what each event waits for. This is the one place that states the rules of
// the executor, as a graph: validate() proves that no event waits forever, and simulate() finds when each event happens.
//
//   step      an instruction of a program; steps run in order. F waits for its input, I for its gradient ...
//   transfer  a send and its receive; it waits for the previous transfer of the link (pipeline/transfers.h)
//   job       an UNSHARD or REDUCE on its rank's queue, in parallel with the program; the first use of a block waits for its
//             UNSHARD, a REDUCE or TIE waits for the previous REDUCE
//   meeting   of the ranks that have the same TIE, or of all ranks at SUM_LOSS
//
// F waits for its RECV_F, or for the previous stage's F if that is on the same rank or the schedule has no sends; I does the
// same in the other direction. Within a stage the blocks run one after another: a stage's F is complete with its last block,
// its I with its first.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "pipeline/instruction.h"
#include "pipeline/queue.h"
#include "pipeline/work_index.h"

namespace trivet::pipeline {

struct Event {
  int rank = -1;
  size_t at = 0;  // position of the instruction in the rank's program
  Queue queue = Queue::Compute;
  int peer = -1;         // for a transfer: the receiving rank
  bool instant = false;  // takes no time: the instruction's cost is at another event
};

struct EventGraph {
  std::vector<Event> events;               // the steps come first, numbered like the instructions
  std::vector<std::pair<int, int>> waits;  // (earlier event, event that waits for it)
};

enum class Overlap : uint8_t { Queues, None };  // None: the program waits for each UNSHARD and REDUCE

// A rank's program waits at a REDUCE while this many earlier ones are in flight. More would keep more whole gradients.
inline constexpr int kReductionsInFlight = 1;

// Throws std::logic_error if ranks disagree about a transfer or a meeting.
EventGraph event_graph(const Schedule& schedule, const WorkIndex& work, Overlap overlap = Overlap::Queues);

// Returns, for each event, when it ends if all start as soon as they can; negative: never. `earliest` [event]: the time before
// which the event does not start; empty: 0.
std::vector<double> end_times(const EventGraph& graph, std::span<const double> durations, std::vector<double> earliest = {});

// Throws std::logic_error naming every rank with a step that never ends, and its instruction.
void expect_all_end(const Schedule& schedule, const Numbering& numbers, std::span<const double> ends);

}  // namespace trivet::pipeline
