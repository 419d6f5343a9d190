// One rank's training engine: a plan made real. Embed it, or let `trivet train` drive it (engine/trainer.h).
//
//   auto config = trivet::load_config("gpt.json");
//   auto world  = trivet::comm::connect(trivet::comm::place_from_environment(trivet::comm::current_environment()));
//   auto model  = trivet::model::build(...);                              // or a list of layers of your own
//   trivet::Engine engine(trivet::make_plan(config, model, world->size()), std::move(model), *world);
//   for (...) engine.train_batch(microbatches);                          // or forward_backward(microbatches) and step() apart
//   engine.save("checkpoints");
//
// All ranks make the same calls in the same order. Owns every buffer; two engines in one process do not know of each other. The
// world must outlive it. Errors: CommError (a peer was lost), OutOfMemoryError, CheckpointError, NumericsError (too many steps
// skipped in a row).
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/world.h"
#include "core/file_system.h"
#include "core/log.h"
#include "engine/backend/backend.h"
#include "engine/checkpoint/run_state.h"
#include "engine/loss_scale.h"
#include "engine/not_finite.h"
#include "engine/plan.h"
#include "engine/worker.h"
#include "kernels/observed_kernels.h"

namespace trivet {

namespace checkpoint {
struct Piece;
class LoadedStep;
}  // namespace checkpoint

struct EngineOptions {
  int threads = 1;                          // that kernels may use; give cores / ranks of this host
  int local_rank = -1;                      // among the ranks of this host, chooses the GPU; -1: the world rank
  FileSystem* files = &real_file_system();  // for what is offloaded; outlives the engine
  // Told of every kernel, on whatever thread calls it; outlives the engine. Steps are then not repeated as graphs.
  kernels::KernelObserver* observer = nullptr;
  // Called when this rank has taken all its memory, before ranks exchange anything of it; may throw to give the engine up.
  std::function<void()> memory_taken;
};

// Where a run is: with the weights and optimizer states, all that a checkpoint holds.
struct Progress {
  int64_t steps = 0;    // done, skipped ones included: the number of the next step, and the data cursor
  int64_t updates = 0;  // done: what the optimizer and the learning-rate schedule count
  int64_t skipped_in_a_row = 0;
};

class Engine {
 public:
  Engine(Plan plan, model::Model model, comm::World& world, const EngineOptions& options = {});
  ~Engine();

  // One step: this rank's microbatches, as many as plan().batch.gradient_accumulation_steps.
  StepResult train_batch(std::span<const Microbatch> microbatches);
  // Its two halves. step() returns the outcome of the update.
  StepLoss forward_backward(std::span<const Microbatch> microbatches);
  StepOutcome step();
  // Mean loss over all ranks' targets; every rank passes equally many microbatches.
  StepResult evaluate(std::span<const Microbatch> microbatches);
  // The same, each made when it is needed.
  StepResult evaluate(int64_t microbatches, const std::function<Microbatch(int64_t)>& make);

  double last_loss() const { return last_loss_; }  // of the last step, skipped or not
  // Does the last step of this engine once more, on the same microbatches and with the weights as they are now, to find the
  // first tensor on this rank that is not finite. Changes nothing that a step does not overwrite. Empty: each microbatch was
  // finite here (their sum over microbatches or ranks was not).
  std::optional<NotFinite> search_last_step(std::span<const Microbatch> microbatches);
  // NumericsError when training.stop_after_skipped steps in a row were skipped; each step begins with it.
  void refuse_to_skip_for_ever() const;

  // Times the steps from the next one on, or no longer; and what was recorded since the last call (pipeline/recording.h).
  void record(bool on) { recorder_->record(on); }
  std::vector<pipeline::Recording> take_recordings() { return recorder_->take(); }

  const Plan& plan() const { return plan_; }
  const model::Model& model() const { return model_; }
  const Progress& progress() const { return progress_; }
  double learning_rate() const;  // of the next step
  double loss_scale() const;
  MemoryBytes measured_memory() const;  // this rank's peak, by category
  // In these sizes because the plan says so; their peak_bytes() is what the steps so far needed of them.
  const Arena& activations() const { return *activations_; }
  const Arena& buffers() const { return *buffers_; }
  // The same of host memory beside a device that has its own (RankPlan::host_memory).
  MemoryBytes measured_host_memory() const;
  Backend& backend() { return *backend_; }
  kernels::Kernels& kernels() { return observed_kernels_ ? *observed_kernels_ : backend_->kernels(); }
  Parameters& parameters() { return worker_->parameters(); }

  // A synchronous save of everything, and the newest valid checkpoint read back whatever layout wrote it (false: there is
  // none). Trainers that save beside training use checkpoint::AsyncSaver with what follows.
  void save(const std::string& directory);
  bool load(const std::string& directory);

  // Compares the weights that several ranks hold (engine/weight_audit.h); all ranks call it together. Steps do so every
  // audit.weights_every steps and save() before it writes; trainers that save by themselves call it before, and Divergence
  // before it judges the weights. Does nothing if audit.weights_every is 0 or these weights were compared already. Throws
  // CommError (ranks disagree).
  void audit_weights();

  // For checkpointing: what this rank writes (each element of the model once over all ranks), what it wants to read, the state.
  std::vector<checkpoint::Piece> pieces_to_save();
  checkpoint::RunState state() const;
  // ConfigError when the step does not continue: another seed, batch, order of samples or model (dropout may change). CommError
  // when ranks were given different checkpoints. However many steps in a row were skipped, one more may be: it can succeed if
  // the config is a better one now.
  void restore(const checkpoint::LoadedStep& step);

  // The whole weight of a parameter as float32 on every rank (for tests, generation, export). All ranks call it together.
  std::vector<float> weight(const std::string& name);

 private:
  StepNumbers numbers() const;
  StepNumbers begin_step();
  void finish_step(const StepOutcome& outcome);
  void wait_for_gathers();
  void refuse_different_devices();
  void refuse_different_checkpoints(const checkpoint::LoadedStep& step);
  void read_pieces(const checkpoint::LoadedStep& step, std::span<const checkpoint::Piece> wanted);
  template <typename Work>
  auto with_others_told(Work&& work);
  const RankPlan& rank_plan() const { return plan_.rank(world_.rank()); }

  Plan plan_;
  model::Model model_;
  comm::World& world_;
  Progress progress_;
  int64_t audited_step_ = 0;  // the weights after this step were compared
  LossScale loss_scale_;
  std::optional<StepNumbers> last_numbers_;  // of the step that this engine began last
  double last_loss_ = 0;
  MemoryMeter meter_;
  std::unique_ptr<comm::ProcessGroup> checkpoint_group_;  // all ranks, for tensors of the host
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<kernels::Kernels> observed_kernels_;  // null: nobody observes
  Groups groups_;
  std::unique_ptr<timeline::Recorder> recorder_;
  std::unique_ptr<Stream> control_stream_, gather_stream_, reduce_stream_, tensor_stream_;
  std::unique_ptr<Arena> activations_, buffers_;
  std::unique_ptr<zero::offload::FileStore> weight_files_, state_files_;
  std::unique_ptr<kernels::Kernels> host_kernels_;  // for updates of what is offloaded from a device
  std::unique_ptr<zero::HostSide> host_side_;
  std::unique_ptr<Worker> worker_;
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace trivet
