// Everything that one rank owns and does in a step. It works on the resources that it is given: real memory and kernels, or the
// planner's meta ones.
//
// The planner runs a Worker on Device::Meta, and the Engine runs the same class on the real device. So what was planned is what
// runs.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "comm/rank_axis.h"
#include "engine/config/parallel_config.h"
#include "engine/executor.h"
#include "engine/optimizer/optimizer_step.h"
#include "engine/optimizer/step_results.h"
#include "engine/optimizer/step_scalars.h"
#include "engine/program.h"
#include "engine/rank_batches.h"
#include "engine/rank_plan.h"
#include "engine/rank_resources.h"
#include "zero/parameters.h"

namespace trivet {

struct StepOutcome {
  double grad_norm = 0;  // before clipping; NaN when not finite, and without targets
  bool skipped = false;
  bool without_targets = false;  // skipped for lack of targets, not because of an overflow
};

struct StepResult {
  double loss = 0;      // mean over the targets of the global batch; the same bits on all ranks
                        // NaN without targets
  int64_t targets = 0;  // in the global batch; or pairs of answers
  int64_t correct = 0;  // correct targets; 0 if the model neither chooses classes nor compares answers
  double chosen_reward = 0, rejected_reward = 0;  // means over pairs of answers (kernels/preference_rule.h)
  double grad_norm = 0;
  bool skipped = false;             // gradients were not finite, or there were no targets; nothing changed
  std::vector<ExpertLoad> experts;  // in training: of each layer that has some
};
StepResult result_of(const StepLoss& loss, const StepOutcome& outcome = {});

// The observers of a step while its program runs.
struct ProgramWatch {
  NotFiniteSearch* search = nullptr;      // null: none
  std::optional<int> audited_microbatch;  // digests gradients, and those of this microbatch of the rank by themselves
};

class Worker {
 public:
  // `config`, `stages`, `rank` and `model` must outlive it. `batch`: as planned. Microbatches of all methods have whole
  // samples; the worker takes this rank's part of each sequence.
  Worker(const Config& config, const StageMap& stages, const RankPlan& rank, const model::Model& model,
         const ResolvedBatch& batch, const RankResources& resources);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Runs forward_backward() and update(). `microbatches` are this rank's, one for each accumulation step.
  StepResult train_step(std::span<const Microbatch> microbatches, const StepNumbers& numbers);
  // Runs the same in two halves, for trainers with their own loop. The loss is that of all ranks.
  StepLoss forward_backward(std::span<const Microbatch> microbatches, const StepNumbers& numbers,
                            const ProgramWatch& watch = {});
  StepOutcome update(const StepNumbers& numbers);

  // Between the halves of a step that is audited: computes a microbatch of another rank, so that parameters() have digests of
  // its gradients. Changes nothing else of the step. All ranks call it together.
  void recompute(const Microbatch& microbatch, const StepNumbers& numbers);

  // Returns the mean loss over the targets of all ranks' microbatches. make(i) creates them one at a time; each rank has the
  // same number. `logits`, which may be null, is called on the ranks that compute the loss.
  StepResult evaluate(int64_t microbatches, const std::function<Microbatch(int64_t)>& make, LogitsReader* logits = nullptr);

  zero::Parameters& parameters() { return parameters_; }
  // Bytes of blocks' inputs copied to host memory so far; as many are copied back.
  int64_t offloaded_bytes() const { return executor_.offloaded_bytes(); }

 private:
  // A step's inputs: the rank's own, in memory that kernels can read.
  struct Step {
    std::vector<Microbatch> microbatches;
    uint64_t seed = 0;
    StepScalars scalars;
  };

  Step begin_step(std::span<const Microbatch> microbatches, const StepNumbers& numbers);
  StepInputs training_inputs(const Step& step, StepResults& results) const;
  void run_program(const Step& step, const ProgramWatch& watch = {});
  void run_optimizer(const StepScalars& scalars);
  void run_whole(const Step& step);
  RepeatKey repeat_key(const Step& step) const;
  RankAxes axes() const;
  std::vector<Microbatch> own_part(std::span<const Microbatch> microbatches);
  StepScalars on_device(const StepNumbers& numbers);
  // Null: nobody asks what memory the phases of this step use.
  MemoryPhases* memory_phases() const { return resources_.memory ? *resources_.memory : nullptr; }
  StepOutcome outcome() const;

  const Config& config_;
  const Programs& programs_;
  const SampleSpec& sample_;
  ResolvedBatch batch_;
  // The number of targets of a microbatch, counting or not, by which the gradients of its losses are divided. How many
  // count is known only after the program; the optimizer makes gradients of the mean over them from both numbers.
  double gradient_divisor_;
  const RankResources resources_;
  std::array<std::optional<comm::RankAxis>, kAxes> layer_axes_;
  StepResults results_, evaluation_;
  std::optional<RankBatches> batches_;    // if kernels cannot read the caller's memory, or a rank reads only a part of it
  std::optional<DeviceScalars> scalars_;  // likewise
  StageLinks links_;
  zero::Parameters parameters_;
  Executor executor_;
  OptimizerStep optimizer_;
};

}  // namespace trivet
