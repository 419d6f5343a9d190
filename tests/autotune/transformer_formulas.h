// Closed formulas for GPT-like transformers from the literature, in which published runs are described.
//
//   L layers, h hidden, a heads, V vocabulary, s sequence length, B global batch; all in units of elements and FLOPs
//
// References: Narayanan et al. 2021 (Megatron-LM on GPU clusters, SC21), FLOPs; Korthikanti et al. 2022
// (Reducing Activation Recomputation in Large Transformer Models), recomputation.
#pragma once

#include <cstdint>

namespace trivet::autotune {

struct TransformerShape {
  int64_t layers = 0, hidden = 0, heads = 0, vocabulary = 0, sequence = 0;
};

enum class RecomputedPart { Nothing, Attention, Everything };

// One step over B sequences: forward, backward and what is recomputed. All attention scores count, though half of them are
// masked.
//
//   nothing     72 B s L h^2 (1 + s / (6 h) + V / (12 h L))       the model's FLOPs
//   attention   72 B s L h^2 (1 + s / (3 h) + V / (12 h L))       as the paper bounds it
//   everything  96 B s L h^2 (1 + s / (6 h) + V / (16 h L))
double gpt_step_flops(const TransformerShape& shape, int64_t sequences, RecomputedPart recomputed = RecomputedPart::Nothing);

}  // namespace trivet::autotune
