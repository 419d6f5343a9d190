// One rank's training engine: it executes a plan. Embed it in a program, or let `trivet train` drive it (trainer/trainer.h).
//
//   auto config = trivet::load_config("gpt.json");
//   auto world  = trivet::comm::connect(trivet::comm::place_from_environment(trivet::comm::current_environment()));
//   auto model  = trivet::model::build(...);                              // or a list of your own layers
//   trivet::Engine engine(trivet::make_plan(config, model, world->size()), std::move(model), *world);
//   for (...) engine.train_batch(microbatches);                          // or forward_backward(microbatches), then step()
//   engine.save("checkpoints");
//
// All ranks make the same calls in the same order. The engine owns every buffer; two engines in one process are independent of
// each other. The world must outlive the engine. It throws CommError (a peer was lost), OutOfMemoryError, CheckpointError and
// NumericsError (too many steps were skipped in a row).
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
#include "engine/make_plan.h"
#include "engine/memory_phases.h"
#include "engine/not_finite.h"
#include "engine/offload_places.h"
#include "engine/step_control.h"
#include "engine/timeline/operation_log.h"
#include "engine/worker.h"
#include "kernels/observed_kernels.h"

namespace trivet {

namespace checkpoint {
struct Piece;
class LoadedStep;
class TensorSource;
}  // namespace checkpoint

struct EngineOptions {
  int threads = 1;                          // for the kernels; pass cores / ranks on this host
  int local_rank = -1;                      // rank on this host, which chooses the GPU; -1: the world rank
  FileSystem* files = &real_file_system();  // stores offloaded tensors; must outlive the engine
  // Called for every kernel, on the thread that calls the kernel; must outlive the engine. With an observer, steps are not
  // repeated as graphs.
  kernels::KernelObserver* observer = nullptr;
  // Called when this rank has allocated all its memory, before the ranks exchange any weights; if it throws, no engine exists.
  std::function<void()> memory_taken;
};

class Engine {
 public:
  Engine(Plan plan, model::Model model, comm::World& world, const EngineOptions& options = {});
  ~Engine();

  // Runs one step on this rank's microbatches, plan().batch.gradient_accumulation_steps in number.
  StepResult train_batch(std::span<const Microbatch> microbatches);
  // The two halves of train_batch(). step() returns the outcome of the update.
  StepLoss forward_backward(std::span<const Microbatch> microbatches);
  StepOutcome step();
  // Returns the mean loss over all ranks' targets; every rank must pass the same number of microbatches.
  StepResult evaluate(std::span<const Microbatch> microbatches);
  // The same, but make(i) creates each microbatch when it is needed. `logits` reads the logits on the ranks that compute the
  // loss, those of the last pipeline stage; all ranks pass one or none of them does.
  StepResult evaluate(int64_t microbatches, const std::function<Microbatch(int64_t)>& make, LogitsReader* logits = nullptr);

  // Says how to load any microbatch of a step (from 0), by its number over all data ranks (core/batch_layout.h). Steps
  // need it if audit.every_steps is given. Its result must be valid until its next call.
  using MicrobatchSource = std::function<Microbatch(int64_t step, int64_t number)>;
  void set_microbatch_source(MicrobatchSource source) { microbatch_source_ = std::move(source); }

  // Returns the loss of the last step that had targets; it may have been skipped. 0 if there was none.
  double last_loss() const { return last_loss_; }
  // Repeats the last step of this engine on the same microbatches, with the current weights, and returns the first tensor on
  // this rank that is not finite. Changes nothing that a step does not overwrite. An empty result means that each microbatch
  // was finite on this rank (but their sum over microbatches or ranks was not).
  std::optional<NotFinite> search_last_step(std::span<const Microbatch> microbatches);
  // Throws NumericsError when training.stop_after_skipped steps in a row were skipped. Each step begins with this check.
  void check_skipped_in_a_row() const;

  // record() starts or stops the timing of steps, from the next step on. take_recordings() returns what was recorded since the
  // last call (pipeline/recording.h).
  void record(bool on) { recorder_->record(on); }
  std::vector<pipeline::Recording> take_recordings() { return recorder_->take(); }

  // Does the same for the memory that the phases of a step use, which are those of the last such step.
  void watch_memory(bool on);
  const MemoryPhases& memory_phases() const { return *memory_phases_; }
  // The log that times the operations between ranks (comms_logger); null: none are timed.
  timeline::OperationLog* operation_log() { return operation_log_.get(); }
  // Waits for this rank's gathers and reductions. Those of the weights that a step has changed may still run after it.
  void wait_for_collectives();

