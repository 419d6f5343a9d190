// ZeRO, buckets, optimizers and checkpoints for a trainer that keeps its own model and its own way to compute gradients.
//
//   embed::ShardedOptimizer optimizer(config, parameters, world);
//   for (each step) {
//     for (each microbatch) {
//       gather(unit), weight(i), release(unit)      around forward and backward of a module; needed at stage 3 only
//       add_gradient(i, gradient)                   when autograd has the gradient of a parameter (a hook)
//       end_microbatch(loss)
//     }
//     step();
//   }
//
// It owns the weights: the constructor copies the initial values, and weight(i) says where the trainer finds them from then on.
// They are whole at stages 0 to 2, at an address that never changes. At stage 3 a rank has its shard only, and a unit
// (embed/units.h) is whole from gather() to release(), each time at another address.
//
// A unit is summed over ranks as soon as the last of its gradients has arrived, in the last microbatch of a step (at stages 2
// and 3 in every one) and, with overlap_comm, while the trainer computes the others. Gradients may arrive in any order. Those
// that never arrive count as zeros: a rank need not use a parameter that others use.
//
// The config is the same JSON as for `trivet train`; what it says about the model, the data and the pipeline is not used, and
// axes other than data, offloading, audit.every_steps and GPUs are refused. With reproducible "layout", the bits do not depend
// on the number of ranks, the stage or the order of arrival, if the trainer's gradients of a microbatch do not.
//
// All ranks make the same calls in the same order, except add_gradient() and its two parts, which may come at any time within a
// microbatch, or not at all.
//
// [Note: sums where ranks meet] At stage 3, gather() is an operation of all ranks. If a rank began to sum a unit that another
// rank does not have yet, the other could be in the next gather(), and both would wait forever. So at stage 3 units are summed
// in gather() and in end_microbatch() only: in gather() those that are complete on all ranks, which tell one another; in
// end_microbatch() all others, with zeros for what is missing.
//
// One thread at a time. The world must outlive the object. The destructor frees the weights; in the middle of a step it waits
// for sums that have begun. A call at the wrong time or with wrong arguments throws Error (Usage) and changes nothing. Other
// exceptions are CommError (a rank was lost, or differs), ConfigError, CheckpointError, OutOfMemoryError and NumericsError (too
// many steps in a row were skipped). After one of these the object can only be destroyed; other ranks are told the reason.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/world.h"
#include "embed/arrivals.h"
#include "embed/parameter.h"
#include "embed/units.h"
#include "engine/channels.h"
#include "engine/checkpoint/loaded_step.h"
#include "engine/config/config.h"
#include "engine/mesh.h"
#include "engine/optimizer/optimizer_step.h"
#include "engine/optimizer/step_results.h"
#include "engine/rank_resources.h"
#include "engine/step_control.h"
#include "kernels/kernels.h"
#include "zero/parameters.h"

namespace trivet::embed {

struct Options {
  int threads = 1;                                    // for the optimizer's arithmetic; pass cores / ranks on this host
  int64_t bucket_elements = (int64_t{25} << 20) / 4;  // for parameters without a unit: 25 MiB of float32
};

struct StepReport {
  // The sum of all losses divided by the sum of all counts; the same bits on all ranks. NaN if a loss was not finite, or 2^95
  // or more, or if all counts are 0: such a step is skipped, because there is no mean.
  double loss = 0;
  double gradient_norm = 0;  // before clipping; NaN when not finite, or if all counts are 0
  double learning_rate = 0;  // rate that the step used
  bool skipped = false;      // gradients were not finite, or all counts were 0; nothing changed
  int64_t steps = 0;         // done, including this one and skipped ones
  int64_t updates = 0;       // steps not skipped
};

class ShardedOptimizer {
 public:
  // Collective. `config` comes from load_config or parse_config. The memory behind `parameters` is not used after this.
  ShardedOptimizer(const Config& config, std::span<const Parameter> parameters, comm::World& world,
                   const Options& options = {});
  ~ShardedOptimizer();
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  int parameters() const { return static_cast<int>(places_.size()); }
  const std::string& name(int parameter) const { return flat(parameter).name; }
  int64_t elements(int parameter) const { return flat(parameter).elements(); }
  int units() const { return static_cast<int>(units_.size()); }
  int unit_of(int parameter) const { return place(parameter).unit; }
  const Unit& unit(int unit) const;
  DType dtype() const { return config_.model_dtype(); }  // type of all weights, from the keys bf16 and fp16
  int microbatches() const { return microbatches_; }     // this rank's in a step (gradient_accumulation_steps)

  // ---- Weights

  // Checks whether a unit's weights are whole, so that weight() finds them: always below stage 3.
  bool is_whole(int unit) const { return this->unit(unit), !states_[unit].weights.empty(); }
  // The weights of a parameter, whole. The trainer only reads them. Throws Error (Usage) if its unit is not gathered.
  ConstTensorView weight(int parameter) const;
  // Makes a unit whole; calls may be nested, and each needs its release(). prefetch() starts this and does not wait. Both do
  // nothing below stage 3. release() is also the end of a prefetch that no gather() followed.
  void prefetch(int unit);
  void gather(int unit);
  void release(int unit);

