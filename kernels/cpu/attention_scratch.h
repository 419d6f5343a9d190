// The temporary memory of a thread that computes attention, one head of one document at a time. A thread keeps as much as its
// largest call has needed. A plan says how much (kernels/workspace.h).
//
//   S tokens of the document, padded for the loops; D head size, padded; tiles of kTile tokens
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_loops.h"
#include "kernels/cpu/attention_pairs.h"
#include "kernels/cpu/scratch.h"

namespace trivet::kernels::cpu {

// Elements of the type of sums, for loops in that type.
struct LoopScratch {
  // keys, values [S, D]; queries, sums [kTile, D]; scores [kTile, kTile]; maximum, total [kTile]
  static constexpr int64_t forward(int64_t tokens, int64_t size) {
    return 2 * tokens * size + 2 * kTile * size + kTile * kTile + 2 * kTile;
  }
  // queries, douts and three gradients [S, D]; keys twice, values [kTile, D]; two tiles of scores; two statistics [S]
  static constexpr int64_t backward(int64_t tokens, int64_t size) {
    return 5 * tokens * size + 3 * kTile * size + 2 * kTile * kTile + 2 * tokens;
  }
};

// Counts elements for loops in pairs: float32 first, then bfloat16. Both begin at multiples of 64 bytes.
struct PairScratch {
  int64_t floats = 0, halves = 0;

  // sums [kTile, D]; scores; maximum, total [kTile]: keys, values [S, D]; probabilities
  static constexpr PairScratch forward(int64_t tokens, int64_t size) {
    return {kTile * (size + kTile + 2), 2 * tokens * size + kTile * kTile};
  }
  // three gradients [S, D]; two tiles; two statistics [S]: queries, douts [S, D]; keys twice, values [kTile, D]; three tiles
  static constexpr PairScratch backward(int64_t tokens, int64_t size) {
    return {3 * tokens * size + 2 * kTile * kTile + 2 * tokens, 2 * tokens * size + 3 * kTile * size + 3 * kTile * kTile};
  }
  constexpr int64_t bytes() const { return 4 * floats + 2 * halves; }
};

// Copies of some query heads and their key/value head, for documents whose length the pairs cannot take: `wide` tensors
// [S, (heads + 2) D], `narrow` ones [S, heads D], and statistics [heads, S] in float32.
constexpr int64_t padded_copy_bytes(int64_t tokens, int64_t size, int64_t heads, int64_t wide, int64_t narrow) {
  return 2 * tokens * size * (wide * (heads + 2) + narrow * heads) + 4 * tokens * heads;
}

// A thread's memory for the loops, and for the copies.
inline Scratch& attention_scratch() {
  thread_local Scratch scratch;
  return scratch;
}
inline Scratch& padded_copies() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace trivet::kernels::cpu
