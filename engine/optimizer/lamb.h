// LAMB (You et al. 2020): Adam's step for each parameter, scaled by the trust ratio of its weights.
//
//   update       moments, and the step without its ratio, which is kept as a state
//   finish       sums of squares of weights and steps, over whole parameters -> trust ratios -> new weights
//
// The trust ratio is ||w|| / ||step||, clamped; 1 if either norm is 0.
#pragma once

#include "engine/optimizer/update_rule.h"

namespace trivet {

class LambRule final : public UpdateRule {
 public:
  explicit LambRule(const RuleContext& context);
  bool writes_weights() const override { return false; }
  void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) override;
  void finish(const StepScalars& scalars) override;

 private:
  void sum_squares();
  void sum_squares_of(const UpdateSide& side);
  TensorView sums(const UpdateSide& side, size_t parameter);
  void apply(const UpdateSide& side, const zero::OwnedPiece& piece, const zero::OwnedRange& range, const StepScalars& scalars);

  RuleContext context_;
  Buffer sums_;          // int64 [parameter, 2, ExactSum::kWords]: squares of weights and updates
  Buffer sums_on_host_;  // the same for updates on the host
};

}  // namespace trivet
