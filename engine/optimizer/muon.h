// Muon (Jordan et al. 2024): momentum whose matrices are orthogonalized, for the matrices of hidden blocks; Adam for embedding,
// head, gains and biases.
//
//   update       matrices: momentum, and the update that is yet to be orthogonalized, which is kept as a state
//                other parameters: Adam
//   finish       for each group: gather its updates; one rank orthogonalizes each matrix and broadcasts it -> new weights
#pragma once

#include "engine/optimizer/adam.h"

namespace trivet {

class MuonRule final : public UpdateRule {
 public:
  explicit MuonRule(const RuleContext& context) : context_(context) {}
  // A matrix may follow a parameter that Adam updates.
  bool merges_parameters() const override { return false; }
  void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) override;
  void run_pending(const UpdateSide& side) override { adam_.run(side); }
  void finish(const StepScalars& scalars) override;

 private:
  void gather(zero::ParameterGroup& group, TensorView updates);
  int orthogonalize(const OwnedGroup& group, TensorView updates, int matrix);
  void apply(const OwnedGroup& group, TensorView updates, const StepScalars& scalars);
  void apply_range(const OwnedGroup& group, const zero::OwnedRange& range, ConstTensorView updates, const StepScalars& scalars);

  RuleContext context_;
  PendingAdam adam_;
};

}  // namespace trivet
