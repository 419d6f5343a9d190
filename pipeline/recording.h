// What one rank recorded of one step.
//
//   step   an instruction on the program's thread, from its start to its end, waits included
//   work   a transfer, gather, reduction or sum of the instruction, on its stream's thread or else on the program's
//   wait   the program's thread had nothing to do but wait for such work; of no length where that was done already
//
// Times are milliseconds of a clock that all ranks share.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/event_graph.h"

namespace trivet::pipeline {

struct Recording {
  enum class Kind : uint8_t { Step, Work, Wait };
  static constexpr int kUpdate = -1;  // `at` of what belongs to the optimizer step, behind the program

  struct Span {
    Kind kind = Kind::Step;
    Queue queue = Queue::Compute;
    int at = 0;  // of the instruction in the program
    double start = 0, end = 0;
    bool operator==(const Span&) const = default;
  };

  double begin = 0, program_end = 0, end = 0;  // the step; its program and all transfers
  std::vector<Span> spans;                     // steps in the order in which they ran
  bool operator==(const Recording&) const = default;

  double update_ms() const { return end - program_end; }
};

}  // namespace trivet::pipeline
