#include "pipeline/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "core/error.h"
#include "core/printable.h"
#include "core/regular_expression.h"

namespace trivet::pipeline {
namespace {

// Weights of consecutive blocks. Rounding is monotonic, so a longer run never weighs less, even in floating point.
class Weights {
 public:
  explicit Weights(const std::vector<double>& blocks) : sums_(blocks.size() + 1) {
    for (const double weight : blocks)
      if (!(weight >= 0) || !std::isfinite(weight))
        throw std::logic_error("partition: the weight of a block is negative or not finite");
    std::partial_sum(blocks.begin(), blocks.end(), sums_.begin() + 1);
  }

  int blocks() const { return static_cast<int>(sums_.size()) - 1; }
  double of(int begin, int end) const { return sums_[end] - sums_[begin]; }

 private:
  std::vector<double> sums_;
};

std::vector<double> matches(std::span<const BlockFacts> blocks, const std::string& text) {
  std::vector<double> weights;
  bool any = false;
  try {
    const RegularExpression expression(text, RegularExpression::Case::Ignored);
    for (const BlockFacts& block : blocks) {
      const bool match = expression.is_found_in(block.type) || expression.is_found_in(block.name);
      weights.push_back(match ? 1 : 0);
      any |= match;
    }
  } catch (const std::invalid_argument& error) {
    throw ConfigError(fmt::format(
        "pipeline.partition: the regular expression of \"type:{}\" is not accepted: {}; use one such as \"type:transformer\"",
        printable(text, 200), error.what()));
  }
  if (any) return weights;
  std::vector<std::string> types;
  for (const BlockFacts& block : blocks)
    if (std::find(types.begin(), types.end(), block.type) == types.end()) types.push_back(block.type);
  throw ConfigError(
      fmt::format("pipeline.partition: \"type:{}\" matches no block; the types are {}", text, fmt::join(types, ", ")));
}

std::vector<double> weights_of(std::span<const BlockFacts> blocks, PartitionMethod method, const std::string& regex) {
  if (method == PartitionMethod::Type) return matches(blocks, regex);
  std::vector<double> weights;
  for (const BlockFacts& block : blocks)
    weights.push_back(method == PartitionMethod::Parameters ? static_cast<double>(block.parameters) : block.cost);
  return weights;
}

// Returns whether `stages` stages of at most `limit` each can hold all blocks. Needing fewer stages is fine: there are at least
// as many blocks as stages, so some stages can be split further.
bool suffices(const Weights& weights, int stages, double limit) {
  int begin = 0;
  for (int stage = 0; stage < stages && begin < weights.blocks(); ++stage) {
    int end = begin;
    while (end < weights.blocks() && weights.of(begin, end + 1) <= limit) ++end;
    begin = end;
  }
  return begin == weights.blocks();
}

// Returns the least possible weight of the heaviest stage, exact to the last bit: halves the interval until no double is inside
// it.
double least_heaviest(const Weights& weights, int stages) {
  double too_little = -1, enough = weights.of(0, weights.blocks());
  while (true) {
    const double middle = too_little + (enough - too_little) / 2;
    if (middle <= too_little || middle >= enough) return enough;
    (suffices(weights, stages, middle) ? enough : too_little) = middle;
  }
}

// Finds, by dynamic programming over the end of a stage, the least sum of squares of stages that are not heavier than `limit`.
std::vector<int> most_even(const Weights& weights, int stages, double limit) {
  const int blocks = weights.blocks();
  const double never = std::numeric_limits<double>::infinity();
  std::vector<double> least(blocks + 1, never);  // by the end of the stage
  least[0] = 0;
  std::vector<std::vector<int>> begins;  // by stage and end: where the stage begins
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<double> next(least.size(), never);
    std::vector<int>& begin_of = begins.emplace_back(least.size(), -1);
    for (int end = stage + 1; end <= blocks; ++end) {
      for (int begin = end - 1; begin >= stage && weights.of(begin, end) <= limit; --begin) {
        const double weight = weights.of(begin, end);
        const double sum = least[begin] + weight * weight;
        if (sum == never || sum > next[end]) continue;  // if equal, the later stage is the longer one
        next[end] = sum;
        begin_of[end] = begin;
      }
    }
    least = std::move(next);
  }
  std::vector<int> bounds(stages + 1, blocks);
  for (size_t stage = begins.size(); stage > 0; --stage) bounds[stage - 1] = begins[stage - 1][bounds[stage]];
  return bounds;
}

std::vector<int> uniform(int blocks, int stages) {
  std::vector<int> bounds{0};
  for (int stage = 0; stage < stages; ++stage)
    bounds.push_back(bounds.back() + blocks / stages + (stage < blocks % stages ? 1 : 0));
  return bounds;
}

}  // namespace

std::vector<int> partition(std::span<const BlockFacts> blocks, int stages, PartitionMethod method, const std::string& regex) {
  const int count = static_cast<int>(blocks.size());
  if (stages < 1) throw std::logic_error("partition: a pipeline needs at least one stage");
  if (stages > count)
    throw ConfigError(
        fmt::format("pipeline: {} stages need at least as many blocks, but the model has {}; make parallel.pipeline x "
                    "pipeline.chunks at most {}, or use more layers",
                    stages, count, count));
  if (method == PartitionMethod::Uniform) return uniform(count, stages);
  const Weights weights(weights_of(blocks, method, regex));
  return most_even(weights, stages, least_heaviest(weights, stages));
}

}  // namespace trivet::pipeline
