#include "engine/trainer.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>
#include <random>

#include "core/clock.h"
#include "core/error.h"
#include "core/file_system.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "engine/data/dataset.h"
#include "engine/data/microbatch_loader.h"
#include "engine/data/token_source.h"
#include "engine/divergence.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "engine/monitor/console.h"
#include "engine/monitor/csv.h"
#include "engine/monitor/jsonl.h"
#include "engine/same_on_all_ranks.h"
#include "engine/stop_agreement.h"
#include "engine/timeline/report.h"

namespace trivet {
namespace {

double milliseconds(std::chrono::nanoseconds duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

void require(bool given, const Config& config, const std::string& key, const std::string& advice) {
  if (!given) throw ConfigError(fmt::format("{}: {}: is not given; {}", config.source, key, advice));
}

void check_complete(const Config& config) {
  const bool no_data = config.data.train.empty(), no_end = config.training.steps == 0 && config.training.epochs == 0;
  require(!(no_data && no_end), config, "data.train, training.steps",
          "name a text or token file to train on, and say how long to train (steps or epochs)");
  require(!no_data, config, "data.train", "name a text or token file to train on");
  require(!no_end, config, "training.steps", "say how long to train (steps or epochs)");
}

class Trainer {
 public:
  Trainer(const Config& config, comm::World& world, const TrainOptions& options)
      : config_(config),
        world_(world),
        options_(options),
        dataset_(data::open_dataset(data::data_options(config))),
        engine_(make_engine()),
        train_(std::make_shared<data::TokenSource>(dataset_.train, config.model.sequence_length)),
        loader_(train_, sample_order(), engine_.plan().batch_layout(world.rank())),
        total_steps_(config.training.steps > 0 ? config.training.steps : steps_of_epochs()),
        log_(world.rank()),
        divergence_(engine_, checkpoint::over_group(world.group()), [this] { return fill(engine_.progress().steps - 1); }) {
    if (config.training.evaluate_every > 0 && dataset_.validation) open_evaluation();
  }

  TrainEnd run() {
    open_checkpoints();
    make_monitors();
    start_report();
    prepare_timeline();
    StopAgreement stop(options_.stop, world_.group());  // lives until all is saved: a request must not kill the last save
    const TrainEnd end = train_steps(stop);
    check_end(end);
    monitors_.on_end({end_facts(end)});
    return end;
  }

 private:
  Engine make_engine() {
    check_same_files(config_, dataset_, world_);  // before ranks rely on equal sizes
    model::Model model = model::build(model::with_vocabulary(config_.model, dataset_.vocabulary_size));
    Plan plan = make_plan(config_, model, world_.size());
    return Engine(std::move(plan), std::move(model), world_, {.threads = options_.threads, .local_rank = options_.local_rank});
  }

  // Called before the first step, so that a split that is too short is found early.
  void open_evaluation() {
    try {
      evaluation_.emplace(std::make_shared<data::TokenSource>(dataset_.validation, config_.model.sequence_length),
                          loader_.layout().micro_batch, config_.training.evaluate_samples);
    } catch (const DataError& error) {
      throw DataError(error.exit_code(), fmt::format("validation split: {}; make data.validation_fraction larger, or "
                                                     "set training.evaluate_every to 0",
                                                     error.what()));
    }
  }

  data::SampleOrder sample_order() const {
    return {train_->samples(), static_cast<uint64_t>(config_.training.seed), config_.data.shuffle};
  }
  int64_t steps_of_epochs() const {
    const double samples = config_.training.epochs * static_cast<double>(sample_order().samples());
    return static_cast<int64_t>(std::ceil(samples / static_cast<double>(engine_.plan().batch.train_batch_size)));
  }

  // ---- checkpoints

  std::string data_digest() const {
    std::string digest = dataset_.train->digest();
    if (dataset_.validation) digest += " / " + dataset_.validation->digest();
    return digest;
  }

  // Locks the directory that this run saves to. Resuming from a different directory only reads it, which needs no lock.
  void open_checkpoints() {
    const std::string& saved_to = config_.checkpoint.directory;
    const std::string read_from = options_.resume_directory.empty() ? saved_to : options_.resume_directory;
    if (options_.resume)
      require(!read_from.empty(), config_, "checkpoint.directory", "--resume needs a directory of checkpoints");
    group_ = world_.group().subgroup(all_ranks(), "checkpoint.async");
    // Distinguishes this run's files from those of other runs; all ranks use rank 0's.
    run_id_ = checkpoint::over_group(*group_).gather(fmt::format("{:08x}", std::random_device{}())).front();
    if (!saved_to.empty()) {
      store_ = std::make_unique<checkpoint::Store>(real_file_system(), store_options(saved_to));
      store_->acquire(checkpoint::over_group(*group_));
      saver_ = std::make_unique<checkpoint::AsyncSaver>(*store_, checkpoint::over_group(*group_), meter_, log_, staging());
    }
    if (!options_.resume || read_from != saved_to) refuse_to_mix_runs();
    if (!options_.resume) return;
    if (read_from == saved_to) return resume_from(*store_);
    if (std::filesystem::path(read_from).filename().string().starts_with("step-"))
      return resume_from(checkpoint::LoadedStep(real_file_system(), read_from));
    checkpoint::Store other(real_file_system(), store_options(read_from));
    resume_from(other);
    if (resumed_from_.empty())
      throw ConfigError(fmt::format("--resume: \"{}\" holds no checkpoint; name the directory of an earlier run", read_from));
  }

  checkpoint::StoreOptions store_options(const std::string& directory) const {
    return {.directory = directory,
            .run_id = run_id_,
            .keep = config_.checkpoint.keep,
            .lock_patience = std::chrono::seconds(10),
            .log = log_};
  }

  // If a new run saved into a directory that holds steps of an older run, a later --resume could pick up the older run.
  void refuse_to_mix_runs() const {
    if (!store_ || store_->newest_step() < 0) return;
    throw ConfigError(
        fmt::format("{}: checkpoint.directory: \"{}\" holds steps up to {} of an earlier run; add --resume to "
                    "continue that run, or choose another directory",
                    config_.source, config_.checkpoint.directory, store_->newest_step()));
  }

  void resume_from(checkpoint::Store& store) {
    const auto newest = store.open_latest(checkpoint::over_group(*group_));
    if (!newest) {
      if (world_.rank() == 0 && &store == store_.get())
        log_.warning(fmt::format("--resume: {} holds no checkpoint; starting at step 1", store.directory()));
      return;
    }
    resume_from(*newest);
  }

  void resume_from(const checkpoint::LoadedStep& step) {
    check_same_data(step);
    check_same_tokenizer(step);
    engine_.restore(step);
    resumed_from_ = step.directory();
  }

  void check_same_tokenizer(const checkpoint::LoadedStep& step) const {
    if (!dataset_.tokenizer || !tokenizer_of(step) || step.run_state().tokenizer == dataset_.tokenizer->to_text()) return;
    throw DataError(
        ExitCode::DataChanged,
        fmt::format("{}: its tokenizer is not the one that {} was trained with; restore the file or start over without "
                    "--resume",
                    config_.data.train, step.directory()));
  }

  void check_same_data(const checkpoint::LoadedStep& step) const {
    const std::string &then = step.run_state().data, now = data_digest();
    if (then.empty()) return;  // saved by Engine::save, which does not know the data
    if (then != now)
      throw DataError(
          ExitCode::DataChanged,
          fmt::format("{}: the training or validation data is not what {} was trained on: it was {}, now it is {}; restore the "
                      "file or start over without --resume",
                      config_.data.train, step.directory(), then, now));
  }

  checkpoint::Staging staging() {
    if (engine_.backend().device() == Device::Cpu) return {};
    return {engine_.backend().staging_allocator(),
            [this](ConstTensorView from, TensorView to) { engine_.kernels().to_host(from, to); }, true};
  }

  // A step whose loss is not finite has either left the weights unchanged or ruined them. Neither is worth saving, and once
  // saved they would be the newest checkpoint.
  void save(checkpoint::OnFailure on_failure) {
    const int64_t step = engine_.progress().steps;
    if (!divergence_.loss_is_finite()) {
      if (world_.rank() == 0)
        log_.warning(fmt::format("step {} is not saved: its loss is {}", step, std::abs(engine_.last_loss())));
      return;
    }
    checkpoint::RunState state = engine_.state();
    state.data = data_digest();
    if (dataset_.tokenizer) state.tokenizer = dataset_.tokenizer->to_text();
    engine_.audit_weights();
    const auto pieces = engine_.pieces_to_save();
    const bool waits = !config_.checkpoint.asynchronous;
    saver_->start({.step = step, .pieces = pieces, .state = to_text(state), .config = options_.config_text},
                  waits ? checkpoint::OnFailure::End : on_failure);
    if (waits) saver_->finish();
    saved_ = step;
  }

  // ---- the end

  // Reports both what is wrong with the numbers and that the last checkpoint was not written.
  void check_end(const TrainEnd& end) {
    std::exception_ptr not_saved;
    std::string and_not_written;
    try {
      if (saver_) saver_->finish();
    } catch (const NumericsError&) {  // divergence_ says more about it below
      not_saved = std::current_exception();
    } catch (const CheckpointError& error) {
      not_saved = std::current_exception();
      and_not_written = fmt::format("; {}", error.what());
    }
    try {
      end.signal != 0 ? divergence_.check_weights() : divergence_.check_end(last_evaluation());
    } catch (const NumericsError& error) {
      throw NumericsError(error.what() + and_not_written);
    }
    if (not_saved) std::rethrow_exception(not_saved);
  }

  // ---- the loop

  TrainEnd train_steps(StopAgreement& stop) {
    while (engine_.progress().steps < total_steps_) {
      engine_.record(is_recorded(engine_.progress().steps + 1));
      train_step();
      const int64_t done = engine_.progress().steps;
      if (is_recorded(done) && !is_recorded(done + 1)) report_timeline();
      const StopDecision asked = stop.after_step();
      const bool ends = asked.end_signal != 0, last = done == total_steps_;
      const bool is_due = config_.checkpoint.every_steps > 0 && done % config_.checkpoint.every_steps == 0;
      if (saver_ && (is_due || asked.save || ends || last))
        save(last || ends ? checkpoint::OnFailure::End : checkpoint::OnFailure::GoOn);
      if (ends && !last) return {.signal = asked.end_signal};
      if (evaluation_ && (done % config_.training.evaluate_every == 0 || last)) evaluate();
    }
    return {};
  }

  // Returns the microbatches of a step (steps count from 0); they are valid until the next call.
  std::vector<Microbatch> fill(int64_t step) {
    std::vector<Microbatch> views;
    microbatches_.resize(static_cast<size_t>(loader_.layout().accumulation));
    for (size_t m = 0; m < microbatches_.size(); ++m) {
      loader_.fill(step, static_cast<int64_t>(m), microbatches_[m]);
      views.push_back(microbatches_[m].view);
    }
    return views;
  }

  // If the step ends the run, the error explains why.
  StepResult train_batch(std::span<const Microbatch> microbatches) {
    try {
      return engine_.train_batch(microbatches);
    } catch (const NumericsError& error) {
      throw divergence_.explained(error);
    }
  }

  void train_step() {
    const auto begin = system_clock().now();
    const int64_t step = engine_.progress().steps;
    const double lr = engine_.learning_rate(), scale = engine_.loss_scale();
    const StepResult result = train_batch(fill(step));
    const double ms = milliseconds(system_clock().now() - begin);
    monitors_.on_step({.step = step + 1,
                       .loss = result.loss,
                       .loss_bits = std::bit_cast<uint32_t>(static_cast<float>(result.loss)),
                       .lr = lr,
                       .grad_norm = result.grad_norm,
                       .loss_scale = config_.fp16.enabled ? scale : 0,
                       .samples = (step + 1) * loader_.layout().global_batch(),
                       .tokens = result.targets,
                       .step_ms = ms,
                       .tokens_per_second = static_cast<double>(result.targets) / ms * 1e3,
                       .memory_bytes = memory().total(),
                       .skipped = result.skipped});
    divergence_.check_step(result);  // after the report, so that the step is reported
  }

  // If the config gives epochs, the last step is known only here. A resumed run may already be past the recorded steps.
  void prepare_timeline() {
    const TimelineConfig& timeline = config_.timeline;
    if (timeline.step == 0 || timeline.step <= engine_.progress().steps) return;
    if (timeline.step + timeline.steps - 1 > total_steps_)
      throw ConfigError(
          fmt::format("{}: timeline.step: {} and the {} steps after it are not all within the {} steps of this run",
                      config_.source, timeline.step, timeline.steps - 1, total_steps_));
    if (world_.rank() == 0) timeline::make_directory(config_);
    recorded_from_ = timeline.step;
  }

  bool is_recorded(int64_t step) const {
    return recorded_from_ > 0 && step >= recorded_from_ && step < recorded_from_ + config_.timeline.steps;
  }

  void report_timeline() {
    std::vector<std::vector<pipeline::Recording>> recordings;
    for (const std::string& text : checkpoint::over_group(world_.group()).gather(timeline::to_text(engine_.take_recordings())))
      recordings.push_back(timeline::from_text(text));
    if (world_.rank() != 0) return;
    const timeline::Report report = timeline::make_report(engine_.plan(), std::move(recordings));
    timeline::write(report, engine_.plan());
    monitors_.on_note(
        {"timeline", fmt::format("{}: {}", (std::filesystem::path(config_.timeline.directory) / "timeline.svg").string(),
                                 timeline::summary(report))});
  }

  void evaluate() {
    const auto begin = system_clock().now();
    const auto layout = loader_.layout();
    const int64_t rounds = (evaluation_->batches() + layout.data_size - 1) / layout.data_size;
    data::HostMicrobatch batch;
    const StepResult result = engine_.evaluate(rounds, [&](int64_t round) {
      evaluation_->fill(round * layout.data_size + layout.data_rank, batch);
      return batch.view;
    });
    evaluated_ = {engine_.progress().steps, result.loss};
    monitors_.on_evaluation({.step = engine_.progress().steps,
                             .loss = result.loss,
                             .loss_bits = std::bit_cast<uint32_t>(static_cast<float>(result.loss)),
                             .samples = engine_.progress().steps * layout.global_batch(),
                             .tokens = result.targets,
                             .ms = milliseconds(system_clock().now() - begin)});
  }

  // The validation loss of the current weights, if it was computed.
  std::optional<double> last_evaluation() const {
    return evaluated_.first == engine_.progress().steps ? std::optional(evaluated_.second) : std::nullopt;
  }

  // ---- reports

  void make_monitors() {
    if (world_.rank() != 0) return;
    monitors_.add(std::make_unique<monitor::Console>(std::cout, monitor::options_for_stdout(config_.steps_per_print)));
    if (!options_.metrics_file.empty()) monitors_.add(std::make_unique<monitor::JsonlMonitor>(options_.metrics_file));
    if (config_.csv_monitor.enabled)
      monitors_.add(std::make_unique<monitor::CsvMonitor>(config_.csv_monitor.output_path, config_.csv_monitor.job_name));
  }

  void start_report() {
    const Plan& plan = engine_.plan();
    monitor::RunStart start{.steps_done = engine_.progress().steps, .total_steps = total_steps_};
    start.facts = {
        {"model", fmt::format("{}, {} layers x {}, vocabulary {}, {} parameters", name_of(config_.model.type),
                              config_.model.layers, config_.model.hidden_size, dataset_.vocabulary_size, plan.parameters)},
        {"data", fmt::format("{}: {} training tokens, {} validation tokens", config_.data.train, dataset_.train->tokens(),
                             dataset_.validation ? dataset_.validation->tokens() : 0)},
        {"plan", fmt::format("ZeRO-{} on {}, {}, batch {} = {} x {} x {}, kernel threads per rank: {}", config_.zero.stage,
                             to_string(plan.mesh), name_of(config_.model_dtype()), plan.batch.train_batch_size,
                             plan.batch.micro_batch_size, plan.batch.gradient_accumulation_steps, plan.mesh.size(batch_axes()),
                             options_.threads)},
        {"memory", memory_line(plan)}};
    if (plan.found_device || plan.config.compute_device() != Device::Cpu)
      start.facts.push_back(
          {"device", (plan.found_device ? "auto: " : "") +
                         (plan.config.compute_device() == Device::Cpu ? *plan.found_device : engine_.backend().description())});
    if (plan.config.compute_device() == Device::Cuda) start.facts.push_back({"launches", to_text(plan.step_graph)});
    if (!resumed_from_.empty()) start.facts.push_back({"resume", resumed_from_});
    if (start.steps_done >= total_steps_)
      start.facts.push_back({"note", fmt::format("nothing to do: step {} is already done, and the run ends at step {}",
                                                 start.steps_done, total_steps_)});
    if (config_.timeline.step > 0 && config_.timeline.step <= start.steps_done)
      start.facts.push_back(
          {"note", fmt::format("timeline.step {} is already done, so nothing is recorded", config_.timeline.step)});
    for (const std::string& key : accepted_without_effect(config_)) start.facts.push_back({"no effect", key});
    monitors_.on_start(start);
  }

  // Shows planned and measured memory side by side. The peak of resident memory is the operating system's figure for the
  // process, with all of its ranks.
  std::string measured_memory_line() const {
    const MemoryBytes planned = engine_.plan().rank(world_.rank()).memory, measured = memory();
    const auto mebibytes = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    std::string text;
    for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
      text += fmt::format("{} {:.1f}/{:.1f}, ", name, mebibytes(planned[category]), mebibytes(measured[category]));
    text +=
        fmt::format("total {:.1f} MiB planned / {:.1f} measured; ", mebibytes(planned.total()), mebibytes(measured.total()));
    if (engine_.plan().config.uses_host_side())
      text += fmt::format("host memory {:.1f} planned / {:.1f} measured; ",
                          mebibytes(engine_.plan().rank(world_.rank()).host_memory.total()),
                          mebibytes(engine_.measured_host_memory().total()));
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return fmt::format("{}process peak {:.1f} resident", text, mebibytes(usage.ru_maxrss * 1024));
  }

  static std::string memory_line(const Plan& plan) {
    std::string text;
    for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
      text += fmt::format("{} {:.1f} + ", name, static_cast<double>(plan.heaviest().memory[category]) / (1 << 20));
    text.resize(text.size() - 3);
    return fmt::format("{} = {:.1f} MiB per rank", text, static_cast<double>(plan.heaviest().memory.total()) / (1 << 20));
  }

  std::vector<std::pair<std::string, std::string>> end_facts(const TrainEnd& end) const {
    std::vector<std::pair<std::string, std::string>> facts{{"memory", measured_memory_line()}};
    if (saved_ > 0) facts.push_back({"checkpoint", fmt::format("{}, step {}", config_.checkpoint.directory, saved_)});
    if (end.signal != 0) facts.push_back({"stopped", how_to_go_on(end.signal)});
    return facts;
  }

  std::string how_to_go_on(int signal) const {
    const int64_t done = engine_.progress().steps;
    const std::string stopped = fmt::format("by signal {} after step {} of {}; ", signal, done, total_steps_);
    if (!store_) return stopped + "nothing is saved, because checkpoint.directory is not given";
    const int64_t newest = store_->newest_step();
    if (newest < 0) return stopped + "nothing is saved";
    return fmt::format("{}step {} is saved; to continue from it, run the same command with --resume", stopped, newest);
  }

  // The engine's memory. On a CPU it includes the staging buffer of asynchronous saves, which is in the same memory.
  MemoryBytes memory() const {
    MemoryBytes bytes = engine_.measured_memory();
    if (engine_.plan().config.compute_device() != Device::Cpu) return bytes;
    const MemoryBytes staged = meter_.peak();
    for (int i = 0; i < kMemoryCategories; ++i) bytes.by_category[i] += staged.by_category[i];
    return bytes;
  }
  std::vector<int> all_ranks() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < world_.size(); ++rank) ranks.push_back(rank);
    return ranks;
  }

