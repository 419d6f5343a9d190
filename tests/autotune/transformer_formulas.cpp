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
