// The measured time of each block: a recorded run writes it to costs.json, and pipeline.partition "cost:PATH" reads it.
//
//   {"unit": "seconds of a microbatch", "micro_batch_size": 1,
//    "blocks": [{"name": "embedding", "forward": 1.6e-05, "backward": 3.0e-05}, ...]}
//
// The kinds of work are forward, recompute, backward (both halves), backward_input, backward_weight and loss (all of the last
// block); a block has those that occurred in its programs. Only "blocks" is read back.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/instruction.h"

namespace trivet::timeline {

struct BlockCosts {
  std::string name;                     // as in the model
  std::map<pipeline::Op, double> ms{};  // per microbatch, by kind of work
  double total_ms() const {
    double sum = 0;
    for (const auto& [op, time] : ms) sum += time;
    return sum;
  }
};

std::string to_json(std::span<const BlockCosts> blocks, int64_t micro_batch_size);

// Reads the costs in the file `path` for the blocks with these names, in their order. Throws ConfigError naming the file and
// what is wrong with it.
std::vector<BlockCosts> read_block_costs(const std::string& path, std::span<const std::string> names);
std::vector<BlockCosts> parse_block_costs(std::string_view text, const std::string& path, std::span<const std::string> names);

}  // namespace trivet::timeline
