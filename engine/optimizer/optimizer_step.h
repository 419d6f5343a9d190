// From reduced gradients to new weights: norm, overflow check, clipping, update of the owned shard, publishing.
//
//   norm of the gradient of the mean over all targets, exact: the same bits on every layout
//   not finite -> every rank skips the step together, weights and states keep their bits
//   clip: g *= min(1, clipping / (norm + 1e-6))
//
// What the norm says is a verdict in the device's memory (kernels::JudgeGradients) that updates obey: the host neither knows it
// nor waits for it. Each update touches only the range that the rank owns (zero/parameter_group.h).
#pragma once

#include <cstdint>
#include <vector>

#include "comm/process_group.h"
#include "engine/config/config.h"
#include "engine/parameters.h"
#include "engine/step_results.h"
#include "kernels/kernels.h"

namespace trivet {

// float32 tensors that an optimizer keeps per parameter, besides the master weights.
int optimizer_states(OptimizerType type, const OptimizerConfig& config);
// "moment1", "moment2" ...: what checkpoints call them.
std::vector<std::string> optimizer_state_names(OptimizerType type, const OptimizerConfig& config);

struct StepSettings {
  double lr = 0;
  double beta1 = 0.9, beta2 = 0.999;  // as the schedule has them at this step
  int64_t update = 1;                 // number of this update, from 1; skipped steps do not count
  double loss_scale = 1.0;
  double unit = 1;           // targets of a microbatch, counting or not: what the stored gradients are divided by
  double clipping = 0;       // 0: off
  bool check_finite = true;  // false: update even with infinities (bf16.check_grad_overflow false)
};

struct OptimizerResources {
  kernels::Kernels& kernels;
  Allocator& allocator;
  MemoryMeter& meter;
  Arena& buffers;
  comm::ProcessGroup& control_group;  // all ranks
  comm::ProcessGroup& part_group;     // those that have the same blocks
  comm::ProcessGroup& data_group;     // those that share each shard's parameters
  StepResults& results;
  Stream& stream;
  zero::CollectiveOptions collectives;
  int64_t sub_group_elements = 1'000'000'000;  // an update handles at most so many at once (zero_optimization.sub_group_size)
};

class OptimizerStep {
 public:
  OptimizerStep(const OptimizerConfig& config, Parameters& parameters, const OptimizerResources& resources);
  // All of `settings` must be equal on all ranks. The verdict is left in the results.
  void run(const StepSettings& settings);

 private:
  // A range of the owned elements of one group that one call updates: neighbours with the same decay, padding included.
  struct Segment {
    int64_t first = 0, count = 0;  // within the owned range
    bool decay = false;
  };
  // A parameter, or the part of it that this rank owns.
  struct OwnedParameter {
    zero::ParameterGroup* group = nullptr;
    int index = 0;
    zero::Overlap part;  // first_in_range counts within the owned range
  };

  struct Part {
    int64_t first = 0, count = 0;
  };

  void sum_gradient_squares(const StepSettings& settings);
  void sum_squares(const OwnedParameter& owned, const zero::OwnedRange& range, ConstTensorView values, TensorView sum);
  void update_elements(const StepSettings& settings);
  void update_segment(const zero::OwnedRange& range, const Segment& segment, ConstTensorView gradient,
                      const StepSettings& settings, double gradient_scale);
  void apply_lamb(const StepSettings& settings);
  void apply_muon(const StepSettings& settings);
  void muon_momentum(const OwnedParameter& owned, const StepSettings& settings);
  void gather_updates(zero::ParameterGroup& group, TensorView updates);
  void apply_muon_update(const OwnedParameter& owned, ConstTensorView update, const StepSettings& settings);
  static int64_t sum_block(const OwnedParameter& owned);
  // What this rank alone counts of a parameter: its shard of the parts that no neighbour of the tensor axis counts.
  std::vector<Part> counted_parts(const OwnedParameter& owned, const zero::OwnedRange& range) const;
  std::vector<Segment> segments_of(zero::ParameterGroup& group, int block) const;
  // Calls use(first, gradient as stored or read back from the grid) over owned elements [first, first + count), in bounded
  // pieces.
  template <typename Use>
  void for_gradient_pieces(const zero::OwnedRange& range, int64_t first, int64_t count, Use&& use);
  void all_reduce(TensorView words, comm::ProcessGroup& group);
  static const zero::FlatParameter& parameter_of(const OwnedParameter& owned) {
    return owned.group->layout().parameters[static_cast<size_t>(owned.index)];
  }
  bool is_muon(int block, const zero::FlatParameter& parameter) const;
  double weight_decay(bool decay) const { return decay || config_.decay_all ? config_.weight_decay : 0.0; }

  OptimizerConfig config_;
  Parameters& parameters_;
  OptimizerResources resources_;
  std::vector<OwnedParameter> owned_;  // of trainable groups, in order
  Buffer lamb_sums_;                   // int64 [owned, 2, ExactSum::kWords]: squares of weights and updates
  int blocks_ = 0;
};

}  // namespace trivet
