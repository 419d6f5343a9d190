#include "tests/autotune/transformer_formulas.h"

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

}  // namespace trivet::autotune
