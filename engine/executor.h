// Walks one rank's program. No decisions here: what runs, in which order and what is whole when, is in the program.
//
// Owns the activations of the microbatches in flight (from its arena): the input of each block and what its layers Saved.
// One thread. Used by training, by evaluation (programs of F only) and, on meta kernels, by the plan.
#pragma once

#include <span>
#include <vector>

#include "core/exact_sum.h"
#include "core/layer.h"
#include "engine/parameters.h"
#include "model/model.h"
#include "pipeline/instruction.h"
#include "zero/gradient_reducer.h"

namespace trivet {

struct ExecutorOptions {
  DType dtype = DType::Float32;      // of activations
  bool clear_after_forward = false;  // the program recomputes: forward keeps nothing but its input
  int reductions_in_flight = 0;
};

// What holds for all microbatches of one run of a program.
struct StepInputs {
  std::span<const Microbatch> microbatches;
  uint64_t seed = 0;
  int64_t step = 0;
  double loss_scale = 1.0;
  bool training = true;
};

struct StepLoss {
  ExactSum loss_sum;  // over targets that count, of this rank
  int64_t loss_tokens = 0;
};

class Executor {
 public:
  Executor(const model::Model& model, Parameters& parameters, kernels::Kernels& kernels, Arena& activations,
           const ExecutorOptions& options);

  StepLoss run(const pipeline::Program& program, const StepInputs& inputs);

 private:
  // One microbatch on its way through the blocks of this stage.
  struct Flight {
    std::vector<ScopedTensor> inputs;            // [block]; block 0 reads the tokens
    std::vector<ScopedTensor> output_gradients;  // [block], from I of the next block to W of this one
    std::vector<Saved> saved;                    // [block]
  };

  void run(const pipeline::Instruction& instruction);
  void forward(int block, int microbatch);
  void recompute(int block, int microbatch);
  void loss(int block, int microbatch);
  void backward(int block, int microbatch);
  void backward_input(int block, int microbatch);
  void backward_weight(int block, int microbatch);

  const Layer& layer(int block) const { return *model_.layers[static_cast<size_t>(block)]; }
  bool last(int block) const { return block + 1 == static_cast<int>(model_.layers.size()); }
  Context context(int microbatch);
  ConstTensorView input(int block, int microbatch) const;
  ScopedTensor input_gradient(int block, int microbatch);
  void pass_gradient_on(int block, int microbatch, ScopedTensor gradient);
  void finish_block(int block, int microbatch);
  Flight& flight(int microbatch) { return flights_[static_cast<size_t>(microbatch)]; }
  void collect_loss(const Context& context);

  const model::Model& model_;
  Parameters& parameters_;
  kernels::Kernels& kernels_;
  Arena& activations_;
  ExecutorOptions options_;
  zero::GradientReducer reducer_;

  StepInputs inputs_;
  StepLoss loss_;
  std::vector<Flight> flights_;  // [microbatch]
};

}  // namespace trivet