  // ---- Gradients: of loss_scale() x the microbatch's loss

  // Adds a gradient: elements(parameter) numbers of any floating-point type, row-major. They may change or be freed when this
  // returns.
  void add_gradient(int parameter, ConstTensorView gradient);
  // The same without a copy: gradient() says where to put it (the view has type and shape) and whether to add to what is there,
  // and gradient_ready() that it is complete. The memory must not be used after that.
  Gradient gradient(int parameter);
  void gradient_ready(int parameter);
  // Ends a microbatch. `loss` is the sum of `count` losses (at least 0; 1: a single loss or a mean). A step's gradient is the
  // sum over the microbatches of all ranks, divided by the sum of the counts.
  void end_microbatch(double loss, int64_t count = 1);

  // ---- Steps

  // Updates the weights. All units must be released.
  StepReport step();
  double loss_scale() const { return control_.loss_scale(); }     // 1 unless fp16 is enabled
  double learning_rate() const { return control_.numbers().lr; }  // for the next step
  int64_t steps() const { return control_.progress().steps; }
  // This rank's peak by category, in bytes. What the trainer itself allocates is not in it.
  MemoryBytes measured_memory() const;

  // ---- Checkpoints (docs/checkpoint_format.md), between steps; collective. All ranks must see the same directory.

  void save(const std::string& directory);
  // Continues from the newest valid checkpoint, whatever number of ranks and stage wrote it; false if there is none.
  bool load(const std::string& directory);

 private:
  enum class Gathered : uint8_t { No, Started, Yes };
  enum class GradientState : uint8_t { Missing, Open, Arrived };  // Open: between gradient() and gradient_ready()
  struct UnitState {
    Gathered gathered = Gathered::No;
    int users = 0;                         // gather() calls without a release()
    std::vector<ConstTensorView> weights;  // [index] empty while they are not whole
  };

  void make_layout();
  void make_parameters();
  void close_streams();
  void set_initial_values(std::span<const Parameter> parameters);
  void set_owned_values(int parameter, int64_t first, ConstTensorView values);
  RankResources resources();
  zero::ParameterOptions parameter_options() const;

  const UnitPlace& place(int parameter) const;
  const zero::ParameterPlace& flat_place(int parameter) const;
  const zero::FlatParameter& flat(int parameter) const;
  zero::ParameterGroup& group(int parameter) { return *groups_[place(parameter).unit][flat_place(parameter).group]; }
  UnitState& state_of(int unit);
  void look_at_weights(int unit);
  void wait_for_gathers();
  void refuse_gathered(const char* call) const;
  void refuse_open_step(const char* call) const;
  void refuse_open_gradients() const;

  void begin_step();
  void prepare_step();
  bool sums_this_microbatch() const;
  void complete_unit(int unit);
  bool sums_where_ranks_meet() const;
  void sum_complete_units(int from = 0);
  void sum_units_complete_on_all_ranks();
  void finish_step(bool skipped, bool counted);
  void check_skipped_in_a_row() const;
  void audit_weights();
  void refuse_other_checkpoints(const checkpoint::LoadedStep& step);
  template <typename Work>
  auto abort_others_on_error(Work&& work);

  Config config_;
  comm::World& world_;
  std::vector<Unit> units_;
  std::vector<UnitPlace> places_;  // [parameter]
  Mesh mesh_;
  ResolvedBatch batch_;
  int microbatches_ = 1;
  std::unique_ptr<comm::ProcessGroup> checkpoint_group_;  // all ranks
  std::unique_ptr<kernels::Kernels> kernels_;
  MemoryMeter meter_, reserved_;  // `reserved_` counts addresses, not memory
  std::vector<ParameterSpec> specs_;
  zero::ShardLayout layout_;
  std::unique_ptr<Channels> channels_;
  std::unique_ptr<Arena> activations_, buffers_;
  std::unique_ptr<RankResources> resources_;
  std::unique_ptr<StepResults> results_;
  std::unique_ptr<zero::Parameters> parameters_;
  std::vector<std::vector<zero::ParameterGroup*>> groups_;  // [unit][group]
  std::unique_ptr<OptimizerStep> optimizer_;
  zero::GradientReducer reducer_;

  std::vector<UnitState> states_;  // [unit]
  Arrivals arrivals_;
  std::vector<GradientState> gradients_;  // [parameter] in this microbatch
  bool in_step_ = false;
  int microbatch_ = 0;  // of the step
  StepControl control_;
  int64_t audited_step_ = 0;
};

// Other ranks may be waiting for data that this one will no longer send, so they are told the reason at once.
template <typename Work>
auto ShardedOptimizer::abort_others_on_error(Work&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    world_.abort(error.what());
    throw;
  }
}

}  // namespace trivet::embed
