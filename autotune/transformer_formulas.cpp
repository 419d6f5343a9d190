#include "autotune/transformer_formulas.h"

#include <algorithm>

namespace trivet::autotune {
namespace {

struct Letters {
  explicit Letters(const TransformerShape& shape)
      : L(static_cast<double>(shape.layers)),
        h(static_cast<double>(shape.hidden)),
        a(static_cast<double>(shape.heads)),
        V(static_cast<double>(shape.vocabulary)),
        s(static_cast<double>(shape.sequence)) {}
  double L, h, a, V, s;
};

}  // namespace

double gpt_parameters(const TransformerShape& shape) {
  const auto [L, h, a, V, s] = Letters(shape);
  return 12 * L * h * h * (1 + 13 / (12 * h) + (V + s) / (12 * L * h));
}

double llama_layer_parameters(int64_t hidden, int64_t heads, int64_t key_value_heads, int64_t feed_forward) {
  const double h = static_cast<double>(hidden), f = static_cast<double>(feed_forward);
  const double share = static_cast<double>(key_value_heads) / static_cast<double>(heads);
  return h * h * (2 + 2 * share) + 3 * h * f + 2 * h;
}

double attention_forward_flops(const TransformerShape& shape, int64_t key_value_heads, double projection) {
  const auto [L, h, a, V, s] = Letters(shape);
  return 4 * s * h * projection * (h + h * static_cast<double>(key_value_heads) / a) + 2 * s * s * h * projection;
}

double gpt_step_flops(const TransformerShape& shape, int64_t sequences, RecomputedPart recomputed) {
  const auto [L, h, a, V, s] = Letters(shape);
  const double layers = static_cast<double>(sequences) * s * L * h * h;
  switch (recomputed) {
    case RecomputedPart::Nothing: return 72 * layers * (1 + s / (6 * h) + V / (12 * h * L));
    case RecomputedPart::Attention: return 72 * layers * (1 + s / (3 * h) + V / (12 * h * L));
    case RecomputedPart::Everything: return 96 * layers * (1 + s / (6 * h) + V / (16 * h * L));
  }
  return 0;
}

double flops_per_token(double parameters, const TransformerShape& shape, bool causal_half) {
  const auto [L, h, a, V, s] = Letters(shape);
  return 6 * parameters + (causal_half ? 6 : 12) * L * h * s;
}

double activation_bytes_per_layer(const TransformerShape& shape, int64_t microbatch, int64_t tensor, bool sequence_parallel,
                                  SavedActivations saved) {
  const auto [L, h, a, V, s] = Letters(shape);
  const double t = static_cast<double>(tensor), input = s * static_cast<double>(microbatch) * h;
  const double split = sequence_parallel ? t : 1;  // for what is not part of the split products
  if (saved == SavedActivations::LayerInputs) return 2 * input / split;
  const double scores = saved == SavedActivations::All ? 5 * a * s / h : 0;
  return input * (10 / split + 24 / t + scores / t);
}

double activation_bytes_of_feed_forward(const TransformerShape& shape, int64_t microbatch, int64_t tensor,
                                        int64_t feed_forward) {
  const auto [L, h, a, V, s] = Letters(shape);
  const double input = s * static_cast<double>(microbatch) * h;
  return input * (18 + 4 * static_cast<double>(feed_forward) / h) / static_cast<double>(tensor);
}

double layers_in_flight(int64_t layers, int64_t pipeline, int64_t microbatches, int64_t chunks) {
  const double L = static_cast<double>(layers), p = static_cast<double>(pipeline);
  if (chunks <= 1) return L / p * static_cast<double>(std::min(pipeline, microbatches));
  return L * (1 + (p - 1) / (p * static_cast<double>(chunks)));
}

}  // namespace trivet::autotune
