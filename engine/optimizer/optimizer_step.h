// From reduced gradients to new weights: norm, overflow check, clipping, update of the owned shard, publishing.
//
//   norm of the gradient of the mean loss over all targets; exact, so it has the same bits on every layout
//   not finite -> all ranks skip the step together; weights and states keep their bits
//   clip: g *= min(1, clipping / (norm + 1e-6))
//
// The norm yields a verdict in device memory (kernels::JudgeGradients) that the updates obey. The host neither knows it nor
// waits for it, unless something is offloaded to host memory (zero/host_side.h): then the host reads it, and a skipped step
// moves no data. Each update touches only the range that the rank owns (zero/parameter_group.h).
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
  double unit = 1;           // targets of a microbatch, including ignored ones; stored gradients are divided by it
  double clipping = 0;       // 0: off
  bool check_finite = true;  // false: update even with infinities (bf16.check_grad_overflow false)
};

struct OptimizerResources {
  kernels::Kernels& kernels;
  Allocator& allocator;
  MemoryMeter& meter;
  Arena& buffers;
  comm::ProcessGroup& control_group;              // all ranks
  comm::ProcessGroup& part_group;                 // ranks that have the same blocks
  std::vector<comm::ProcessGroup*> shard_groups;  // [Sharing] ranks that divide such parameters into shards
  StepResults& results;
  Stream& stream;
  zero::CollectiveOptions collectives;
  zero::StagingOptions staging;    // an update handles at most staging.most_elements at once (zero_optimization.sub_group_size)
  zero::HostSide* host = nullptr;  // null: nothing is offloaded to a device's host; null on all ranks or none
};

class OptimizerStep {
 public:
  OptimizerStep(const OptimizerConfig& config, Parameters& parameters, const OptimizerResources& resources);
  // All of `settings` must be equal on all ranks. The verdict is left in the results.
  void run(const StepSettings& settings);

 private:
  // A range of owned elements of one group that one call updates: adjacent elements with the same decay, including padding.
  struct Segment {
    int64_t first = 0, count = 0;  // within the visited range
    bool decay = false;
  };
  // The resources of an update: those of the device or, for states that are kept on the host, those of the host.
  struct Side {
    kernels::Kernels& kernels;
    ConstTensorView verdict;
    Arena& buffers;
    std::span<const zero::OwnedPiece> pieces;  // updated on this side
    TensorView lamb_sums;
  };
  // A trainable group, and where its parameters begin in owned_.
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
  // The device's side and, if there is one, the host's.
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
  comm::ProcessGroup& shard_group(const zero::ParameterGroup& group) const {
    return *resources_.shard_groups[static_cast<size_t>(group.layout().sharing)];
  }
  // The parts of a parameter that this rank alone counts: its shard of what no other tensor rank counts.
  std::vector<Part> counted_parts(const OwnedParameter& owned, const zero::OwnedRange& range) const;
  std::vector<Segment> segments_of(const zero::OwnedPiece& piece, const zero::OwnedRange& range) const;
  // Calls use(first, gradient) for the owned elements [first, first + count), in pieces of bounded size. The gradient is as
  // stored, or read back from the fixed-point grid.
  template <typename Use>
  void for_gradient_pieces(const Side& side, const zero::OwnedRange& range, int64_t first, int64_t count, Use&& use);
  void all_reduce(TensorView words, comm::ProcessGroup& group);
  static const zero::FlatParameter& parameter_of(const OwnedParameter& owned) {
    return owned.group->layout().parameters[static_cast<size_t>(owned.index)];
  }
  bool is_muon(const zero::ParameterGroup& group, const zero::FlatParameter& parameter) const;
  bool has_muon(const zero::ParameterGroup& group) const;
  // Access that reads and writes every state of the optimizer.
  zero::RangeAccess access(zero::Access master, zero::Access copy_out) const;
  double weight_decay(bool decay) const { return decay || config_.decay_all ? config_.weight_decay : 0.0; }

  OptimizerConfig config_;
  Parameters& parameters_;
  OptimizerResources resources_;
  std::vector<zero::OwnedPiece> pieces_;          // updated by this rank on the device, in order
  std::vector<zero::OwnedPiece> pieces_on_host_;  // the same for the host
  std::vector<OwnedParameter> owned_;             // parameters of trainable groups, in order
  std::map<const zero::ParameterGroup*, OwnedGroup> groups_;
  Buffer lamb_sums_;                            // int64 [owned, 2, ExactSum::kWords]: squares of weights and updates
  Buffer verdict_on_host_, lamb_sums_on_host_;  // copies for updates on the host
};

}  // namespace trivet
