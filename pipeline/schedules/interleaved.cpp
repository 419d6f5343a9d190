// Each rank has V chunks: rank r has the stages r, r + P, r + 2P ... A microbatch visits every rank V times.
//
// Forwards run in groups of P microbatches: a group goes through chunk 0, then the same group goes through chunk 1 ... While
// the last microbatch of the group leaves rank P - 1 in one chunk, the first is back at rank 0 for the next chunk. Backwards
// run in the same way with the chunks reversed. Before its first backward a rank has to run a group's forwards in all chunks
// but the last, and two more forwards for each rank after it (one on the way there, one until the gradient is back).
#include <algorithm>

#include "pipeline/schedules/first_microbatches.h"
#include "pipeline/schedules/schedules.h"

namespace trivet::pipeline {
namespace {

struct Turn {
  int chunk, microbatch;
};

// Returns the forwards of a rank, in order. `microbatches` is a multiple of `ranks`.
std::vector<Turn> forward_turns(int ranks, int microbatches, int chunks) {
  std::vector<Turn> turns;
  for (int group = 0; group < microbatches; group += ranks)
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int m = group; m < group + ranks; ++m) turns.push_back({chunk, m});
  return turns;
}

}  // namespace

Schedule interleaved(int ranks, int microbatches, int chunks) {
  const int groups = (microbatches + ranks - 1) / ranks;
  const std::vector<Turn> turns = forward_turns(ranks, groups * ranks, chunks);
  Schedule schedule;
  for (int rank = 0; rank < ranks; ++rank) {
    Program& program = schedule.emplace_back();
    const auto stage = [&](int chunk) { return chunk * ranks + rank; };
    const auto forward = [&](const Turn& t) { program.push_back({Op::Forward, stage(t.chunk), t.microbatch}); };
    const size_t warmup = std::min(turns.size(), static_cast<size_t>((chunks - 1) * ranks + 2 * (ranks - 1 - rank)));
    for (size_t n = 0; n < warmup; ++n) forward(turns[n]);
    for (size_t n = 0; n < turns.size(); ++n) {
      if (n + warmup < turns.size()) forward(turns[n + warmup]);
      const int backward_stage = stage(chunks - 1 - turns[n].chunk);
      program.push_back({Op::BackwardInput, backward_stage, turns[n].microbatch});
      program.push_back({Op::BackwardWeight, backward_stage, turns[n].microbatch});
    }
  }
  return first_microbatches(std::move(schedule), microbatches);  // the last group may be smaller
}

}  // namespace trivet::pipeline
