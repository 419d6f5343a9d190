// Adagrad (kernels::Adagrad).
#pragma once

#include "engine/optimizer/update_rule.h"

namespace trivet {

class AdagradRule final : public UpdateRule {
 public:
  static std::vector<std::string> state_names(const OptimizerConfig&) { return {"sum_of_squares"}; }
  static constexpr bool kVisitsOnce = true, kBetasCycle = false;

  explicit AdagradRule(const RuleContext& context) : config_(context.config) {}
  void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) override;

 private:
  const OptimizerConfig& config_;
};

}  // namespace trivet
