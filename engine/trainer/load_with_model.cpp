#include "engine/trainer/load_with_model.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/error.h"
#include "core/file_system.h"
#include "core/printable.h"
#include "engine/checkpoint/steps.h"
#include "engine/config/deepspeed.h"
#include "engine/config/load.h"
#include "engine/config/load_for_run.h"
#include "engine/trainer/initial_weights.h"
#include "engine/trainer/resume.h"

namespace trivet::trainer {
namespace {

namespace fs = std::filesystem;

std::string weights_of(const ConfigToLoad& given, const std::string& text) {
  const std::string from = model_from_in(text, given.path, given.overrides);
  if (given.init_from.empty()) return from;
  if (!from.empty() && from != given.init_from)
    throw ConfigError(fmt::format("--init-from {}: {} says model.from {}; name one of the two, or the same",
                                  printable(given.init_from), given.path, printable(from)));
  return given.init_from;
}

bool holds_checkpoint(const std::string& directory) {
  std::error_code absent;
  if (fs::exists(directory + "/manifest.json", absent)) return true;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, absent))
    if (entry.path().filename().string().starts_with("step-")) return true;
  return false;
}

// Where the checkpoint is that a run without a model resumes; empty: nowhere.
std::string checkpoint_of(const ConfigToLoad& given, const std::string& text) {
  if (!given.resumes) return "";
  std::vector<std::string> overrides{"model.from=checkpoint"};  // so that the model is not checked
  for (const std::string& one : given.overrides)  // a single key of the model is one that differs, not another model
    if (!one.starts_with("model.")) overrides.push_back(one);
  const Config config = parse_config(text, given.path, overrides);
  if (describes_model(config)) return "";
  const std::string directory = given.resume_directory.empty() ? config.checkpoint.directory : given.resume_directory;
  if (holds_checkpoint(checkpoint::follow_name(real_file_system(), directory))) return directory;
  if (!given.resume_directory.empty()) refuse_to_resume_from(directory, given.resume_key);
  return "";
}

Config parse(const ConfigToLoad& given, const std::string& text, const std::vector<std::string>& model_keys) {
  if (given.for_run) return parse_config_for_run(text, given.path, given.overrides, model_keys);
  Config config = parse_config(text, given.path, given.overrides, model_keys);
  check_model_is_given(config);
  return config;
}

}  // namespace

Config load_with_model(const ConfigToLoad& given) {
  const std::string text = read_config_text(given.path);
  const std::string weights = weights_of(given, text);
  std::vector<std::string> model_keys;
  if (!weights.empty())
    model_keys = model_keys_of(weights, given.init_from.empty() ? "model.from" : "--init-from");
  else if (const std::string directory = checkpoint_of(given, text); !directory.empty())
    model_keys = model_keys_of(directory, "--resume");
  Config config = parse(given, text, model_keys);
  config.model_from = weights;
  if (!weights.empty()) settle_with_weights(weights, config);
  return config;
}

}  // namespace trivet::trainer
