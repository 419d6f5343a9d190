// Stochastic gradient descent, with or without momentum (kernels::Sgd).
#pragma once

#include "engine/optimizer/update_rule.h"

namespace trivet {

class SgdRule final : public UpdateRule {
 public:
  static std::vector<std::string> state_names(const OptimizerConfig& config) {
    return config.momentum > 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
  }
  static constexpr bool kVisitsOnce = true, kBetasCycle = false;

  explicit SgdRule(const RuleContext& context) : config_(context.config) {}
  void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) override;

 private:
  const OptimizerConfig& config_;
};

}  // namespace trivet
