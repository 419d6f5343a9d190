// Which rank owns which piece of which parameter. Arithmetic only.
//
// First tensor parallelism gives a rank its part of each split parameter (tensor_parallel/split.h) and the pipeline its blocks;
// what is left is dealt to the data axis. The parameters of a block are laid out one after another in flat groups, each
// starting at a multiple of kSumBlock elements (so that blocks of sums are aligned to the parameter and never cut), and a group
// is padded to ranks x kSumBlock:
//
//   group  [ qkv.weight ........ | pad | out.weight ... | pad | pad to n ranks ]
//   shards |------ rank 0 ------|------ rank 1 ------|------ rank 2 ------|
//
// A block has several groups, told apart by what is done with them: trainable or frozen, sharded or persistent at stage 3, and
// the two below.
//
// [Note: tied weights] A weight that a later block uses too (the embedding's table as the head's weight) has one owner. Where
// the user is on another pipeline rank it has a Replica of the weight; gradients go to the owner (TIE), new values come back
// (publish). On the owner's own rank it has TiedGradients at most: an accumulator of its own, so that the two sums over
// microbatches are added in one order wherever the blocks are. Integers (layout mode) need none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/parameter_spec.h"
#include "tensor_parallel/split.h"
#include "zero/placement.h"

namespace trivet::zero {

struct FlatParameter {
  std::string name;  // global: layer name + "." + parameter name
  ParameterSpec spec;
  tensor_parallel::LocalPart part;  // this tensor rank's
  int64_t offset = 0;               // first element within the group
  // Norms are summed in blocks of so many elements, which neither the data nor the tensor axis cuts. Divides kSumBlock.
  int64_t sum_block = 0;
  int64_t elements() const { return part.shape.elements(); }
};

enum class GroupRole { Own, Replica, TiedGradients };

struct FlatGroup {
  bool trainable = true;
  bool persistent = false;
  bool summed_over_tensor = false;  // gradients are of a rank's own tokens only (sequence parallelism)
  bool shared = false;              // a TIE adds another group's gradients to it, which is cut alike: nothing else is in it
  GroupRole role = GroupRole::Own;
  // Of sharded weights; of master weights and optimizer states (place_groups.h).
  Placement weights = Placement::Device, states = Placement::Device;
  int users = 1;  // blocks of the model that put gradients into it, or into a replica
  std::vector<FlatParameter> parameters;
  int64_t whole_elements = 0;  // padded; ranks x shard_elements
  int64_t shard_elements = 0;
  int64_t parameter_elements() const;  // without padding
};

// Where a parameter of a block is: group and index within it.
struct ParameterPlace {
  int block = 0, group = 0, index = 0;
  bool operator==(const ParameterPlace&) const = default;
};

struct BlockLayout {
  std::string name;
  bool here = true;  // on this pipeline rank; else it has no groups
  std::vector<FlatGroup> groups;
  // In the order of the layer's parameters(); those of tied ones may be in another block.
  std::vector<ParameterPlace> weights, gradients;
  std::vector<int> weight_blocks, gradient_blocks;  // this block, then the others that these places are in
};

// Gradients that a TIE adds up: those of `user` to those of `owner`.
struct TiedWeight {
  int owner_block = 0, user_block = 0;
  int owner_rank = 0, user_rank = 0;  // pipeline ranks
  ParameterPlace owner, user;         // valid where the block is on this rank
};

struct LayoutOptions {
  int ranks = 1;                      // of the data axis
  int64_t persistence_threshold = 0;  // parameters with fewer elements are persistent
  int64_t persistence_limit = 0;  // as long as no more elements than these persist in all (stage3_model_persistence_threshold)
  int tensor_rank = 0, tensor_size = 1;
  bool sequence_parallel = false;
  std::vector<int> pipeline_rank_of_block;  // empty: all blocks are on this one
  int pipeline_rank = 0;
  bool separate_tied_gradients = false;  // sums of floats: see the Note
};

struct ShardLayout {
  int ranks = 1;                    // of the data axis
  int tensor_size = 1;              // of the tensor axis
  std::vector<BlockLayout> blocks;  // all of the model
  std::vector<TiedWeight> ties;     // that concern this rank
};

struct NamedParameters {
  std::string layer;
  std::span<const ParameterSpec> parameters;
};
// Throws ConfigError when a tied parameter names none that exists before it, or one of another shape, and when two have one
// name.
ShardLayout make_shard_layout(const std::vector<NamedParameters>& layers, const LayoutOptions& options);

// The part of some elements [offset, offset + elements) of a group that lies in a range [first, first + count) of it.
struct Overlap {
  int64_t first_in_parameter = 0, first_in_range = 0, count = 0;  // count 0: none
};
Overlap overlap(int64_t offset, int64_t elements, int64_t first, int64_t count);
inline Overlap overlap(const FlatParameter& parameter, int64_t first, int64_t count) {
  return overlap(parameter.offset, parameter.elements(), first, count);
}

}  // namespace trivet::zero
