// Parameters of a block that are gathered, used, reduced, updated and released together: one flat group of the shard layout.
//
//   weights    Sharded --unshard()--> Gathering --wait()--> Whole --reshard()--> Sharded          (always Whole below stage 3)
//   gradients  begin_step() -> { gradient(i) ... end_contribution() } per backward -> reduce() -> owned().gradient
//   update     owned() -> the optimizer writes master and copy_out -> publish()
//
// What is whole and what is a shard is the table of zero/stage.h. `owned()` is the range that this rank updates: the whole
// group at stage 0, its shard otherwise. In layout mode (fixed_point) each contribution goes to float32 scratch, is rounded
// once to the grid and summed as integers (core/fixed_point.h). owned().gradient is then int64, or float32 where nothing is
// left to add; the values are the same.
//
// Replica and TiedGradients (zero/shard_layout.h) have no optimizer; TiedGradients has no weights either.
//
// Owns its buffers. Resources must outlive it. One thread at a time; communication runs on the streams it was given.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/process_group.h"
#include "core/buffer.h"
#include "core/layer.h"
#include "kernels/kernels.h"
#include "zero/collectives.h"
#include "zero/shard_layout.h"
#include "zero/stage.h"

namespace trivet::zero {

// What the groups of a rank share.
struct Resources {
  kernels::Kernels& kernels;
  Allocator& allocator;
  MemoryMeter& meter;
  Arena& buffers;  // whole copies of sharded weights, gradients in flight, scratch
  comm::ProcessGroup& gather_group;
  Stream& gather_stream;
  comm::ProcessGroup& reduce_group;
  Stream& reduce_stream;
  CollectiveOptions collectives;
  comm::ProcessGroup* tensor_group = nullptr;  // for groups that are summed over the tensor axis; on reduce_stream
  TensorView refused;  // int64 [1], layout mode: += contributions that could not be put on the fixed-point grid
};

struct GroupOptions {
  Lifetimes lifetimes;
  DType dtype = DType::Float32;           // of weights as layers see them
  DType gradient_dtype = DType::Float32;  // of accumulated gradients in run mode
  bool fixed_point = false;               // layout mode
  int64_t fixed_point_terms = 1;          // contributions that may be added to one element in a step, over all ranks
  int contributions = 0;                  // of this rank in a step; 0: any number
  int optimizer_states = 0;               // float32 tensors per parameter besides the master weights
};

// What this rank updates: views of `count` elements, from element `first` of the group.
struct OwnedRange {
  int64_t first = 0, count = 0;
  TensorView master;         // float32
  TensorView copy_out;       // the weights in the model's dtype; absent when that is the master itself
  ConstTensorView gradient;  // gradient dtype; in layout mode int64 on the fixed-point grid, or float32; absent when frozen
  std::vector<TensorView> states;
};

class ParameterGroup {
 public:
  // `layout` must outlive the group.
  ParameterGroup(const FlatGroup& layout, const GroupOptions& options, const Resources& resources);

  const FlatGroup& layout() const { return layout_; }
  const GroupOptions& options() const { return options_; }

  // Weights. unshard starts the gather; wait blocks the caller until it is done; weight throws std::logic_error while sharded.
  void unshard();
  void wait();
  void reshard();
  ConstTensorView weight(int index) const;

  // Gradients of one step.
  void begin_step();
  // Where a layer puts the gradient of parameter `index` in this contribution; call it for the parameters that the layer has.
  Gradient gradient(int index);
  // The layer is done. `scale` (1 / loss scale) is applied before rounding to the fixed-point grid; not used in run mode.
  void end_contribution(double scale);
  // Starts the reduction of what was contributed so far; retire() waits for it and releases what was in flight.
  void reduce();
  void retire();
  // Whether reduce() is for this group: gradients that a TIE takes are not reduced while they are whole.
  bool reduces() const { return layout_.trainable && (layout_.role == GroupRole::Own || options_.lifetimes.shard_gradients); }
  // All of this rank's gradients so far, for a TIE: whole before the reduction, or the reduced shard.
  TensorView tied_gradients();

  OwnedRange owned();
  // The weights of the owned range, as layers see them; absent for TiedGradients.
  TensorView owned_weights();
  // Makes the weights that others of the data axis hold follow the owned range: after an update, a load or initialisation.
  void publish();
  // Of the owned range only: publish() follows.
  void initialize(uint64_t seed);

 private:
  int64_t owned_first() const;
  int64_t owned_count() const;
  bool has_weights() const { return layout_.role != GroupRole::TiedGradients; }
  // In float32 whatever the layers' dtype: only where an optimizer updates them.
  bool separate_master() const {
    return options_.dtype != DType::Float32 && layout_.trainable && layout_.role == GroupRole::Own;
  }
  DType accumulator_dtype() const;
  DType gradient_shard_dtype() const;
  TensorView accumulator();
  void clear_unwritten(TensorView whole);
  void initialize_box(const FlatParameter& parameter, const tensor_parallel::LocalBox& box, uint64_t seed,
                      const OwnedRange& range);

  const FlatGroup& layout_;
  GroupOptions options_;
  Resources resources_;

  Buffer weights_;  // whole, or the shard when parameters are sharded
  Buffer master_;   // float32, owned range; empty when weights_ are float32
  std::vector<Buffer> states_;
  Buffer gradients_;        // whole accumulator, or the shard when gradients are sharded
  ScopedTensor gathered_;   // whole weights between unshard and reshard
  ScopedTensor in_flight_;  // whole gradients of this microbatch when gradients are sharded
  ScopedTensor scratch_;    // float32 gradient of one contribution in layout mode
  Event gathered_event_, reduced_event_;
  bool reducing_ = false;
  bool shard_written_ = false;         // the gradient shard holds something of this step
  std::vector<bool> written_;          // [parameter] the accumulator holds something
  std::vector<bool> in_contribution_;  // [parameter] the scratch holds something
};

}  // namespace trivet::zero
