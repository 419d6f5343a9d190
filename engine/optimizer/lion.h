// Lion (kernels::Lion).
#pragma once

#include "engine/optimizer/update_rule.h"

namespace trivet {

class LionRule final : public UpdateRule {
 public:
  explicit LionRule(const RuleContext&) {}
  void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) override;
};

}  // namespace trivet
