// Plants one flipped bit into a tiny run: in a weight, in the result of a product that makes a gradient, in memory where
// gradients are summed, or in a message. Everything goes through seams that any program has: an observer of kernels, a World
// that passes calls on, and the engine's own parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/equivalence/tiny_run.h"

namespace trivet::test {

enum class Fault : uint8_t { Weight, Gradient, Accumulator, Message };

// Where a bit is flipped. `count`s are taken modulo what there is, so that any number is a place.
struct Placement {
  Fault fault = Fault::Weight;
  int rank = 0;
  int64_t step = 0;     // from 0
  uint64_t moment = 0;  // which product (or, for messages, which sum over ranks) of the step
  uint64_t place = 0;   // which element of the tensor, or of all gradients or weights of the rank
  int bit = 0;
};

// What was done: filled during the run.
struct Planted {
  bool done = false;
  std::string parameter;  // empty: not known
};

// How many products and how many sums of gradients over ranks each rank has in one step.
struct Moments {
  std::vector<uint64_t> products, sums;  // [rank]
};
Moments count_moments(const TinyRun& run);

// Makes `run` one in which the bit is flipped. `planted` must outlive the run.
TinyRun with_fault(TinyRun run, const Placement& placement, Planted& planted);

}  // namespace trivet::test
