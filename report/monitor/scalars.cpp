#include "report/monitor/scalars.h"

namespace trivet::monitor {
namespace {

// The names are TRL's.
void add_rewards(const std::optional<Rewards>& rewards, const std::optional<double>& accuracy, bool evaluation,
                 std::vector<Scalar>& scalars) {
  if (!rewards) return;
  const auto add = [&](std::string_view of_step, std::string_view of_evaluation, double value) {
    scalars.push_back({evaluation ? of_evaluation : of_step, value});
  };
  add("Train/Samples/rewards/chosen", "Train/Samples/eval_rewards/chosen", rewards->chosen);
  add("Train/Samples/rewards/rejected", "Train/Samples/eval_rewards/rejected", rewards->rejected);
  add("Train/Samples/rewards/margins", "Train/Samples/eval_rewards/margins", rewards->margin());
  if (accuracy && !evaluation) scalars.push_back({"Train/Samples/rewards/accuracies", *accuracy});
}

}  // namespace

std::vector<Scalar> scalars_of(const StepMetrics& metrics) {
  std::vector<Scalar> scalars;
  if (!metrics.without_targets) scalars.push_back({"Train/Samples/train_loss", metrics.loss});
  scalars.push_back({"Train/Samples/lr", metrics.lr});
  if (metrics.loss_scale != 0) scalars.push_back({"Train/Samples/loss_scale", metrics.loss_scale});
  if (metrics.without_targets) return scalars;
  scalars.push_back({"Train/Samples/grad_norm", metrics.grad_norm});
  add_rewards(metrics.rewards, metrics.accuracy(), false, scalars);
  if (!metrics.experts.empty()) {
    scalars.push_back({"Train/Samples/experts/fullest", metrics.fullest_expert()});
    scalars.push_back({"Train/Samples/experts/idle", static_cast<double>(metrics.idle_experts())});
  }
  return scalars;
}

std::vector<Scalar> scalars_of(const Evaluation& evaluation) {
  if (evaluation.without_targets) return {};
  std::vector<Scalar> scalars{{"Train/Samples/eval_loss", evaluation.loss}};
  if (const auto accuracy = evaluation.accuracy()) scalars.push_back({"Train/Samples/eval_accuracy", *accuracy});
  add_rewards(evaluation.rewards, evaluation.accuracy(), true, scalars);
  return scalars;
}

}  // namespace trivet::monitor
