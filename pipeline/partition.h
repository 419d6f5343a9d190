// Assigns the blocks of a model to the stages of a pipeline: each stage gets consecutive blocks, and at least one. This is pure
// arithmetic.
//
//   stages 3    embedding block block | block block block | block block head        partition() = {0, 3, 6, 9}
//
// Uniform     each stage has n / stages blocks; the first n % stages stages have one more (DeepSpeed's partition_uniform).
// Parameters, Cost, Type
//             the heaviest stage is as light as possible. Among such partitions the most even one is chosen (the least sum of
//             squares), and among those the one whose later stages are heavier, because in 1F1B earlier stages keep more
//             activations.
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

// Returns the first block of each stage, then the number of blocks: stages + 1 numbers, strictly increasing. `regex` is used
// only by PartitionMethod::Type, which searches it in types and names and ignores case. Throws ConfigError.
std::vector<int> partition(std::span<const BlockFacts> blocks, int stages, PartitionMethod method,
                           const std::string& regex = "");

}  // namespace trivet::pipeline
