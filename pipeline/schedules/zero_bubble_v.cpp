// Rank r has stage r on the way down the V and stage 2P - 1 - r on the way up. A rank that keeps activations for long on one
// leg keeps them only briefly on the other, so all ranks hold equally many. The last stage is on rank 0.
//
//   warm-up     forwards of the down leg until the first microbatch comes back up, then forwards of both legs in turn
//   first I     the up leg's backward follows as soon as its forward is done
//   steady      F I W of each leg in turn: one microbatch goes in, one comes out, and no rank waits
//   ending      I comes first, because other ranks wait for it; W fills the remaining time
#include <algorithm>
#include <array>

#include "pipeline/schedules/first_microbatches.h"
#include "pipeline/schedules/schedules.h"

namespace trivet::pipeline {
namespace {

enum Leg { Down, Up };

// Writes one rank's program: each call adds the given op for that leg's next microbatch.
class LegWriter {
 public:
  LegWriter(int down_stage, int up_stage) : stages_{down_stage, up_stage} {}

  int done(Op op, Leg leg) const { return counts_[leg][index(op)]; }
  void add(Op op, Leg leg) { program_.push_back({op, stages_[leg], counts_[leg][index(op)]++}); }
  void add_all(Leg leg) {
    for (Op op : {Op::Forward, Op::BackwardInput, Op::BackwardWeight}) add(op, leg);
  }
  void add_backward(Leg leg) {
    add(Op::BackwardInput, leg);
    add(Op::BackwardWeight, leg);
  }
  Program take() { return std::move(program_); }

 private:
  static size_t index(Op op) { return static_cast<size_t>(op); }

  std::array<int, 2> stages_;
  std::array<std::array<int, 3>, 2> counts_{};  // [leg][F, I, W]
  Program program_;
};

Program v_program(int rank, int ranks, int microbatches) {
  LegWriter v(rank, 2 * ranks - 1 - rank);
  const int after = ranks - rank;  // this rank and those below it in the V
  for (int n = 0; n < 2 * after - 1; ++n) v.add(Op::Forward, Down);
  for (int n = 0; n < rank; ++n) {
    v.add(Op::Forward, Up);
    v.add(Op::Forward, Down);
  }
  for (int n = 0; n < after; ++n) v.add_all(Up);
  while (v.done(Op::Forward, Up) < microbatches) {
    if (v.done(Op::Forward, Down) < microbatches) v.add(Op::Forward, Down);
    v.add_backward(Down);
    v.add_all(Up);
  }
  for (int n = 0; n < rank; ++n) {
    v.add(Op::BackwardInput, Down);
    v.add(Op::BackwardInput, Up);
  }
  for (int n = 0; n < after; ++n) v.add_backward(Down);
  for (Leg leg : {Up, Down})
    while (v.done(Op::BackwardWeight, leg) < microbatches) v.add(Op::BackwardWeight, leg);
  return v.take();
}

}  // namespace

Schedule zero_bubble_v(int ranks, int microbatches) {
  Schedule schedule;
  const int enough = std::max(microbatches, 2 * ranks - 1);  // the warm-up of rank 0 needs 2P - 1
  for (int rank = 0; rank < ranks; ++rank) schedule.push_back(v_program(rank, ranks, enough));
  return first_microbatches(std::move(schedule), microbatches);
}

}  // namespace trivet::pipeline
