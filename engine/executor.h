// Walks through one rank's program. It makes no decisions: the program says what runs, in which order, and which weights are
// whole at what time.
//
// Owns the activations of the microbatches in flight (from its arena): the input of each block and what its layers saved. A
// stage boundary is no special case: a stage sends the input of the block after its last one (or the output gradient of the
// block before its first), and what it receives takes the same place. An input between its OFFLOAD and its FETCH is in host
// memory (zero/host_side.h). One thread. Training uses it, as do evaluation (with
// programs that only run forward) and, on meta kernels, the planner.
#pragma once

#include <span>
#include <vector>

#include "core/layer.h"
#include "engine/links.h"
#include "engine/memory_phases.h"
#include "engine/not_finite.h"
#include "engine/optimizer/step_results.h"
#include "engine/optimizer/step_scalars.h"
#include "engine/program.h"
#include "engine/rank_resources.h"
#include "engine/timeline/recorder.h"
#include "kernels/leaf_kernels.h"
#include "model/model.h"
#include "pipeline/instruction.h"
#include "zero/gradient_reducer.h"
#include "zero/parameters.h"

namespace trivet {

struct ExecutorOptions {
  DType dtype = DType::Float32;  // activations have this dtype
  int reductions_in_flight = 0;
  int64_t mlp_slice_tokens = 0;    // as in Context (core/layer.h)
  bool counts_loss = true;         // false: another tensor rank does
  int leaves = 0;                  // this rank has so many of a sequence (kernels/leaf_kernels.h); 0: no fixed order
  bool partitions_inputs = false;  // splits inputs of fully recomputed blocks over the tensor axis (engine/partitioned_input.h)
};

// The parts that a rank's programs run on.
struct ExecutorParts {
  const model::Model& model;
  zero::Parameters& parameters;
  const StageMap& stages;
  StageLinks& links;
  RankAxes axes;
};

// Inputs that are the same for all microbatches of one run of a program.
struct StepInputs {
  std::span<const Microbatch> microbatches;
  StepResults* results = nullptr;  // where losses go
  uint64_t seed = 0;
  StepScalars scalars;
  double gradient_divisor = 1;  // divides the losses of a microbatch; see Worker
  bool training = true;
  timeline::Recorder* recorder = nullptr;  // null: the step is not recorded
  MemoryPhases* memory = nullptr;          // null: nobody asks what memory the phases use
  LogitsReader* logits = nullptr;          // in an evaluation; null: nobody wants them
  NotFiniteSearch* search = nullptr;       // looks at the results of each instruction; null: no search
};

class Executor {
 public:
  // The objects that `parts` refers to and `resources` must outlive it.
  Executor(const ExecutorParts& parts, const RankResources& resources, const ExecutorOptions& options);

  // `recompute` [block]: with Full, a forward keeps only its input; with Selective, it does not keep what attention computes
  // from its qkv. Adds the losses to the loss words of the results, which after a SUM_LOSS cover all ranks and otherwise only
  // this one.
  void run(const pipeline::Program& program, const std::vector<Recompute>& recompute, const StepInputs& inputs);

  // Bytes of inputs copied to host memory so far; as many are copied back.
  int64_t offloaded_bytes() const { return offloaded_bytes_; }

 private:
  // One microbatch on its way through the blocks of this rank.
  struct Flight {
    std::vector<ScopedTensor> inputs;                    // [block]; of block 0 only if samples must be converted
    std::vector<ScopedTensor> output_gradients;          // [block], from I of the next block to W of this one
    std::vector<Event> input_arrived, gradient_arrived;  // [block]; empty where nothing is received
    std::vector<ScopedTensor> inputs_on_host;            // [block]; from OFFLOAD to R
    std::vector<Event> input_moved;                      // [block], to the host or from it
    std::vector<Saved> saved;                            // [block]
  };

  void run(const pipeline::Instruction& instruction);
  void forward(int block, int microbatch);
  void recompute(int block, int microbatch);
  void loss(int block, int microbatch);
  void backward(int block, int microbatch);
  void backward_input(int block, int microbatch);
  void backward_weight(int block, int microbatch);
  void send_forward(int stage, int microbatch);
  void receive_forward(int stage, int microbatch);
  void send_backward(int stage, int microbatch);
  void receive_backward(int stage, int microbatch);
  void offload(int block, int microbatch);
  void fetch(int block, int microbatch);

  const Layer& layer(int block) const { return *model_.layers[block]; }
  bool computes_loss(int block) const { return layer(block).role() == LayerRole::Loss; }
  Context context(int block, int microbatch);
  std::vector<Gradient> gradients(int block);
  Recompute recompute_of(int block) const { return (*recompute_)[block]; }
  ConstTensorView input(int block, int microbatch);            // waits if it is received
  ConstTensorView sample_input(int microbatch);                // samples of numbers in the model's dtype; integers as they are
  ConstTensorView output_gradient(int block, int microbatch);  // likewise
  Shape input_shape(int block) const { return shapes_[block]; }
  bool partitions_input(int block) const {
    return options_.partitions_inputs && inputs_.training && block > 0 && recompute_of(block) == Recompute::Full;
  }
  ConstTensorView kept_part(int block, ConstTensorView input) const;
  ScopedTensor input_gradient(int block);
  void pass_gradient_on(int block, int microbatch, ScopedTensor gradient);
  void finish_block(int block, int microbatch);
  Flight& flight(int microbatch) { return flights_[microbatch]; }
  void add_losses();
  void end_contribution(int block, int microbatch, const std::vector<Gradient>& gradients);
  void look_at_gradients(int block, int microbatch, const std::vector<Gradient>& gradients, ConstTensorView input);

  const model::Model& model_;
  zero::Parameters& parameters_;
  const StageMap& stages_;
  StageLinks& links_;
  RankAxes axes_;
  const RankResources& resources_;
  ExecutorOptions options_;
  zero::GradientReducer reducer_;
  std::optional<kernels::LeafKernels> leaf_kernels_;  // if sums over tokens have a fixed order

  StepInputs inputs_;
  int microbatches_ = 0;
  const std::vector<Recompute>* recompute_ = nullptr;
  std::vector<Shape> shapes_;    // [block] shape of its input
  std::vector<Flight> flights_;  // [microbatch]
  int64_t offloaded_bytes_ = 0;
};

}  // namespace trivet
