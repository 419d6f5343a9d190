// The interface of an optimizer: what it computes from gradients, weights and states. One class for each optimizer, chosen by
// the table in rules.cpp.
//
//   OptimizerStep   visits all that the rank owns:   update, update, run_pending | update, update, run_pending | ...
//                   when everything was visited:     finish
//
// For code that only needs to know which states an optimizer has, engine/config/optimizer_traits.cpp lists them.
#pragma once

#include <memory>

#include "engine/config/optimizer_config.h"
#include "engine/optimizer/owned_parameters.h"
#include "engine/optimizer/step_scalars.h"
#include "engine/optimizer/update_sides.h"

namespace trivet {

// The parts that rules are made from; all of them outlive the rules.
struct RuleContext {
  const OptimizerConfig& config;
  const OwnedParameters& owned;
  const UpdateSides& sides;
  const UpdateResources& resources;
};

// Absent if the view is.
inline TensorView part_of(TensorView view, int64_t first, int64_t count) {
  return view.absent() ? TensorView{} : view.slice(first, count);
}

// Adjacent elements of a group that one update covers, in memory: the elements [first, first + count) of a visited range. They
// are of `parameter`, or of `parameter` and those that follow it.
struct Elements {
  const OwnedGroup& group;
  const zero::FlatParameter& parameter;
  const zero::OwnedRange& range;
  int64_t first = 0, count = 0;
  ConstTensorView gradient;  // for these elements; is overwritten after run_pending()
  Number gradient_scale;
  double weight_decay = 0;

  TensorView master() const { return part_of(range.master, first, count); }
  TensorView copy_out() const { return part_of(range.copy_out, first, count); }
  // Absent if the optimizer has no such state.
  TensorView state(size_t index) const {
    return index < range.states.size() ? part_of(range.states[index], first, count) : TensorView{};
  }
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // Checks whether one update may cover parameters of this kind that follow one another, and the padding between them.
  virtual bool merges_parameters() const { return true; }
  // Checks whether update() writes the new weights. Otherwise it only reads the weights, and finish() writes them.
  virtual bool writes_weights() const { return true; }

  // Updates elements on this side, or puts that off until run_pending().
  virtual void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) = 0;
  virtual void run_pending(const UpdateSide&) {}
  // All ranks call it together.
  virtual void finish(const StepScalars&) {}
};

std::unique_ptr<UpdateRule> make_rule(const RuleContext& context);

// Biases and norms decay only with optimizer.decay_all.
inline double weight_decay_of(const zero::FlatParameter& parameter, const OptimizerConfig& config) {
  return parameter.spec.decay || config.decay_all ? config.weight_decay : 0.0;
}

}  // namespace trivet
