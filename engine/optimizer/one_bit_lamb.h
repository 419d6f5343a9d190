// 1-bit LAMB (Li et al. 2021, arXiv:2104.06069), as DeepSpeed has it.
//
//   updates 1 to freeze_step   LAMB without correction of the bias. Gradients are summed over the data ranks, and each
//                              parameter's trust ratio is averaged over the updates (frozen_ratio).
//   then                       v stays. Each rank adds its own gradient to the momentum, and the ranks average their momenta by
//                              signs (zero::average_signs): gradients are not summed. A second variance, the fresh one, follows
//                              the gradients that the momenta imply, and says by how much the frozen ratio no longer fits:
//
//     update = m / (sqrt(v) + eps) + decay w
//     factor = the largest (sqrt(v) + eps) / (sqrt(fresh) + eps) of the parameter's elements, bounded (next_ratio_factor)
//     w -= lr frozen_ratio factor update
//
// DeepSpeed brings the momenta of all parameters to one size before it takes their signs, because it has one scale for all of
// them. Here a block of signs has its own scale and belongs to one parameter (every parameter begins at a block), so that this
// would change nothing.
//
// A parameter whose trust ratio was 1 in all of the warm-up (its weights or its gradients were all 0) has the frozen ratio 0:
// it is no longer updated.
#pragma once

#include <vector>

#include "core/exact_sum.h"
#include "engine/optimizer/lamb.h"

namespace trivet {

// The factor of a frozen ratio. `largest`: of the quotients above. `share`: what the update would be in size without decay,
// relative to what it is; decay keeps its ratio. `last`: the factor of the update before.
double next_ratio_factor(double largest, double share, double last, const OptimizerConfig& config);

class OneBitLambRule final : public UpdateRule {
 public:
  explicit OneBitLambRule(const RuleContext& context);
  bool writes_weights() const override { return false; }
  void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) override;
  void finish(const StepScalars& scalars) override;

 private:
  // The rows of parameter_scalars(), as optimizer_scalar_names() has them.
  enum Scalar { kFrozenRatio, kRatioFactor };

  void average_ratios();
  void freeze();
  void make_updates(const OwnedGroup& group);
  void make_update(const zero::OwnedRange& range, const zero::FlatParameter& flat, double weight_decay);
  void apply_updates(const OwnedGroup& group, const StepScalars& scalars);
  double ratio_factor(size_t parameter, const zero::FlatParameter& flat, double last) const;
  void read_sums();

  const UpdateSide& device() const { return context_.sides.device(); }
  TensorView of_update(size_t parameter) { return lamb_.sums(device(), parameter).slice(ExactSum::kWords, ExactSum::kWords); }
  TensorView without_decay(size_t parameter) { return lamb_.sums(device(), parameter).slice(0, ExactSum::kWords); }

  RuleContext context_;
  LambRule lamb_;   // of the warm-up; its sums are used afterwards, too: of updates without decay, and of updates
  Buffer largest_;  // float32 [parameter]
  // As read from the device.
  std::vector<int64_t> sums_on_host_;  // [parameter, 2, ExactSum::kWords]
  std::vector<float> largest_on_host_;
};

}  // namespace trivet
