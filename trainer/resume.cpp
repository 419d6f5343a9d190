#include "trainer/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.h"
#include "core/file_system.h"
#include "core/printable.h"
#include "core/shell_words.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "engine/config/refuse.h"
#include "engine/optimizer/lr_schedule.h"
#include "interchange/hugging_face/import.h"
#include "trainer/config_checks.h"
#include "trainer/generation.h"
#include "trainer/initial_weights.h"

namespace trivet::trainer {
namespace {

void refuse_to_mix_runs(const Run& run, Checkpoints& checkpoints) {
  const TrainOptions& options = run.options;
  const std::string ways =
      options.resume ? fmt::format("use --resume without a directory to continue from the newest of them; to continue from {},",
                                   printable(options.resume_directory))
                     : "add --resume to continue that run, or";
  const auto refuse_steps = [&](const checkpoint::CheckpointStore& store, const char* key, const char* or_else) {
    if (store.newest_step() < 0) return;
    if (checkpoints.memory()) checkpoints.memory()->remove_if_empty();
    if (store.lineage().origin == hugging_face::kImportedRunId)
      throw ConfigError(fmt::format("{}: {}: \"{}\" holds a model that was imported, which no run continues; {}",
                                    run.config.source, key, store.directory(), or_else));
    throw ConfigError(fmt::format("{}: {}: \"{}\" holds steps up to {} of an earlier run; {} {}", run.config.source, key,
                                  store.directory(), store.newest_step(), ways, or_else));
  };
  if (checkpoints.store()) refuse_steps(*checkpoints.store(), "checkpoint.directory", "choose another directory");
  if (checkpoints.memory())
    refuse_steps(checkpoints.memory()->store(), "checkpoint.memory.directory", "remove this directory on all hosts");
}

// Refuses changed keys that choose which part of the data is trained on, and as what samples.
void refuse_other_keys_of_data(const Config& config, const checkpoint::LoadedStep& step) {
  if (step.config().empty()) return;
  for (const ConfigDifference& change : diff(parse_config(step.config(), step.directory()), config)) {
    constexpr std::array keys{"data.validation_fraction", "data.validation",    "data.packing", "data.loss_on",
                              "data.special_tokens",      "data.chat_template", "data.read_as", "data.sources"};
    if (std::ranges::find(keys, change.path) != keys.end())
      throw DataError(ExitCode::DataChanged,
                      fmt::format("{}: {}: {} does not match {}, which was saved with {}; set it to {}, or start over without "
                                  "--resume",
                                  config::source_of(config, change.path), change.path, change.after, step.directory(),
                                  change.before, change.before));
  }
}

void check_same_data(const Run& run, const checkpoint::LoadedStep& step) {
  const std::string &then = step.run_state().data, now = data_digest(*run.data);
  if (then.empty()) return;  // saved by Engine::save, which does not know the data
  if (then != now) refuse_other_keys_of_data(run.config, step);
  if (then != now)
    throw DataError(
        ExitCode::DataChanged,
        fmt::format("{}: the training or validation data is not what {} was trained on: it was {}, now it is {}; restore the "
                    "file or start over without --resume",
                    run.config.data.train_name(), step.directory(), then, now));
}

void check_same_tokenizer(const Run& run, const checkpoint::LoadedStep& step) {
  const auto tokenizer = run.data->tokenizer();
  if (!tokenizer || !tokenizer_of(step) || data::encode_alike(step.run_state().tokenizer, tokenizer->to_text())) return;
  const std::string& named = run.config.vocabulary.tokenizer_file;
  throw DataError(ExitCode::DataChanged,
                  fmt::format("{}: its tokenizer is not the one that {} was trained with; {} or start over without --resume",
                              named.empty() ? run.config.data.train_name() : printable(named), step.directory(),
                              run.config.model_from.empty() ? "restore the file" : "name the model that the run began with"));
}

// Otherwise the run would continue at another place of an epoch.
void check_same_epochs(const Run& run, const checkpoint::LoadedStep& step) {
  const int64_t then = step.run_state().steps_per_epoch, now = run.batches.sampler().steps_per_epoch();
  if (then > 0 && now > 0 && then != now)
    throw ConfigError(
        fmt::format("{}: data.sampler: with this number of ranks an epoch has {} steps, and in the run that saved {} "
                    "it had {}; use as many data-parallel ranks as that run did, or false for data.drop_last and "
                    "dataloader_drop_last from the start",
                    run.config.source, now, step.directory(), then));
}

// A run that did not count evaluations before begins with its next one.
void restore_evaluations(Run& run, const checkpoint::LoadedStep& step) {
  run.evaluations.restore(step.run_state().evaluations.value_or(EvaluationState{.step = step.step()}));
}

std::string resume_from(Run& run, const checkpoint::LoadedStep& step) {
  continue_from(run, step);
  if (const std::string changed = changed_keys(run.config, step, false); run.is_first_rank() && !changed.empty())
    run.log.info(fmt::format("--resume: these keys are not as they were in {}: {}", step.directory(), changed));
  return step.directory();
}

std::string resume_from(Run& run, const std::optional<checkpoint::LoadedStep>& step) {
  return step ? resume_from(run, *step) : "";
}

std::string resume_from_own(Run& run, Checkpoints& checkpoints) {
  const std::string step = resume_from(run, checkpoints.open_newest());
  if (step.empty() && run.is_first_rank())
    run.log.warning(fmt::format("--resume: {} holds no checkpoint; starting at step 1", checkpoints.store()->directory()));
  return step;
}

bool is_step(const std::string& directory) { return std::filesystem::path(directory).filename().string().starts_with("step-"); }

std::string resume_from_other(Run& run, const std::string& directory, const Checkpoints& checkpoints) {
  std::error_code error;
  const std::string followed = checkpoint::follow_name(real_file_system(), directory);
  const bool is_file = std::filesystem::exists(followed, error) && !std::filesystem::is_directory(followed, error);
  if (is_file || (is_step(followed) && !std::filesystem::exists(followed, error))) refuse_to_resume_from(directory);
  if (is_step(followed)) return resume_from(run, checkpoint::LoadedStep(real_file_system(), followed));
  checkpoint::CheckpointStore other(real_file_system(), checkpoints.store_options(directory));
  const std::string step = resume_from(run, other.open_latest(checkpoints.ranks()));
  if (step.empty()) refuse_to_resume_from(directory);
  return step;
}

}  // namespace

void refuse_to_resume_from(const std::string& directory, const std::string& key) {
  std::error_code error;
  const std::string name = printable(directory);
  const std::string what = !std::filesystem::exists(directory, error) ? fmt::format("there is no directory \"{}\"", name)
                           : !std::filesystem::is_directory(directory, error) ? fmt::format("\"{}\" is not a directory", name)
                                                                              : fmt::format("\"{}\" holds no checkpoint", name);
  throw ConfigError(fmt::format(
      "{}: {}; name the directory of an earlier run, which is its checkpoint.directory, or one of its steps", key, what));
}

void refuse_imported(const checkpoint::LoadedStep& step, const std::string& key) {
  refuse_embedded(step, key);
  if (step.run_id() != hugging_face::kImportedRunId) return;
  throw ConfigError(fmt::format("{}: {} was imported and holds weights alone; begin a run with them: --init-from {}", key,
                                step.directory(), quoted(step.directory())));
}

std::string changed_keys(const Config& config, const checkpoint::LoadedStep& step, bool data) {
  if (step.config().empty()) return "";
  std::vector<const char*> sections{"reproducible",
                                    "optimizer.",
                                    "scheduler.",
                                    "fp16.",
                                    "bf16.",
                                    "amp.",
                                    "torch_autocast.",
                                    "data_types.",
                                    "model.dropout",
                                    "data.",
                                    "dpo.",
                                    "curriculum_learning.",
                                    "data_efficiency.",
                                    "gradient_clipping",
                                    "gradient_allreduce_op",
                                    "prescale_gradients",
                                    "gradient_predivide",
                                    "communication_data_type",
                                    "communication.sums",
                                    "zero_optimization.zero_quantized",
                                    "zero_optimization.zeropp_loco_param",
                                    "zero_optimization.zenflow"};
  if (data) sections.insert(sections.end(), {"model.", "train_batch_size", "training.seed", "training.objective"});
  std::vector<std::string> changed;
  const Config then = parse_config(step.config(), step.directory());
  if (ends_with_the_run(config.scheduler) && then.training.epochs != config.training.epochs)
    changed.push_back(fmt::format("training.epochs is {}, and was {}, which moves the end of the schedule",
                                  config.training.epochs, then.training.epochs));
  for (const ConfigDifference& change : diff(then, config))
    if (std::ranges::any_of(sections, [&](const char* section) { return change.path.starts_with(section); }))
      changed.push_back(fmt::format("{} is {}, and was {}", change.path, change.after, change.before));
  return fmt::format("{}", fmt::join(changed, "; "));
}

void continue_from(Run& run, const checkpoint::LoadedStep& step) {
  refuse_imported(step, "--resume");
  run.intake.restore(step);
  check_same_data(run, step);
  check_same_tokenizer(run, step);
  check_same_epochs(run, step);
  run.engine.restore(step);
  restore_references(run, step);
  restore_evaluations(run, step);
}

std::string resume_if_asked(Run& run, Checkpoints& checkpoints) {
  if (run.resumes_own()) {
    require(checkpoints.store() != nullptr, run.config, "checkpoint.directory", "--resume needs a directory of checkpoints");
    return resume_from_own(run, checkpoints);
  }
  refuse_to_mix_runs(run, checkpoints);
  return run.options.resume ? resume_from_other(run, run.options.resume_directory, checkpoints) : "";
}

}  // namespace trivet::trainer
