// Wraps the user's optimizer: averages gradients over ranks before each of its steps, while backward still runs.
//
//   hvd::DistributedOptimizer optimizer(*hvd, [&] { adam.step(); }, {{"w1", w1.gradient}, {"w2", w2.gradient}});
//   for each step:
//     backward ... optimizer.gradient_ready(1) ... optimizer.gradient_ready(0)     // as soon as backward has computed it
//     optimizer.step()                                                             // waits, then calls adam.step()
//     zero the gradients
//
// With backward_passes_per_step k, the program adds up the gradients of k backward passes in the same tensors; only the last
// pass is followed by communication. The average is over ranks; average_aggregated_gradients also divides by k.
//
// The gradients are the user's memory, at the same address in every step; nobody may touch one from its last gradient_ready to
// the end of synchronize() or step(), and they must outlive this. One thread at a time. The Communicator must outlive this.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hvd/communicator.h"

namespace trivet::hvd {

struct DistributedOptimizerOptions {
  ReduceOp op = ReduceOp::Average;  // Average, Sum or Adasum
  Compression compression = Compression::None;
  int backward_passes_per_step = 1;
  bool average_aggregated_gradients = false;
  // Average only: gradients are divided by this before they are summed, and by ranks / this afterwards.
  double gradient_predivide_factor = 1;
  ProcessSet process_set = {};
};

class DistributedOptimizer {
 public:
  // Throws ConfigError for an empty function, for options that do not fit together, and for names that occur twice.
  DistributedOptimizer(Communicator& hvd, std::function<void()> optimizer_step, std::vector<NamedTensor> gradients,
                       const DistributedOptimizerOptions& options = {});
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  // A backward pass has completed gradient `index`. In the last pass of a step its sum starts. Throws ConfigError in a pass
  // more than backward_passes_per_step, and after synchronize(): the gradient has been averaged for this step.
  void gradient_ready(size_t index);
  // Starts the sums of gradients that were not ready often enough (unused parameters, an incomplete step), and waits for all.
  // Call it before step() to clip or inspect averaged gradients; step() then does not do it again.
  void synchronize();
  // synchronize(), then the user's optimizer. If it throws, the gradients are not usable; the next pass begins a new step.
  void step();

 private:
  void start(size_t index);
  void begin_step();

  Communicator& hvd_;
  std::function<void()> optimizer_step_;
  std::vector<NamedTensor> gradients_;
  DistributedOptimizerOptions options_;
  std::vector<int> passes_;      // for each gradient since the last step
  std::vector<bool> started_;    // since the last step
  std::vector<Handle> handles_;  // in flight
};

}  // namespace trivet::hvd
