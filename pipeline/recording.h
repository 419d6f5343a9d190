// The record of one rank's step.
//
//   step   an instruction on the program's thread, from its start to its end, waits included
//   work   a transfer, gather, reduction or sum of an instruction, on the thread of its stream or else on the program's thread
//   wait   a time in which the program's thread only waited for such work; its length is 0 if the work was already done
//
// Times are milliseconds of a clock that all ranks share.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/event_graph.h"

namespace trivet::pipeline {

struct Recording {
  enum class Kind : uint8_t { Step, Work, Wait };
  static constexpr int kUpdate = -1;  // `at` of spans of the optimizer step, which follows the program

  struct Span {
    Kind kind = Kind::Step;
    Queue queue = Queue::Compute;
    int at = 0;  // position of the instruction in the program
    double start = 0, end = 0;
    bool operator==(const Span&) const = default;
  };

  double begin = 0, program_end = 0, end = 0;  // times of the step; program_end: the program and all transfers are done
  std::vector<Span> spans;                     // steps in the order in which they ran
  bool operator==(const Recording&) const = default;

  double update_ms() const { return end - program_end; }
};

}  // namespace trivet::pipeline
