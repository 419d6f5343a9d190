#include "engine/monitor/scalars.h"

namespace trivet::monitor {

std::vector<Scalar> scalars_of(const StepMetrics& metrics) {
  std::vector<Scalar> scalars{{"Train/Samples/train_loss", metrics.loss}, {"Train/Samples/lr", metrics.lr}};
  if (metrics.loss_scale != 0) scalars.push_back({"Train/Samples/loss_scale", metrics.loss_scale});
  scalars.push_back({"Train/Samples/grad_norm", metrics.grad_norm});
  return scalars;
}

std::vector<Scalar> scalars_of(const Evaluation& evaluation) {
  std::vector<Scalar> scalars{{"Train/Samples/eval_loss", evaluation.loss}};
  if (const auto accuracy = evaluation.accuracy()) scalars.push_back({"Train/Samples/eval_accuracy", *accuracy});
  return scalars;
}

}  // namespace trivet::monitor
