// Deals the blocks of a model to the stages of a pipeline: each stage gets consecutive blocks, at least one. Arithmetic only.
//
//   stages 3    embedding block block | block block block | block block head        partition() = {0, 3, 6, 9}
//
// Uniform     n / stages blocks each; the first n % stages stages have one more (DeepSpeed's partition_uniform).
// Parameters, Cost, Type
//             the heaviest stage is as light as can be; of those partitions the most even one (the least sum of squares); of
//             those the one whose later stages are heavier, because in 1F1B earlier stages keep more activations.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pipeline/partition_method.h"

namespace trivet::pipeline {

struct BlockFacts {
  std::string name, type;  // "blocks.3", "transformer_block"
  int64_t parameters = 0;
  double cost = 0;  // time or FLOPs of a microbatch, forward and backward; in any unit
};

// The first block of each stage, then the number of blocks: stages + 1 numbers, strictly increasing. `regex` is searched in
// types and names, in any case, by PartitionMethod::Type alone. Throws ConfigError.
std::vector<int> partition(std::span<const BlockFacts> blocks, int stages, PartitionMethod method,
                           const std::string& regex = "");

}  // namespace trivet::pipeline
