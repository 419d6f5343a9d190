// Parameters of a block that are gathered, used, reduced, updated and released together: one flat group of the shard layout.
//
//   weights    Sharded --unshard()--> Gathering --wait()--> Whole --reshard()--> Sharded          (always Whole below stage 3)
//   gradients  begin_step() -> { gradient(i) ... end_contribution() } per backward -> reduce() -> owned().gradient
//   update     owned() -> the optimizer writes master and copy_out -> publish()
//
// The table in zero/stage.h says what is whole and what is a shard. `owned()` is the range that this rank updates: the whole
// group at stage 0, its shard otherwise. In layout mode (fixed_point) each contribution goes to float32 scratch, is rounded
// once to the fixed-point grid and is summed as integers (core/fixed_point.h). owned().gradient is then int64, or float32 if
// nothing is left to add; the values are the same.
//
// Groups with the role Replica or TiedGradients (zero/shard_layout.h) have no optimizer; TiedGradients has no weights either.
//
// Sharded weights, and master weights with the optimizer states, may be kept outside the device's memory
// (zero/placed_tensor.h): then unshard() brings the shard to the device before it is gathered, and updates go through visit()
// (zero/staged_walk.h), which stages what they use. If the device has its own memory and the states are not there, the update
// runs on the host.
//
// Owns its buffers. Resources must outlive it. One thread at a time; communication runs on the streams it was given.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/layer.h"
#include "zero/gradient_digests.h"
#include "zero/owned_range.h"
#include "zero/placed_tensor.h"
#include "zero/resources.h"
#include "zero/shard_axis.h"
#include "zero/shard_layout.h"
#include "zero/stage.h"

namespace trivet::zero {

struct GroupOptions {
  Lifetimes lifetimes;
  DType dtype = DType::Float32;           // type of weights as layers see them
  DType gradient_dtype = DType::Float32;  // type of accumulated gradients in run mode
  bool fixed_point = false;               // layout mode
  int64_t fixed_point_terms = 1;          // contributions that may be added to one element in a step, over all ranks
  int contributions = 0;                  // this rank's in a step; 0: any number
  int gathers = 0;           // in a step; 0: any number. After a single one, a second copy of the weights would not be read
  int reductions = 0;        // this rank's in a step; 0: any number, so each sums over the replicas of a shard, too
  int optimizer_states = 0;  // float32 tensors per parameter in addition to the master weights
};

// The weights that a rank has between steps, as layers see them, and the part of them that it updates. Positions and counts are
// in elements of the group.
struct HeldWeights {
  ConstTensorView view;  // absent if they are placed elsewhere, or if the group has none
  int64_t first = 0;     // first element of the view
  bool whole = false;    // the view is the whole group
  int64_t owned_first = 0, owned_count = 0;
  // The float32 master weights of the owned range, if they are not the view, and its optimizer states. Tensors that are placed
  // elsewhere are left out.
  std::vector<ConstTensorView> updated;
  bool updated_whole = false;  // the owned range is the whole group
};

class ParameterGroup {
 public:
  // `layout` must outlive the group.
  ParameterGroup(const FlatGroup& layout, const GroupOptions& options, const Resources& resources);

  const FlatGroup& layout() const { return layout_; }
  // The ranks that divide this group into shards.
  const ShardAxis& axis() const { return resources_.axes[static_cast<size_t>(layout_.sharing)]; }
  const GroupOptions& options() const { return options_; }

  // Weights. unshard starts the gather; wait blocks the caller until it is done; weight throws std::logic_error while sharded.
  void unshard();
  void wait();
  void reshard();
  ConstTensorView weight(int index) const;

  // Gradients of one step.
  void begin_step();
  // Makes the step that has begun one whose gradients are digested; `audited_microbatch` is one of this rank's.
  void begin_audit(int block, int audited_microbatch);
  // Returns where a layer puts the gradient of parameter `index` in this contribution. Call it only for parameters that the
  // layer has.
  Gradient gradient(int index);
  // Call this when the layer is done. `scale` (1 / loss scale) is applied before rounding to the fixed-point grid; run mode
  // does not use it. `microbatch` matters only in a step that is audited.
  void end_contribution(Number scale, int microbatch = 0);
  // Ends a part of this contribution to one parameter: it is rounded by itself, and the next part may follow. Returns whether
  // that has to be added to what the layer's memory has. Not in a step that is audited.
  bool end_part(size_t index, Number scale);
  // Starts the reduction of the contributions so far; retire() waits for it and releases the gradients in flight.
  void reduce();
  void retire();
  // Returns whether this group needs reduce(): gradients that a TIE takes are not reduced while they are whole.
  bool reduces() const { return layout_.trainable && (layout_.role == GroupRole::Own || options_.lifetimes.shard_gradients); }
  // Returns all of this rank's gradients so far, for a TIE: whole before the reduction, or the reduced shard.
  TensorView tied_gradients();

