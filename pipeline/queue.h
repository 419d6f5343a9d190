// Names where the work of a step runs: the program itself, and the queues (streams) that run in parallel with it. Timelines
// have a row for each of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/axis.h"

namespace trivet::pipeline {

// After the queues of the program come those of layers, one for each axis of the mesh over which layers communicate; what they
// wait for is part of the computation, and only measurements tell it apart.
enum class Queue : uint8_t { Compute, Gather, Reduce, Send, Meet, Copy, FirstAxis };
inline constexpr int kQueues = static_cast<int>(Queue::FirstAxis) + kAxes;

constexpr Queue queue_of(Axis axis) { return static_cast<Queue>(static_cast<int>(Queue::FirstAxis) + static_cast<int>(axis)); }
constexpr bool is_of_layers(Queue queue) { return queue >= Queue::FirstAxis; }
// The axis for which a wait for this queue counts: that of a queue of layers; the pipeline axis for messages between stages;
// the data axis for gathers and reductions (gradients of a rank's own tokens are summed over the tensor axis on Queue::Reduce,
// and count here, too). nullopt: the program itself, copies, and meetings of all ranks.
constexpr std::optional<Axis> axis_of(Queue queue) {
  if (is_of_layers(queue)) return static_cast<Axis>(static_cast<int>(queue) - static_cast<int>(Queue::FirstAxis));
  if (queue == Queue::Send) return Axis::Pipeline;
  if (queue == Queue::Gather || queue == Queue::Reduce) return Axis::Data;
  return std::nullopt;
}

constexpr std::string_view queue_name(Queue queue) {
  switch (queue) {
    case Queue::Compute: return "compute";
    case Queue::Gather: return "gather";
    case Queue::Reduce: return "reduce";
    case Queue::Send: return "send";
    case Queue::Meet: return "meet";
    case Queue::Copy: return "copy";
    default: return name_of(*axis_of(queue));
  }
}

}  // namespace trivet::pipeline
