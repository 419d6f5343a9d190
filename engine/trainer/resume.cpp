#include "engine/trainer/resume.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/error.h"
#include "core/file_system.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/generation.h"
#include "engine/trainer/config_checks.h"

namespace trivet::trainer {
namespace {

void refuse_to_mix_runs(const Config& config, checkpoint::CheckpointStore* saved_to) {
  if (!saved_to || saved_to->newest_step() < 0) return;
  throw ConfigError(
      fmt::format("{}: checkpoint.directory: \"{}\" holds steps up to {} of an earlier run; add --resume to "
                  "continue that run, or choose another directory",
                  config.source, config.checkpoint.directory, saved_to->newest_step()));
}

void check_same_data(const Run& run, const checkpoint::LoadedStep& step) {
  const std::string &then = step.run_state().data, now = data_digest(*run.data);
  if (then.empty()) return;  // saved by Engine::save, which does not know the data
  if (then != now)
    throw DataError(
        ExitCode::DataChanged,
        fmt::format("{}: the training or validation data is not what {} was trained on: it was {}, now it is {}; restore the "
                    "file or start over without --resume",
                    run.config.data.train, step.directory(), then, now));
}

void check_same_tokenizer(const Run& run, const checkpoint::LoadedStep& step) {
  const auto tokenizer = run.data->tokenizer();
  if (!tokenizer || !tokenizer_of(step) || step.run_state().tokenizer == tokenizer->to_text()) return;
  throw DataError(
      ExitCode::DataChanged,
      fmt::format("{}: its tokenizer is not the one that {} was trained with; restore the file or start over without "
                  "--resume",
                  run.config.data.train, step.directory()));
}

std::string resume_from(Run& run, const checkpoint::LoadedStep& step) {
  continue_from(run, step);
  return step.directory();
}

std::string resume_from(Run& run, checkpoint::CheckpointStore& store, const Checkpoints& checkpoints) {
  const auto newest = store.open_latest(checkpoints.ranks());
  return newest ? resume_from(run, *newest) : "";
}

std::string resume_from_own(Run& run, Checkpoints& checkpoints) {
  const std::string step = resume_from(run, *checkpoints.store(), checkpoints);
  if (step.empty() && run.is_first_rank())
    run.log.warning(fmt::format("--resume: {} holds no checkpoint; starting at step 1", checkpoints.store()->directory()));
  return step;
}

std::string resume_from_other(Run& run, const std::string& directory, const Checkpoints& checkpoints) {
  if (std::filesystem::path(directory).filename().string().starts_with("step-"))
    return resume_from(run, checkpoint::LoadedStep(real_file_system(), directory));
  checkpoint::CheckpointStore other(real_file_system(), checkpoints.store_options(directory));
  const std::string step = resume_from(run, other, checkpoints);
  if (step.empty())
    throw ConfigError(fmt::format("--resume: \"{}\" holds no checkpoint; name the directory of an earlier run", directory));
  return step;
}

}  // namespace

void continue_from(Run& run, const checkpoint::LoadedStep& step) {
  check_same_data(run, step);
  check_same_tokenizer(run, step);
  run.engine.restore(step);
}

std::string resume_if_asked(Run& run, Checkpoints& checkpoints) {
  const std::string& saved_to = run.config.checkpoint.directory;
  const std::string& read_from = run.options.resume_directory.empty() ? saved_to : run.options.resume_directory;
  if (run.options.resume)
    require(!read_from.empty(), run.config, "checkpoint.directory", "--resume needs a directory of checkpoints");
  if (!run.options.resume || read_from != saved_to) refuse_to_mix_runs(run.config, checkpoints.store());
  if (!run.options.resume) return "";
  return read_from == saved_to ? resume_from_own(run, checkpoints) : resume_from_other(run, read_from, checkpoints);
}

}  // namespace trivet::trainer
