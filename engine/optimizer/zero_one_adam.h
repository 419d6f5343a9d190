// 0/1 Adam (Lu et al. 2022, arXiv:2202.06009), as DeepSpeed has it, except for decay.
//
//   updates 1 to var_freeze_step
//     refreshes            Adam without correction of the bias. Gradients are summed over the data ranks. They become rarer
//     between refreshes    v stays. The ranks average their gradients by signs with error feedback (zero::average_signs), and
//                          the momentum follows this average
//   then                   v stays, and each rank goes on by itself, with its own momentum and its own weights. It adds up what
//                          its momenta have moved, until the ranks synchronise:
//
//     each update          m = beta1 m + (1 - beta1) g;   sum += lr m
//                          base -= lr decay base;   w = base - sum / (sqrt(v) + eps)
//     a synchronisation    sum = the average of the ranks' sums, by signs with error feedback
//                          m = sum / (sum of lr);   base -= sum / (sqrt(v) + eps);   w = base;   sum = 0
//
// kind_of_update says which update does what. The base, which is the master weights, has the same bits on all ranks in every
// update; m and `sum` differ between synchronisations. Errors begin anew at the end of the first phase, because they are of
// gradients before and of sums later.
//
// DeepSpeed adds the decay to the sum, so that it gets into the momentum, whose updates then repeat it: with a synchronisation
// in every update, weights decay 1 / (1 - beta1) times as much as weight_decay says. Here only the base decays.
//
// If all learning rates since the last synchronisation were 0, there is nothing to average, and the momenta stay as they are.
//
// Elements whose v is 0 had no gradient in any refresh, or none that its square can show. They are not updated, except for
// decay.
#pragma once

#include "engine/config/optimizer_states.h"
#include "engine/optimizer/adam.h"

namespace trivet {

class ZeroOneAdamRule final : public UpdateRule {
 public:
  explicit ZeroOneAdamRule(const RuleContext& context) : context_(context) {}
  void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) override;
  void run_pending(const UpdateSide& side) override { pending_.run(side); }
  void finish(const StepScalars& scalars) override;
  void finish_load() override;

 private:
  UpdateKind kind_of(const StepScalars& scalars) const;
  void add_to_error(const UpdateSide& side, const Elements& elements);
  void update_locally(const UpdateSide& side, const Elements& elements, const StepScalars& scalars);
  void follow_average_gradient(zero::ParameterGroup& group, const StepScalars& scalars);
  void forget_errors(zero::ParameterGroup& group);
  double add_learning_rate(zero::ParameterGroup& group, double lr, UpdateKind kind);
  void synchronise(zero::ParameterGroup& group, double lr_sum);

  kernels::Kernels& kernels() { return context_.resources.kernels; }

  RuleContext context_;
  PendingAdam pending_;
};

}  // namespace trivet