  const Config& config_;
  comm::World& world_;
  const TrainOptions& options_;
  data::Dataset dataset_;
  Engine engine_;
  std::shared_ptr<const data::SampleSource> train_;
  data::MicrobatchLoader loader_;
  std::optional<data::EvaluationLoader> evaluation_;
  int64_t total_steps_;
  Log log_;
  MemoryMeter meter_;  // counts the staging buffer for checkpoints
  monitor::Monitors monitors_;
  std::vector<data::HostMicrobatch> microbatches_;
  std::unique_ptr<comm::ProcessGroup> group_;
  std::unique_ptr<checkpoint::Store> store_;
  std::unique_ptr<checkpoint::AsyncSaver> saver_;
  Divergence divergence_;
  std::string resumed_from_, run_id_;
  int64_t saved_ = 0;                           // the last step that this run gave to the saver; 0: none
  std::pair<int64_t, double> evaluated_{0, 0};  // step and loss of the last evaluation
  int64_t recorded_from_ = 0;                   // the first step of the timeline; 0: none
};

// Ranks that run different configs would meet in collectives of different sizes or, worse, of equal sizes.
void check_same_config(const Config& config, comm::World& world, const TrainOptions& options) {
  if (world.size() == 1) return;
  // --resume changes what ranks do together as much as a key does.
  const std::string resume = options.resume ? "// --resume " + options.resume_directory : "";
  const auto texts = checkpoint::over_group(world.group()).gather(explain_as_json(config) + resume);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    std::string differing;
    for (const auto& change : diff(parse_config(texts[0], "rank 0"), parse_config(texts[rank], "another rank")))
      differing += fmt::format("; {} is {} and {}", change.path, change.before, change.after);
    throw CommError(ExitCode::RanksDisagree,
                    fmt::format("config: rank 0 and rank {} were given different configs{}", rank, differing));
  }
}

}  // namespace

TrainEnd train(const Config& config, comm::World& world, const TrainOptions& options) {
  check_complete(config);
  check_same_config(config, world, options);
  return Trainer(config, world, options).run();
}

}  // namespace trivet
