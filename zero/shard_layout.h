// Which rank owns which piece of which parameter. Arithmetic only; the same on every rank.
//
// The parameters of a block are laid out one after another in flat groups, each starting at a multiple of kSumBlock elements
// (so that blocks of sums are aligned to the parameter and never cut), and a group is padded to ranks x kSumBlock:
//
//   group  [ qkv.weight ........ | pad | out.weight ... | pad | pad to n ranks ]
//   shards |------ rank 0 ------|------ rank 1 ------|------ rank 2 ------|
//
// A block has up to four groups, told apart by what ZeRO does with them: trainable or frozen, sharded or persistent at stage 3.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/parameter_spec.h"

namespace trivet::zero {

struct FlatParameter {
  std::string name;  // global: layer name + "." + parameter name
  ParameterSpec spec;
  int64_t offset = 0;  // first element within the group
  int64_t elements() const { return spec.shape.elements(); }
};

struct FlatGroup {
  bool trainable = true;
  bool persistent = false;
  std::vector<FlatParameter> parameters;
  int64_t whole_elements = 0;  // padded; ranks x shard_elements
  int64_t shard_elements = 0;
  int64_t parameter_elements() const;  // without padding
};

// Where a parameter of a block is: group and index within it.
struct ParameterPlace {
  int block = 0, group = 0, index = 0;
};

struct BlockLayout {
  std::string name;
  std::vector<FlatGroup> groups;
  std::vector<ParameterPlace> places;  // in the order of the layer's parameters(); tied ones point into another block
  std::vector<int> used_blocks;        // this block, then those it is tied to
};

struct LayoutOptions {
  int ranks = 1;
  int64_t persistence_threshold = 0;  // parameters with fewer elements are persistent
  int64_t persistence_limit = 0;  // as long as no more elements than these persist in all (stage3_model_persistence_threshold)
};

struct ShardLayout {
  int ranks = 1;
  std::vector<BlockLayout> blocks;
};

struct NamedParameters {
  std::string layer;
  std::span<const ParameterSpec> parameters;
};
// Throws ConfigError when a tied parameter names none that exists, or one of another shape, and when two have one name.
ShardLayout make_shard_layout(const std::vector<NamedParameters>& layers, const LayoutOptions& options);

// The part of a parameter that lies in a range [first, first + count) of its group: what a checkpoint writes.
struct Overlap {
  int64_t first_in_parameter = 0, first_in_range = 0, count = 0;  // count 0: none
};
Overlap overlap(const FlatParameter& parameter, int64_t first, int64_t count);

}  // namespace trivet::zero
