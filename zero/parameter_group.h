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
// Sharded weights, and master weights with the optimizer states, may be placed in a file (zero/placement.h): then unshard()
// reads the shard before it is gathered, and updates go through visit() (zero/staged_walk.h), which stages what they use. If
// the device has its own memory, they may also be in host memory (zero/host_side.h): then unshard() copies the shard up. If the
// states are not on the device, the update runs on the host.
//
// Owns its buffers. Resources must outlive it. One thread at a time; communication runs on the streams it was given.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "comm/process_group.h"
#include "core/buffer.h"
#include "core/layer.h"
#include "kernels/kernels.h"
#include "zero/collectives.h"
#include "zero/host_side.h"
#include "zero/offload/file_store.h"
#include "zero/shard_axis.h"
#include "zero/shard_layout.h"
#include "zero/stage.h"
#include "zero/staging.h"

namespace trivet::zero {

// How visits stage tensors that are not in memory.
struct StagingOptions {
  int64_t most_elements = 1'000'000'000;          // of a piece
  bool read_ahead = false, write_behind = false;  // while another piece is used
};

// Where groups keep tensors that are outside the memory that kernels reach; null if there are none.
struct OffloadResources {
  offload::FileStore* weights = nullptr;
  offload::FileStore* states = nullptr;
  HostSide* host = nullptr;        // if the device has its own memory and something is placed elsewhere
  StagingRing* gathers = nullptr;  // for reading weights before they are gathered
  StagingOptions staging;
};

// The resources that all groups of a rank share.
struct Resources {
  kernels::Kernels& kernels;
  Allocator& allocator;
  MemoryMeter& meter;
  Arena& buffers;               // whole copies of sharded weights, gradients in flight, scratch
  std::vector<ShardAxis> axes;  // [Sharing] the ranks that divide groups with it; those that no group has may be left out
  CollectiveOptions collectives;
  comm::ProcessGroup* tensor_group = nullptr;  // for groups that are summed over the tensor axis; on the reduce stream
  TensorView refused;  // int64 [1], layout mode: counts contributions that could not be put on the fixed-point grid
  OffloadResources offload;
};

struct GroupOptions {
  Lifetimes lifetimes;
  DType dtype = DType::Float32;           // of weights as layers see them
  DType gradient_dtype = DType::Float32;  // of accumulated gradients in run mode
  bool fixed_point = false;               // layout mode
  int64_t fixed_point_terms = 1;          // contributions that may be added to one element in a step, over all ranks
  int contributions = 0;                  // of this rank in a step; 0: any number
  int optimizer_states = 0;               // float32 tensors per parameter in addition to the master weights
};

// What this rank updates: views of `count` elements, from element `first` of the group.
struct OwnedRange {
  int64_t first = 0, count = 0;
  TensorView master;         // float32
  TensorView copy_out;       // the weights in the model's dtype; absent if `master` is that already
  ConstTensorView gradient;  // gradient dtype; in layout mode int64 on the fixed-point grid, or float32; absent when frozen
  std::vector<TensorView> states;
  // Where these tensors are if they are not in memory here (their data is null then); null: they are in memory.
  TensorPlace* master_place = nullptr;
  TensorPlace* copy_out_place = nullptr;
  TensorPlace* gradient_place = nullptr;  // in addition to its memory on the device, if the host uses it
  std::vector<TensorPlace*> state_places;
  HostSide* host = nullptr;  // the range is for the kernels of this host; null: for the device's
  bool staged() const {
    const auto is_placed = [](const TensorPlace* place) { return place != nullptr; };
    return master_place || copy_out_place || std::any_of(state_places.begin(), state_places.end(), is_placed);
  }
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
  // Returns where a layer puts the gradient of parameter `index` in this contribution. Call it only for parameters that the
  // layer has.
  Gradient gradient(int index);
  // Call this when the layer is done. `scale` (1 / loss scale) is applied before rounding to the fixed-point grid; run mode
  // does not use it.
  void end_contribution(Number scale);
  // Starts the reduction of the contributions so far; retire() waits for it and releases the gradients in flight.
  void reduce();
  void retire();
  // Returns whether this group needs reduce(): gradients that a TIE takes are not reduced while they are whole.
  bool reduces() const { return layout_.trainable && (layout_.role == GroupRole::Own || options_.lifetimes.shard_gradients); }
  // Returns all of this rank's gradients so far, for a TIE: whole before the reduction, or the reduced shard.
  TensorView tied_gradients();

