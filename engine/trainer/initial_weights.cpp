#include "engine/trainer/initial_weights.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "core/error.h"
#include "core/printable.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "engine/hugging_face/pretrained_model.h"
#include "engine/hugging_face/same_model.h"
#include "engine/same_on_all_ranks.h"
#include "engine/trainer/finite_weights.h"
#include "engine/trainer/new_adapters.h"
#include "engine/trainer/stopwatch.h"

namespace trivet::trainer {
namespace {

// Weights of another model or run, open for reading.
class InitialWeights {
 public:
  explicit InitialWeights(const std::string& path) {
    FileSystem& files = real_file_system();
    if (hugging_face::format_of(files, path)) {
      pretrained_ = std::make_unique<hugging_face::PretrainedModel>(files, path);
      return;
    }
    if (files.kind(path + "/.") != EntryKind::Directory)
      throw ConfigError(
          fmt::format("--init-from {}: no such directory, and no file of llm.c or llama2.c; give the folder of a model in "
                      "Hugging Face's format (with config.json), or a directory of checkpoints or one of its steps",
                      printable(path)));
    step_ = std::make_unique<checkpoint::LoadedStep>(checkpoint::open_path(files, checkpoint::follow_name(files, path)));
    step_config_ = parse_config(step_->config(), step_->directory() + "/manifest.json");
  }

  const checkpoint::TensorSource& weights() const {
    if (pretrained_) return pretrained_->weights();
    return *step_;
  }
  const Config& config() const { return pretrained_ ? pretrained_->config() : step_config_; }
  std::string digest() const { return pretrained_ ? pretrained_->digest() : "xxh3 " + step_->manifest().xxh3; }
  std::string in_words() const {
    return pretrained_ ? fmt::format("{} ({})", pretrained_->weights().source(), pretrained_->kind()) : step_->directory();
  }
  std::vector<std::string> notes() const { return pretrained_ ? pretrained_->notes() : std::vector<std::string>(); }

 private:
  std::unique_ptr<hugging_face::PretrainedModel> pretrained_;
  std::unique_ptr<checkpoint::LoadedStep> step_;
  Config step_config_;
};

void check_same_model(const InitialWeights& initial, const std::string& path, const Config& config,
                      const model::Description& ours) {
  if (const std::string difference = hugging_face::model_difference(ours, initial.config().model); !difference.empty())
    throw ConfigError(
        fmt::format("{}: --init-from {}: these weights are of another model: in the config, {}; leave these keys out "
                    "to take them from the weights",
                    config.source, printable(path), difference));
}

}  // namespace

std::vector<std::string> model_keys_of(const std::string& path) {
  const InitialWeights initial(path);
  std::vector<std::string> keys;
  for (const ExplainedKey& key : explain(initial.config()))
    if (key.path.starts_with("model.") && key.without_effect.empty()) keys.push_back(key.path + "=" + key.value);
  return keys;
}

void check_initial_weights(const std::string& path, const Config& config, const model::Description& ours) {
  check_same_model(InitialWeights(path), path, config, ours);
}

std::string load_initial_weights_if_asked(Run& run) {
  const std::string& path = run.options.init_from;
  if (path.empty()) return "";
  const InitialWeights initial(path);
  check_same_on_all_ranks({{"--init-from", std::filesystem::absolute(path).string(), initial.digest()}}, run.world);
  const model::Description ours = run.engine.model().description.value_or(model::Description{});
  check_same_model(initial, path, run.config, ours);
  if (run.is_first_rank())
    for (const std::string& note : initial.notes()) run.log.info(fmt::format("--init-from: {}", note));
  const FiniteWeights weights(initial.weights());
  run.engine.load_weights(NewAdapters(weights, run.engine.model(), static_cast<uint64_t>(run.config.training.seed)));
  return initial.in_words();
}

std::string compute_references_if_needed(Run& run) {
  if (!run.references.needed() || !run.references.weights().empty()) return "";
  const std::string& path = run.options.init_from;
  const Stopwatch stopwatch;
  run.references.compute(run.engine, run.world, path.empty() ? "random weights" : InitialWeights(path).digest());
  return fmt::format("the weights that the run begins with; log-probabilities of all answers computed in {:.1f} s",
                     stopwatch.milliseconds() / 1000);
}

void restore_references(Run& run, const checkpoint::LoadedStep& step) {
  if (!run.references.needed()) return;
  const std::string& stored = step.run_state().reference;
  if (stored.empty())
    throw ConfigError(
        fmt::format("{}: {} has no log-probabilities of a reference model, which training.objective \"dpo\" needs; begin a run "
                    "with these weights: --init-from {}",
                    run.config.source, step.directory(), step.directory()));
  run.references.restore(stored, step.directory());
  const std::string& path = run.options.init_from;
  if (path.empty()) return;
  if (const std::string given = InitialWeights(path).digest(); given != run.references.weights())
    throw ConfigError(
        fmt::format("--init-from {}: {} compares answers with the weights that its run began with ({}), and these are others "
                    "({}); leave --init-from out, or start over without --resume",
                    printable(path), step.directory(), run.references.weights(), given));
}

}  // namespace trivet::trainer
