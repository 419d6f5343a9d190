// The results of a step: its losses, the norm of its gradients, and whether it is skipped. They are in device memory, so that
// no kernel waits for the host; read() at the end of a step is the only time that the host waits for the device.
//
//   losses of microbatches --SUM_LOSS--> loss words --\                      of this rank -> of all ranks
//   tokens of experts -------SUM_LOSS-------------------|------------------> of this rank -> of all ranks
//   gradients --> square sum, refused ----------------> verdict --> optimizer
#pragma once

#include <string>
#include <vector>

#include "comm/process_group.h"
#include "core/buffer.h"
#include "core/exact_sum.h"
#include "core/expert_load.h"
#include "kernels/interface.h"

namespace trivet {

// The loss of a step or an evaluation, as an exact sum: combined over ranks it has the same bits on every layout.
struct StepLoss {
  ExactSum loss_sum;    // over targets that count
  int64_t targets = 0;  // targets that count
  int64_t correct = 0;  // correct targets, if the loss layer chooses classes or compares answers (Context::correct)
  ExactSum chosen_reward_sum, rejected_reward_sum;  // over pairs of answers that count (Context::rewards)
  std::vector<ExpertLoad> experts;                  // in training

  double mean() const { return mean_of(loss_sum); }
  double mean_of(const ExactSum& sum) const;  // NaN without targets: there is nothing to take the mean of
};

// A layer of the model and the number of its experts, whose tokens are counted; it may have none.
struct CountedLayer {
  std::string name;
  int64_t experts = 0;
};

class StepResults {
 public:
  // `microbatches`: the maximum number of losses kept at a time. `rewards`: the loss layer compares pairs of answers.
  // `layers`: all of the model; empty: none has experts.
  StepResults(Allocator& allocator, MemoryMeter& meter, int microbatches, bool rewards = false,
              std::vector<CountedLayer> layers = {});

  bool has_rewards() const { return rewards_ > 0; }
  TensorView losses(int microbatches);  // float64 [microbatches, 3, or 5 with rewards], see kernels::SumLosses
  TensorView loss_words();              // int64, see kernels::SumLosses
  TensorView target_words();            // the part of loss_words() that JudgeGradients reads
  TensorView expert_tokens(int layer);  // int64 [experts of the layer]; absent if it has none
  TensorView square_sum();              // int64 [ExactSum::kWords]
  TensorView refused();                 // int64 [1]: contributions that do not fit on the fixed-point grid
  TensorView verdict();                 // float64 [3], see kernels::JudgeGradients

  // Sums the loss words, and the tokens of experts, over the ranks of `group`.
  void sum_losses_over(comm::ProcessGroup& group, Stream& stream);

  // Resets all sums.
  void begin(kernels::Kernels& kernels);
  // Waits for the device. The functions below return what it read until the next read.
  void read(kernels::Kernels& kernels);
  StepLoss loss() const;
  double grad_norm() const;
  bool applied() const;

 private:
  int64_t place_of_experts(size_t layer) const;
  int64_t square_sum_place() const;  // after the loss words and the tokens of experts
  TensorView words(int64_t first, int64_t count) { return memory_.view().slice(first, count); }
  TensorView numbers(int64_t first, int64_t count);

  int64_t rewards_;  // numbers of a loss: 0 or 2
  std::vector<CountedLayer> layers_;
  Buffer memory_;              // int64: sums, verdict, then losses
  std::vector<int64_t> host_;  // sums and verdict, as read
};

}  // namespace trivet