  // In a step that is audited, after the program. digest_total() completes the digests; begin_recomputation() starts those of
  // another rank's microbatch (zero/gradient_digests.h).
  void digest_total();
  void begin_recomputation();
  const GradientDigests* digests() const { return digests_ ? &*digests_ : nullptr; }  // null: the step is not audited

  OwnedRange owned();
  // Gathers must be done (wait()).
  HeldWeights held_weights() const;
  // Calls use(the weights of the owned range, as layers see them, on the device). `use` reads them or, if `written`, writes all
  // of them.
  void with_owned_weights(bool written, const std::function<void(TensorView)>& use);
  // Calls change(first, values) for the elements of parameter `index` that this rank has, from its element `first` on. Every
  // rank that has an element must change it in the same way: nothing is sent. Only for weights that are kept on the device.
  void change_held(int index, const std::function<void(int64_t first, TensorView values)>& change);
  // Sends the owned range to the other ranks that divide these weights. Call it after an update, a load or initialization.
  void publish();
  // Initializes only the owned range; publish() must follow.
  void initialize(uint64_t seed);

 private:
  int64_t owned_first() const;
  int64_t owned_count() const;
  // The position of the owned range in weights_ and gradients_, which are shards or whole.
  int64_t owned_in_weights() const { return options_.lifetimes.shard_parameters ? 0 : owned_first(); }
  int64_t owned_in_gradients() const { return options_.lifetimes.shard_gradients ? 0 : owned_first(); }
  bool has_weights() const { return layout_.role != GroupRole::TiedGradients; }
  bool is_updated() const { return layout_.trainable && layout_.role == GroupRole::Own; }
  // Returns whether there are separate master weights in float32: only if the layers' weights have another dtype and the group
  // is updated.
  bool separate_master() const { return options_.dtype != DType::Float32 && is_updated(); }
  // The host on which the update runs; null: it runs on the device. It runs on the host if the device has its own memory and
  // the states are not there.
  HostSide* updating_host() const {
    return layout_.states != Placement::Device && is_updated() ? resources_.offload.host : nullptr;
  }
  void make_updated_tensors();
  DType accumulator_dtype() const;
  DType gradient_shard_dtype() const;
  TensorView accumulator();
  bool has_secondary() const {
    return options_.lifetimes.shard_parameters && axis().secondary && has_weights() && options_.gathers != 1;
  }
  void keep_secondary();
  void add_to_shard(TensorView own);
  // The sum over ranks is float32 in the shard, and integers only until retire().
  bool total_is_in_flight() const {
    return options_.lifetimes.shard_gradients && gradient_shard_dtype() != accumulator_dtype();
  }
  double contribution_limit() const;  // limit to values on the fixed-point grid
  void add_contribution(size_t index, Number scale);
  void digest_contribution(size_t index, Number scale, int microbatch);
  void clear_unwritten(TensorView whole);
  void initialize_box(const FlatParameter& parameter, const tensor_parallel::LocalBox& box, uint64_t seed,
                      const OwnedRange& range);
  void initialize_run(const OwnedRange& range, TensorView run, const Init& init, uint64_t key, int64_t first_element);

  const FlatGroup& layout_;
  GroupOptions options_;
  Resources resources_;

  PlacedTensor weights_;  // whole, or the shard when parameters are sharded
  PlacedTensor master_;   // float32, owned range; none unless separate_master()
  std::vector<PlacedTensor> states_;
  PlacedTensor secondary_;                    // the shard of the second copy of weights
  PlacedTensor gradients_;                    // whole accumulator, or the shard when gradients are sharded
  ScopedTensor gathered_;                     // whole weights between unshard and reshard
  ScopedTensor in_flight_;                    // whole gradients of this microbatch when gradients are sharded
  InFlight gather_scratch_, reduce_scratch_;  // for quantized collectives
  ScopedTensor scratch_;                      // float32 gradient of one contribution in layout mode
  Event gathered_event_, reduced_event_;
  bool secondary_valid_ = false;  // secondary_ holds the weights of this step
  bool reducing_ = false;
  int reductions_ = 0;                      // in this step
  bool shard_written_ = false;              // the gradient shard holds something of this step
  std::vector<bool> written_;               // [parameter] the accumulator holds something
  std::vector<bool> in_contribution_;       // [parameter] the scratch holds something
  std::optional<GradientDigests> digests_;  // in a step that is audited
};

}  // namespace trivet::zero
