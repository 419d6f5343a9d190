#include "trainer/saved_model.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/error.h"
#include "core/printable.h"
#include "data/dataset.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/config/load.h"
#include "interchange/hugging_face/adapted_files.h"
#include "interchange/hugging_face/model_files.h"
#include "interchange/hugging_face/model_format.h"
#include "interchange/hugging_face/text_files.h"
#include "report/run_files.h"
#include "trainer/generation.h"

namespace trivet::trainer {
namespace {

bool is_step(FileSystem& files, const std::string& path) {
  return files.kind(path + "/" + checkpoint::kManifestName) != EntryKind::Missing ||
         checkpoint::parse_step(std::filesystem::path(path).filename().string()).has_value();
}

[[noreturn]] void refuse_path(FileSystem& files, const std::string& path, const std::string& key) {
  constexpr const char* kGive =
      "give the folder of a model in Hugging Face's format (with config.json), or a directory of checkpoints or one of its "
      "steps";
  if (files.kind(path) == EntryKind::Missing)
    throw ConfigError(fmt::format("{} {}: there is no such file or directory; {}", key, printable(path), kGive));
  const char* what = files.kind(path) == EntryKind::File ? "is a file, but none of llm.c or llama2.c" : "is a pipe or a device";
  throw ConfigError(fmt::format("{} {}: {}; {}", key, printable(path), what, kGive));
}

bool is_model(FileSystem& files, const std::string& path) {
  try {
    return files.kind(path + "/.") == EntryKind::Directory && hugging_face::format_of(files, path) != nullptr;
  } catch (const Error&) {
    return false;  // the format is not read
  }
}

// Returns the config.json of a model of Hugging Face without weights, or the file that `path` is; empty: it is something else,
// such as a folder of checkpoints with the config of its run.
std::string description_alone(FileSystem& files, const std::string& path) {
  const std::string name = hugging_face::kConfigName, inside = path + "/" + name;
  if (files.kind(path) == EntryKind::File && std::filesystem::path(path).filename() == name) return path;
  if (files.kind(inside) != EntryKind::File || hugging_face::has_weights(files, path) ||
      hugging_face::holds_adapter(files, path))
    return "";
  const hugging_face::ModelFormat* const format = hugging_face::format_of(files, path);
  return format && format->name == "hf" ? inside : "";
}

// A folder that is neither a model nor one of checkpoints may hold one, as those of transformers' Trainer do.
[[noreturn]] void refuse_folder(FileSystem& files, const std::string& path, const std::string& key) {
  std::vector<std::string> models, others;
  for (const DirectoryEntry& entry : files.list(path)) {
    const std::string inside = (std::filesystem::path(path) / entry.name).string();
    (is_model(files, inside) ? models : others).push_back(inside);
  }
  if (!models.empty())
    throw ConfigError(fmt::format("{} {}: is no model, but holds {}; name {}: {} {}", key, printable(path),
                                  models.size() == 1 ? "one" : fmt::format("{} of them", models.size()),
                                  models.size() == 1 ? "it" : "one of them, such as", key, printable(models.back())));
  throw ConfigError(fmt::format(
      "{} {}: is neither a model in Hugging Face's format, which has a config.json, nor a directory of checkpoints, "
      "which has folders called step-*; it {}",
      key, printable(path),
      others.empty() ? "is empty"
                     : fmt::format("holds {}{}", printable(std::filesystem::path(others[0]).filename().string(), 60),
                                   others.size() == 1 ? "" : fmt::format(" and {} more", others.size() - 1))));
}

// The folder of a run has a config.json, too: that of the run.
bool is_folder_of_run(FileSystem& files, const std::string& path) {
  return files.kind(path + "/.") == EntryKind::Directory &&
         files.kind(path + "/" + report::kStartsFile) != EntryKind::Missing && checkpoint::list_steps(files, path).empty();
}

[[noreturn]] void refuse_folder_of_run(FileSystem& files, const std::string& path, const std::string& key) {
  std::string advice = "it holds no checkpoints: name the checkpoint.directory of that run";
  for (const DirectoryEntry& entry : files.list(path)) {
    const std::string inside = (std::filesystem::path(path) / entry.name).string();
    if (entry.kind == EntryKind::Directory && !checkpoint::list_steps(files, inside).empty())
      advice = fmt::format("its checkpoints are in {}: name that", printable(inside));
  }
  throw ConfigError(fmt::format("{} {}: is the folder of a run (run.directory); {}", key, printable(path), advice));
}

}  // namespace

SavedModel::SavedModel(const std::string& path, const std::string& key, Weights weights) {
  if (FileSystem& all = file_system_with_links(); is_folder_of_run(all, path)) refuse_folder_of_run(all, path, key);
  FileSystem& models = file_system_with_links();
  const std::string description = weights == Weights::NotNeeded ? description_alone(models, path) : "";
  if (!description.empty() || hugging_face::format_of(models, path)) {
    pretrained_ = description.empty() ? std::make_unique<hugging_face::PretrainedModel>(models, path)
                                      : std::make_unique<hugging_face::PretrainedModel>(
                                            hugging_face::PretrainedModel::described_alone(models, description));
    config_ = pretrained_->config();
    config_.data.chat_template = hugging_face::chat_template_in(models, pretrained_->folder());
    return;
  }
  FileSystem& files = real_file_system();
  const std::string followed = checkpoint::follow_name(files, path);  // if it is "best" or "latest"
  if (files.kind(followed + "/.") != EntryKind::Directory) refuse_path(files, path, key);
  if (checkpoint::list_steps(files, followed).empty() && !is_step(files, followed)) refuse_folder(files, path, key);
  step_ = std::make_unique<checkpoint::LoadedStep>(
      checkpoint::open_path(files, followed, checkpoint::StepFiles::All, &passed_over_));
  refuse_embedded(*step_, key);
  config_ = parse_config(step_->config(), step_->directory() + "/manifest.json");
}

const checkpoint::TensorSource& SavedModel::weights() const {
  if (pretrained_) return pretrained_->weights();
  return *step_;
}

std::string SavedModel::in_words() const {
  return pretrained_ ? fmt::format("{} ({})", pretrained_->weights().source(), pretrained_->kind()) : step_->directory();
}

std::string SavedModel::tokenizer_path() const {
  if (pretrained_) return data::find_tokenizer_in(pretrained_->folder());
  return step_->run_state().tokenizer.empty() ? "" : step_->directory() + "/" + checkpoint::kManifestName;
}

std::shared_ptr<data::Tokenizer> SavedModel::tokenizer() const {
  if (step_) return tokenizer_of(*step_);
  const std::string path = tokenizer_path();
  return path.empty() ? nullptr : data::load_tokenizer(path);
}

}  // namespace trivet::trainer
