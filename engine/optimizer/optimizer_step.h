// Turns reduced gradients into new weights: norm, overflow check, clipping, update of the owned shard, publishing.
//
//   norm of the gradient of the mean loss over all targets; exact, so it has the same bits on every layout
//   not finite, or no targets -> all ranks skip the step together; weights and states keep their bits
//   clip: g *= min(1, clipping / (norm + 1e-6))
//
// The norm yields a verdict in device memory (kernels::JudgeGradients) that the updates obey. The host neither knows it nor
// waits for it, unless something is offloaded to host memory (zero/host_side.h): then the host reads it, and a skipped step
// moves no data. Each update touches only the range that the rank owns (zero/parameter_group.h). There it applies the
// optimizer's rule (update_rule.h), or one rule for all optimizers to a running average (ParameterUpdate). Biases that balance
// experts change on all ranks that have them, which know the counts of all.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/optimizer/update_rule.h"

namespace trivet {

struct StepSettings {
  StepScalars scalars;
  double unit = 1;           // targets of a microbatch, including ignored ones; stored gradients are divided by it
  double microbatches = 1;   // in the step, over all ranks
  double clipping = 0;       // 0: off
  bool check_finite = true;  // false: update even with infinities (bf16.check_grad_overflow false)
};

class OptimizerStep {
 public:
  // `parameters`, `results` and what `resources` names must outlive it.
  OptimizerStep(const OptimizerConfig& config, zero::Parameters& parameters, StepResults& results,
                const UpdateResources& resources);
  OptimizerStep(const OptimizerStep&) = delete;
  OptimizerStep& operator=(const OptimizerStep&) = delete;

  // All of `settings` must be equal on all ranks. The verdict is left in the results.
  void run(const StepSettings& settings);

 private:
  // The part of a visited range that one update covers: adjacent elements, of one parameter or of several with the same
  // decay and update.
  struct Segment {
    const zero::FlatParameter* parameter = nullptr;  // the first
    int64_t first = 0, count = 0;                    // within the range
  };

  void sum_gradient_squares(const StepScalars& scalars);
  void sum_squares(std::vector<kernels::Squares>& terms, TensorView sum);
  void update_elements(const UpdateSide& side, const StepSettings& settings);
  void update_piece(const UpdateSide& side, const zero::OwnedPiece& piece, const zero::OwnedRange& range,
                    const StepSettings& settings);
  void update_segment(const UpdateSide& side, const Elements& elements, const StepSettings& settings);
  void balance_experts();
  std::vector<Segment> segments_of(const zero::OwnedPiece& piece, const zero::OwnedRange& range) const;
  // Calls use(first, gradient) for the owned elements [first, first + count), in pieces of bounded size. The gradient is as
  // stored, or read back from the fixed-point grid.
  template <typename Use>
  void for_gradient_pieces(const UpdateSide& side, const zero::OwnedRange& range, int64_t first, int64_t count, Use&& use);

  OptimizerConfig config_;
  zero::Parameters& parameters_;
  StepResults& results_;
  UpdateResources resources_;
  OwnedParameters owned_;
  UpdateSides sides_;
  std::unique_ptr<UpdateRule> rule_;
};

}  // namespace trivet
