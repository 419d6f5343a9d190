// 1F1B and its zero-bubble relatives. They differ in two numbers per rank:
//
//   warmup  number of forwards before the first backward. They fill the wait for the first gradient, but each one keeps its
//           activations in memory
//   delay   number of microbatches by which W runs later than I. The delayed W are left for the end of the step, where they
//           fill the time in which the last gradients travel back to the earlier ranks
//
//   1f1b    P - 1 - r      0       zb-h1   P - 1 - r      r       zb-2p   2(P - 1 - r)   2r
//
// A rank keeps warmup + delay + 1 microbatches between F and W.
#include <algorithm>

#include "pipeline/schedules/schedules.h"

namespace trivet::pipeline {
namespace {

Program one_by_one(int stage, int microbatches, int warmup, int delay) {
  Program program;
  warmup = std::min(warmup, microbatches);
  int next_weight = 0;
  for (int m = 0; m < warmup; ++m) program.push_back({Op::Forward, stage, m});
  for (int m = 0; m < microbatches; ++m) {
    if (m + warmup < microbatches) program.push_back({Op::Forward, stage, m + warmup});
    program.push_back({Op::BackwardInput, stage, m});
    if (m >= delay) program.push_back({Op::BackwardWeight, stage, next_weight++});
  }
  while (next_weight < microbatches) program.push_back({Op::BackwardWeight, stage, next_weight++});
  return program;
}

}  // namespace

Schedule one_forward_one_backward(int ranks, int microbatches) {
  Schedule schedule;
  for (int r = 0; r < ranks; ++r) schedule.push_back(one_by_one(r, microbatches, ranks - 1 - r, 0));
  return schedule;
}

Schedule zero_bubble_h1(int ranks, int microbatches) {
  Schedule schedule;
  for (int r = 0; r < ranks; ++r) schedule.push_back(one_by_one(r, microbatches, ranks - 1 - r, r));
  return schedule;
}

Schedule zero_bubble_2p(int ranks, int microbatches) {
  Schedule schedule;
  for (int r = 0; r < ranks; ++r) schedule.push_back(one_by_one(r, microbatches, 2 * (ranks - 1 - r), 2 * r));
  return schedule;
}

}  // namespace trivet::pipeline
