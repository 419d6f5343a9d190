// Lion (kernels::Lion).
#pragma once

#include "engine/optimizer/update_rule.h"

namespace trivet {

class LionRule final : public UpdateRule {
 public:
  static std::vector<std::string> state_names(const OptimizerConfig&) { return {"moment"}; }
  static constexpr bool kVisitsOnce = true, kBetasCycle = true;

  explicit LionRule(const RuleContext&) {}
  void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) override;
};

}  // namespace trivet
