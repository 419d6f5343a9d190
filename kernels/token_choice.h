// Choosing tokens of each sequence at random, and moving their rows: for a block that computes only some of the tokens
// (model/dropped_tokens.h).
//
// B sequences, S tokens per sequence, of which K are chosen, H elements of a token.
#pragma once

#include <cstdint>

#include "core/number.h"
#include "kernels/kernel_call.h"

namespace trivet::kernels {

// Chooses, in sequence b, the K tokens with the smallest random words and writes their places, ascending. The word of token s
// is that of an element of dropout: word s % 4 of philox(key, s / 4, step 2^32 + first_sample + b). Among equal words,
// the earlier one is smaller.
struct ChooseTokens {
  TensorView chosen;     // int32 [B, K]
  int64_t sequence = 0;  // S, at least K
  uint64_t key = 0;      // random_key(seed, name of the site)
  Number step = 0;
  int64_t first_sample = 0;

  void check() const;
  KernelCall describe() const;
};

// out[b, k] = x[b, chosen[b, k]]
struct GatherTokens {
  ConstTensorView x;       // [B, S, H]
  ConstTensorView chosen;  // int32 [B, K], each from 0 to S - 1
  TensorView out;          // [B, K, H]

  void check() const;
  KernelCall describe() const;
};

// out[b, chosen[b, k]] = x[b, k]; the other rows of out keep what they have. No row may be chosen twice.
struct ScatterTokens {
  ConstTensorView x;       // [B, K, H]
  ConstTensorView chosen;  // int32 [B, K], each from 0 to S - 1
  TensorView out;          // [B, S, H]

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
