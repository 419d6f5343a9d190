// Closed formulas for GPT-like transformers from the literature. Plans and counts of the meta kernels are checked against them,
// and published runs are described in them.
//
//   L layers, h hidden, a heads, V vocabulary, s sequence length, b microbatch, B global batch, t tensor ranks; all in units
//   of elements, FLOPs and bytes; activations in 16 bits with dropout masks of 1 byte
//
// References: Narayanan et al. 2021 (Megatron-LM on GPU clusters, SC21), parameters and FLOPs; Korthikanti et al. 2022
// (Reducing Activation Recomputation in Large Transformer Models), activations.
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

// 6 N + 12 L h s (PaLM, Chowdhery et al. 2022, appendix B), or 6 N + 6 L h s if only the unmasked half of the scores counts.
double flops_per_token(double parameters, const TransformerShape& shape, bool causal_half);

enum class SavedActivations {
  All,  // s b h (34 + 5 a s / h); with tensor ranks s b h (10 + 24 / t + 5 a s / (h t)), or all / t with sequence parallelism
  AllButScores,  // attention is recomputed, or never stores its scores: s b h (10 + 24 / t); 34 s b h / t
  LayerInputs,   // everything is recomputed: 2 s b h; 2 s b h / t
};
// Bytes of one layer on one tensor rank.
double activation_bytes_per_layer(const TransformerShape& shape, int64_t microbatch, int64_t tensor, bool sequence_parallel,
                                  SavedActivations saved);

// The same for a feed-forward of any width f and for fewer heads of keys and values, without the scores, by Megatron-LM's
// estimate: s b h (18 + 4 f / h) / t.
double activation_bytes_of_feed_forward(const TransformerShape& shape, int64_t microbatch, int64_t tensor,
                                        int64_t feed_forward);

// How many layers' activations the first stage of a pipeline holds with 1F1B: L / p layers of min(p, m) microbatches, and with
// v chunks per rank (interleaved) L (1 + (p - 1) / (p v)).
double layers_in_flight(int64_t layers, int64_t pipeline, int64_t microbatches, int64_t chunks);

}  // namespace trivet::autotune