  const Plan& plan() const { return plan_; }
  const model::Model& model() const { return model_; }
  const Progress& progress() const { return control_.progress(); }
  StepNumbers next_numbers() const { return control_.numbers(); }  // for the next step
  double learning_rate() const { return next_numbers().lr; }       // for the next step
  double loss_scale() const { return control_.loss_scale(); }
  MemoryBytes measured_memory() const;  // this rank's peak, by category
  // The plan determines the sizes of these arenas; peak_bytes() is the most that the steps so far have used.
  const Arena& activations() const { return *activations_; }
  const Arena& buffers() const { return *buffers_; }
  // Returns the same for host memory, if the device has memory of its own (RankPlan::host_memory).
  MemoryBytes measured_host_memory() const;
  // Bytes of blocks' inputs copied to host memory so far (RankPlan::offloaded_bytes); as many are copied back.
  int64_t offloaded_bytes() const { return worker_->offloaded_bytes(); }
  Backend& backend() { return *backend_; }
  kernels::Kernels& kernels() { return observed_kernels_ ? *observed_kernels_ : backend_->kernels(); }
  zero::Parameters& parameters() { return worker_->parameters(); }

  // save() saves everything synchronously. `tokenizer`: the text of the one that the model's tokens are of
  // (data::Tokenizer::to_text), for programs that generate, evaluate or export; empty: those must be given it. load() reads the
  // newest valid checkpoint, whatever layout wrote it, and returns false if there is none. Trainers that save while they train
  // use checkpoint::AsyncSaver with the functions below.
  void save(const std::string& directory, const std::string& tokenizer = "");
  bool load(const std::string& directory);

  // Compares the weights that several ranks hold (engine/weight_audit.h); all ranks call it together. Steps do this every
  // audit.weights_every steps, and save() does it before it writes. Trainers that save by themselves must call it before they
  // save, and Divergence calls it before it judges the weights. Does nothing if audit.weights_every is 0 or these weights were
  // already compared. Throws CommError (ranks disagree).
  void audit_weights();

  // Return what a checkpoint saves: this rank's pieces (over all ranks, each element exactly once) and the state.
  std::vector<checkpoint::Piece> pieces_to_save();
  // The pieces that restore() reads on this rank. Only what they are is of use; some have no memory.
  std::vector<checkpoint::Piece> pieces_to_load();
  checkpoint::RunState state() const { return control_.state(); }
  // Continues from a checkpoint. Throws ConfigError when its seed, batch, order of samples or model differs from this run's
  // (dropout may change), and CommError when ranks were given different checkpoints. However many steps in a row were skipped
  // before, at least one more is attempted, because it can succeed if the config is a better one now.
  void restore(const checkpoint::LoadedStep& step);
  // Begins with these weights instead of random ones; each rank reads only the parts that it owns. All ranks call it together,
  // before the first step, with equal weights.
  void load_weights(const checkpoint::TensorSource& weights);

  // The complete weight of a parameter as float32 on every rank (for tests, generation, export). All ranks call it together.
  std::vector<float> weight(const std::string& name);

 private:
  void open_backend(const EngineOptions& options);
  void make_channels();
  RankResources resources();
  StepNumbers begin_step();
  void keep_loss(double loss, int64_t targets);
  void finish_step(const StepOutcome& outcome);
  bool audits(const StepNumbers& numbers) const;
  StepLoss audited_program(std::span<const Microbatch> microbatches, const StepNumbers& numbers);
  std::vector<zero::GradientDigest> recompute_of_other(const StepNumbers& numbers, int microbatch, int distance);
  void compare_weights_of_ranks();
  void wait_for_gathers();
  void refuse_different_devices();
  void refuse_different_checkpoints(const checkpoint::LoadedStep& step);
  void load_values(const checkpoint::TensorSource& stored, bool weights_alone);
  void read_pieces(const checkpoint::TensorSource& source, std::span<const checkpoint::Piece> wanted);
  template <typename Work>
  auto abort_others_on_error(Work&& work);
  const RankPlan& rank_plan() const { return plan_.rank(world_.rank()); }

  Plan plan_;
  model::Model model_;
  comm::World& world_;
  StepControl control_;
  int64_t audited_step_ = 0;                 // the weights after this step were compared
  std::optional<StepNumbers> last_numbers_;  // the last step begun
  double last_loss_ = 0;
  MicrobatchSource microbatch_source_;
  MemoryMeter meter_;
  std::unique_ptr<comm::ProcessGroup> checkpoint_group_;  // all ranks, for host tensors
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<kernels::Kernels> observed_kernels_;  // null: no observer
  std::unique_ptr<timeline::Recorder> recorder_;
  std::unique_ptr<timeline::OperationLog> operation_log_;
  std::unique_ptr<Channels> channels_;
  std::unique_ptr<Arena> activations_, buffers_;
  std::unique_ptr<MemoryPhases> memory_phases_;
  MemoryPhases* watched_memory_ = nullptr;  // null: nobody asks
  std::unique_ptr<OffloadPlaces> offload_;
  std::unique_ptr<Worker> worker_;
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace trivet
