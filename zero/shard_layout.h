// Computes which rank owns which piece of which parameter. This is pure arithmetic.
//
// First expert ranks get their experts, tensor parallelism gives a rank its part of each split parameter
// (tensor_parallel/split.h), and the pipeline gives it its blocks; the result is divided over the ranks that hold the same
// elements (shard_axis.h). The parameters of a block are laid out one after another in flat groups. Each parameter starts at a
// multiple of kSumBlock elements, so that the blocks in which sums are taken are aligned to the parameter and never cut. A
// group is padded to a multiple of ranks x kSumBlock:
//
//   group  [ qkv.weight ........ | pad | out.weight ... | pad | pad to n ranks ]
//   shards |------ rank 0 ------|------ rank 1 ------|------ rank 2 ------|
//
// A block has several groups, because parameters are treated in different ways: dense or of experts, trainable or frozen, of
// the model's type or of float32, sharded or persistent at stage 3, and the two roles below.
//
// [Note: tied weights] A weight that a later block uses, too (the embedding's table as the head's weight), has one owner. A
// user on another pipeline rank has a Replica of the weight; its gradients go to the owner (TIE), and new values come back
// (publish). A user on the owner's rank has at most TiedGradients: a separate accumulator, so that the two sums over
// microbatches are added in the same order wherever the blocks are. Integer sums (layout mode) do not need it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/layer_role.h"
#include "core/parameter_spec.h"
#include "tensor_parallel/split.h"
#include "zero/placement.h"
#include "zero/shard_axis.h"

namespace trivet::zero {

struct FlatParameter {
  std::string name;  // global: layer name + "." + parameter name, or the latter alone if the layer has no name
  ParameterSpec spec;
  tensor_parallel::LocalPart part;  // this tensor rank's
  int64_t offset = 0;               // first element within the group
  // Norms are summed in blocks of this many elements, which neither the data nor the tensor axis cuts. It divides kSumBlock.
  int64_t sum_block = 0;
  int64_t elements() const { return part.shape.elements(); }
};

enum class GroupRole { Own, Replica, TiedGradients };

struct FlatGroup {
  bool trainable = true;
  bool persistent = false;
  bool keeps_float32 = false;       // ParameterSpec::keeps_float32
  bool summed_over_tensor = false;  // gradients come only from a rank's own tokens (sequence parallelism)
  bool shared = false;  // a TIE adds to it the gradients of a group that is cut in the same way, so it holds nothing else
  GroupRole role = GroupRole::Own;
  // Where sharded weights are kept; where master weights and optimizer states are (place_groups.h).
  Placement weights = Placement::Device, states = Placement::Device;
  bool quantized = false;  // sharded weights are gathered in 8 bits (zero/collectives.h), also by a single rank
  int users = 1;           // blocks of the model that put gradients into it, or into a replica
  int parts = 1;           // of a contribution, which are rounded by themselves (Gradient::next)
  std::vector<FlatParameter> parameters;
  Sharing sharing = Sharing::Dense;
  int shards = 1;              // ranks that divide the group
  int64_t whole_elements = 0;  // padded; shards x shard_elements
  int64_t shard_elements = 0;
  int64_t parameter_elements() const;  // without padding
};

// Where a parameter is: its block, its group in the block and its index in the group.
struct ParameterPlace {
  int block = 0, group = 0, index = 0;
  bool operator==(const ParameterPlace&) const = default;
};

struct BlockLayout {
  std::string name;
  LayerRole role = LayerRole::Hidden;
  bool here = true;  // on this pipeline rank; else it has no groups
  std::vector<FlatGroup> groups;
  // In the order of the layer's parameters(); the places of tied ones may be in another block.
  std::vector<ParameterPlace> weights, gradients;
  std::vector<int> weight_blocks, gradient_blocks;  // this block, then other blocks that these places are in
};

// A TIE adds the gradients of `user` to those of `owner`.
struct TiedWeight {
  int owner_block = 0, user_block = 0;
  int owner_rank = 0, user_rank = 0;  // pipeline ranks
  ParameterPlace owner, user;         // valid if the block is on this rank
};

struct LayoutOptions {
  ShardCounts shards;                 // ranks that divide a group
  int64_t persistence_threshold = 0;  // parameters with fewer elements are persistent
  int64_t persistence_limit = 0;      // most persistent elements of all together (stage3_model_persistence_threshold)
  int tensor_rank = 0, tensor_size = 1;
  int expert_rank = 0, expert_size = 1;  // ranks that share the matrices of each parameter with Sharing::Expert
  bool sequence_parallel = false;
  std::vector<int> pipeline_rank_of_block;  // empty: all blocks are on this rank
  int pipeline_rank = 0;
  bool quantized = false, quantized_frozen = false;  // gathers of trainable weights that are not persistent; of frozen ones
  bool separate_tied_gradients = false;              // for sums of floats: see the Note
};

struct ShardLayout {
  // Checks whether any group is divided into shards.
  bool is_divided() const;

  int tensor_size = 1;              // size of the tensor axis
  std::vector<BlockLayout> blocks;  // all blocks of the model
  std::vector<TiedWeight> ties;     // only those that concern this rank
};

struct NamedParameters {
  std::string layer;
  std::span<const ParameterSpec> parameters;
  LayerRole role = LayerRole::Hidden;
};
// Throws ConfigError if a tied parameter names one that no layer owns, or one of a different shape, or if two parameters have
// the same name.
ShardLayout make_shard_layout(const std::vector<NamedParameters>& layers, const LayoutOptions& options);

// The part of the elements [offset, offset + elements) of a group that is in its range [first, first + count).
struct Intersection {
  int64_t first_in_parameter = 0, first_in_range = 0, count = 0;  // count 0: none
};
Intersection intersection(int64_t offset, int64_t elements, int64_t first, int64_t count);
inline Intersection intersection(const FlatParameter& parameter, int64_t first, int64_t count) {
  return intersection(parameter.offset, parameter.elements(), first, count);
}

}  // namespace trivet::zero
