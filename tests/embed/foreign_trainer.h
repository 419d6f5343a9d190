// A trainer with its own model and its own gradients, as the tests of embedded optimizers use it: plain functions over plain
// pointers.
//
// The model is f(x) = b2 + w2 tanh(w1 x + b1), fitted to sin(3 x0) x1. All microbatches of a step are numbered over all ranks,
// so any number of ranks that divides kMicrobatches computes the same contributions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "embed/sharded_optimizer.h"
#include "engine/config/load.h"

namespace trivet::embed {

constexpr int kHidden = 24, kInputs = 2, kMicrobatches = 12, kSamples = 4;
enum ForeignParameter { kW1, kB1, kW2, kB2, kForeignParameters };
constexpr int64_t kElements[kForeignParameters] = {kHidden * kInputs, kHidden, kHidden, 1};

// A config with `more` keys: "\"zero_optimization\": {\"stage\": 2}". The optimizer is Adam unless they say another.
Config config_of(const std::string& more, int ranks = 1);

// The bits of the weights of all parameters after training, from rank 0.
using Bits = std::vector<float>;

class ForeignTrainer {
 public:
  // `units`: each layer is a unit; otherwise buckets of `bucket_elements`.
  ForeignTrainer(const Config& config, comm::World& world, bool units = true, int64_t bucket_elements = 1000);

  // In which order this rank hands over the gradients of a microbatch.
  std::vector<int> order = {kB2, kW2, kB1, kW1};
  bool in_place = false;  // writes gradients to gradient() instead of handing over copies

  StepReport step();
  // All ranks call it together.
  Bits weights();
  ShardedOptimizer& optimizer() { return optimizer_; }

 private:
  double microbatch(int64_t number);

  comm::World& world_;
  ShardedOptimizer optimizer_;
};

// The trainer's parameters; the values of `values` are those of this rank.
std::vector<std::vector<float>> foreign_values(int rank);
std::vector<Parameter> foreign_parameters(const std::vector<std::vector<float>>& values, bool units);

// Runs `ranks` trainers for some steps, and returns rank 0's weights. `prepare` is called on each rank before the first step.
Bits train(const std::string& config, int ranks, int steps, const std::function<void(ForeignTrainer&, int rank)>& prepare = {},
           bool units = true);

}  // namespace trivet::embed
