// All parameters of a rank, block by block: which groups a block uses, its weights and where its gradients go.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "zero/gradient_reducer.h"
#include "zero/parameter_group.h"
#include "zero/shard_layout.h"
#include "zero/staging.h"

namespace trivet::zero {

// The pair of ranks that share a tied weight.
struct TieChannel {
  comm::ProcessGroup* group = nullptr;  // null: both blocks are on this rank
  int peer = 0;                         // in the group
  Stream* stream = nullptr;
};

struct ParameterOptions {
  int zero_stage = 0;
  DType dtype = DType::Float32;
  DType gradient_dtype = DType::Float32;
  bool fixed_point = false;
  int microbatches = 1;                  // per step, on this rank
  std::vector<int> gathers, reductions;  // [block] per step; empty: any number
  int optimizer_states = 0;
  int64_t staging_buffers = 1, staging_buffer_elements = 1;  // for reading weights that are in a file
};

class Parameters {
 public:
  // `layout` and what `resources` and `channels` refer to must outlive it. channels[i] belongs to layout.ties[i].
  Parameters(const ShardLayout& layout, const ParameterOptions& options, const Resources& resources,
             std::vector<TieChannel> channels = {});

  // For the executor.
  void unshard(int block);  // the block's own sharded groups
  void reshard(int block);
  void reduce(int block, GradientReducer& reducer);
  std::vector<ConstTensorView> weights(int block);  // in the order of the layer's parameters(); waits for gathers
  std::vector<Gradient> gradients(int block);
  void end_contribution(int block, Number scale, int microbatch = 0);
  // Ends a part of the contribution of one of the block's parameters (Gradient::next).
  bool end_part(int block, size_t parameter, Number scale);
  // Adds the gradients of the weights that `user_block` shares with an earlier block to those of the block that owns the
  // weights. Both ranks call it; it returns when the addition is done.
  void tie(int user_block);

  // For the step, checkpoints and initialization.
  const ShardLayout& layout() const { return layout_; }
  void begin_step();
  // Digests the gradients of the step that has begun (zero/gradient_digests.h). `microbatch`: the audited one of this rank's.
  void begin_audit(int microbatch);
  // Then, after the program: completes the digests, and starts those of a recomputed microbatch.
  void digest_totals();
  void begin_recomputation();
  std::vector<GradientDigest> gradient_digests();  // in the order of the layout
  // Calls visit(block, group) in order for every group.
  template <typename Visit>
  void for_each_group(Visit&& visit) {
    for (size_t block = 0; block < groups_.size(); ++block)
      for (auto& group : groups_[block]) visit(static_cast<int>(block), *group);
  }
  // Sends the new values of the weights that this rank owns to all ranks that hold a copy. `frozen_too`: also those of weights
  // that no step changes.
  void publish(bool frozen_too = false);
  void initialize(uint64_t seed);

 private:
  Lifetimes lifetimes(const FlatGroup& group, int zero_stage) const;
  void make_staging(const ParameterOptions& options);
  void publish_tied(bool frozen_too);
  ParameterGroup& group(const ParameterPlace& place) { return *groups_[place.block][place.group]; }

  const ShardLayout& layout_;
  Resources resources_;
  std::vector<TieChannel> channels_;
  std::optional<StagingRing> staging_;                                // declared before the groups, whose gathers use it
  std::vector<std::vector<std::unique_ptr<ParameterGroup>>> groups_;  // [block][group]
};

}  // namespace trivet::zero