  OwnedRange owned();
  // Gathers must be done (wait()).
  HeldWeights held_weights() const;
  // Calls use(the weights of the owned range, as layers see them). If the weights are placed elsewhere, they are read before
  // or, if `written`, written back afterwards; `use` must then write all of them.
  template <typename Use>
  void with_owned_weights(bool written, Use&& use);
  // Sends the owned range to the other ranks that divide these weights. Call it after an update, a load or initialisation.
  void publish();
  // Initializes only the owned range; publish() must follow.
  void initialize(uint64_t seed);

 private:
  // A tensor of the group: its memory, or the place where it is instead.
  struct Placed {
    Buffer memory;
    std::unique_ptr<TensorPlace> place;
    HostTensor* in_host_memory = nullptr;  // `place`, if that is host memory
    DType dtype = DType::Float32;
    int64_t elements = 0;
    TensorView view() { return place ? TensorView{nullptr, dtype, {elements}} : memory.view(); }
    ConstTensorView view() const { return const_cast<Placed*>(this)->view(); }
  };

  int64_t owned_first() const;
  int64_t owned_count() const;
  bool has_weights() const { return layout_.role != GroupRole::TiedGradients; }
  // Returns whether there are separate master weights in float32: only if the layers' dtype differs and the group is updated.
  bool separate_master() const {
    return options_.dtype != DType::Float32 && layout_.trainable && layout_.role == GroupRole::Own;
  }
  DType accumulator_dtype() const;
  DType gradient_shard_dtype() const;
  // Returns whether the update runs on the host: the states are not on the device, and the device has its own memory.
  bool on_host() const { return resources_.offload.host && layout_.states != Placement::Device && is_updated(); }
  bool is_updated() const { return layout_.trainable && layout_.role == GroupRole::Own; }
  TensorView owned_gradients();
  TensorView owned_weights();  // without memory if they are placed elsewhere
  // Returns the place of weights that are placed elsewhere, as the device sees it.
  TensorPlace* weights_place_on_device() {
    return placed_weights_on_device_ ? placed_weights_on_device_.get() : weights_.place.get();
  }
  TensorView accumulator();
  void clear_unwritten(TensorView whole);
  void initialize_box(const FlatParameter& parameter, const tensor_parallel::LocalBox& box, uint64_t seed,
                      const OwnedRange& range);
  void initialize_run(const OwnedRange& range, TensorView run, const Init& init, uint64_t key, int64_t first_element);

  const FlatGroup& layout_;
  GroupOptions options_;
  Resources resources_;

  Placed weights_;  // whole, or the shard when parameters are sharded
  Placed master_;   // float32, owned range; empty when weights_ are float32
  std::vector<Placed> states_;
  std::unique_ptr<DeviceTensor> weights_on_device_, gradients_on_device_;  // of the owned range, seen from the host
  std::unique_ptr<TensorPlace> placed_weights_on_device_;                  // weights_.place, seen from the device
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

template <typename Use>
void ParameterGroup::with_owned_weights(bool written, Use&& use) {
  const TensorView weights = owned_weights();
  if (!weights_.place) return use(weights);
  const StagingMemory memory(resources_.buffers, weights.bytes());
  const TensorView staged = memory.tensor(0, weights.dtype, weights.elements());
  if (!written) weights_place_on_device()->read(0, staged).wait();
  use(staged);
  if (written) weights_place_on_device()->write(0, staged).wait();
}

}  // namespace trivet::zero
