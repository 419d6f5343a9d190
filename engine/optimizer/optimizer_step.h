// From reduced gradients to new weights: norm, overflow check, clipping, update of the owned shard, publishing.
//
//   norm of the gradient of the mean over all targets, exact: the same bits on every layout
//   not finite -> every rank skips the step together, weights and states keep their bits
//   clip: g *= min(1, clipping / (norm + 1e-6))
//
// What the norm says is a verdict in the device's memory (kernels::JudgeGradients) that updates obey: the host neither knows it
// nor waits for it, unless something is offloaded to its memory (zero/host_side.h). Then it does, and a step that is skipped
// moves nothing. Each update touches only the range that the rank owns (zero/parameter_group.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "comm/process_group.h"
#include "engine/config/config.h"
#include "engine/parameters.h"
#include "engine/step_results.h"
#include "engine/step_scalars.h"
#include "kernels/kernels.h"
#include "zero/staged_walk.h"

namespace trivet {

struct StepSettings {
  StepScalars scalars;
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
  zero::StagingOptions staging;    // an update handles at most staging.most_elements at once (zero_optimization.sub_group_size)
  zero::HostSide* host = nullptr;  // where something is offloaded from a device with memory of its own, on all ranks or none
};

class OptimizerStep {
 public:
  OptimizerStep(const OptimizerConfig& config, Parameters& parameters, const OptimizerResources& resources);
  // All of `settings` must be equal on all ranks. The verdict is left in the results.
  void run(const StepSettings& settings);

 private:
  // A range of the owned elements of one group that one call updates: neighbours with the same decay, padding included.
  struct Segment {
    int64_t first = 0, count = 0;  // within the range that is visited
    bool decay = false;
  };
  // What an update runs on: the device's, or the host's for states that are kept there.
  struct Side {
    kernels::Kernels& kernels;
    ConstTensorView verdict;
    Arena& buffers;
    std::span<const zero::OwnedPiece> pieces;  // that are updated there
    TensorView lamb_sums;
  };
  // A trainable group: the places of its parameters in owned_.
  struct OwnedGroup {
    int block = 0;
    size_t first_parameter = 0;
  };
  struct OwnedParameter {
    zero::ParameterGroup* group = nullptr;
    int index = 0;
  };

  struct Part {
    int64_t first = 0, count = 0;
  };

  void sum_gradient_squares(const StepSettings& settings);
  bool is_skipped_on_host();
  void update_elements(const Side& side, const StepSettings& settings);
  void update_piece(const Side& side, const zero::OwnedPiece& piece, const zero::OwnedRange& range,
                    const StepSettings& settings);
  void update_segment(const Side& side, const zero::OwnedRange& range, const Segment& segment, ConstTensorView gradient,
                      const StepScalars& scalars, Number gradient_scale, std::vector<kernels::Adam>& adam);
  static void run_adam(const Side& side, std::vector<kernels::Adam>& updates);
  void sum_squares(std::vector<kernels::Squares>& terms, TensorView sum);
  Side device();
  Side host();
  Side side_of(const zero::OwnedRange& range) { return range.host ? host() : device(); }
  // The device's, and the host's where there is one.
  std::vector<Side> sides();
  void apply_lamb(const StepSettings& settings);
  void sum_lamb_squares();
  void sum_lamb_squares_of(const Side& side);
  TensorView lamb_sums_of(const Side& side, size_t owned) const;
  void apply_muon(const StepSettings& settings);
  int orthogonalise(const zero::ParameterGroup& group, TensorView updates, int matrix);
  void muon_momentum(const Side& side, const zero::OwnedRange& range, const zero::FlatParameter& parameter,
                     Number gradient_scale);
  void gather_updates(zero::ParameterGroup& group, TensorView updates);
  void apply_muon_updates(const zero::ParameterGroup& group, const zero::OwnedRange& range, ConstTensorView updates,
                          const StepSettings& settings);
  static int64_t sum_block(const OwnedParameter& owned);
  // What this rank alone counts of a parameter: its shard of the parts that no neighbour of the tensor axis counts.
  std::vector<Part> counted_parts(const OwnedParameter& owned, const zero::OwnedRange& range) const;
  std::vector<Segment> segments_of(const zero::OwnedPiece& piece, const zero::OwnedRange& range) const;
  // Calls use(first, gradient as stored or read back from the grid) over owned elements [first, first + count), in bounded
  // pieces.
  template <typename Use>
  void for_gradient_pieces(const Side& side, const zero::OwnedRange& range, int64_t first, int64_t count, Use&& use);
  void all_reduce(TensorView words, comm::ProcessGroup& group);
  static const zero::FlatParameter& parameter_of(const OwnedParameter& owned) {
    return owned.group->layout().parameters[static_cast<size_t>(owned.index)];
  }
  bool is_muon(const zero::ParameterGroup& group, const zero::FlatParameter& parameter) const;
  bool has_muon(const zero::ParameterGroup& group) const;
  // With every state of the optimizer read and written.
  zero::RangeAccess access(zero::Access master, zero::Access copy_out) const;
  double weight_decay(bool decay) const { return decay || config_.decay_all ? config_.weight_decay : 0.0; }

  OptimizerConfig config_;
  Parameters& parameters_;
  OptimizerResources resources_;
  std::vector<zero::OwnedPiece> pieces_;          // of all that this rank updates on the device, in order
  std::vector<zero::OwnedPiece> pieces_on_host_;  // and on the host
  std::vector<OwnedParameter> owned_;             // of trainable groups, in order
  std::map<const zero::ParameterGroup*, OwnedGroup> groups_;
  Buffer lamb_sums_;                            // int64 [owned, 2, ExactSum::kWords]: squares of weights and updates
  Buffer verdict_on_host_, lamb_sums_on_host_;  // copies for updates there
  int blocks_ = 0;
};

}  // namespace trivet
