#include "trainer/evaluation_history.h"

#include <cmath>

namespace trivet::trainer {

void EvaluationHistory::add(int64_t step, double loss) {
  const bool first = state_.best_step == 0, finite = std::isfinite(loss);
  const bool improved = finite && (first || state_.best_loss - loss > threshold_);
  state_.step = step;
  state_.without_improvement = improved ? 0 : state_.without_improvement + 1;
  if (!finite || (!first && loss >= state_.best_loss)) return;
  state_.best_step = step;
  state_.best_loss = loss;
}

}  // namespace trivet::trainer
