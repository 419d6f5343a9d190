// Closed formulas for GPT-like transformers from the literature. Tests compare models with them, and published runs are
// described in them.
//
//   L layers, h hidden, a heads, V vocabulary, s sequence length, B global batch; all in units of elements and FLOPs
//
// References: Narayanan et al. 2021 (Megatron-LM on GPU clusters, SC21), parameters and FLOPs; Korthikanti et al. 2022
// (Reducing Activation Recomputation in Large Transformer Models), recomputation.
#pragma once

#include <cstdint>

namespace trivet::autotune {

struct TransformerShape {
  int64_t layers = 0, hidden = 0, heads = 0, vocabulary = 0, sequence = 0;
};

// 12 L h^2 (1 + 13 / (12 h) + (V + s) / (12 L h)): learned positions, tied LM head, feed-forward of 4 h.
double gpt_parameters(const TransformerShape& shape);

// h^2 (2 + 2 g / a) + 3 h f + 2 h for a layer of a Llama with g heads of keys and values, a gated feed-forward of f and two
// norms.
double llama_layer_parameters(int64_t hidden, int64_t heads, int64_t key_value_heads, int64_t feed_forward);

// The forward of a layer's attention over one sequence, as Megatron-LM counts: 4 s h p (h + h g / a) for its four projections,
// and 2 s^2 h p for the unmasked half of the scores. p is the total width of the heads in units of h. With the backward it is
// three times as much.
double attention_forward_flops(const TransformerShape& shape, int64_t key_value_heads, double projection = 1);

enum class RecomputedPart { Nothing, Attention, Everything };

// One step over B sequences: forward, backward and what is recomputed. All attention scores count, though half of them are
// masked.
//
//   nothing     72 B s L h^2 (1 + s / (6 h) + V / (12 h L))       the model's FLOPs
//   attention   72 B s L h^2 (1 + s / (3 h) + V / (12 h L))       as the paper bounds it
//   everything  96 B s L h^2 (1 + s / (6 h) + V / (16 h L))
double gpt_step_flops(const TransformerShape& shape, int64_t sequences, RecomputedPart recomputed = RecomputedPart::Nothing);

}  // namespace trivet::autotune
