#include "trainer/load_with_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/file_system.h"
#include "core/printable.h"
#include "engine/checkpoint/steps.h"
#include "engine/config/deepspeed.h"
#include "engine/config/load.h"
#include "engine/config/load_for_run.h"
#include "trainer/initial_weights.h"
#include "trainer/resume.h"
#include "trainer/saved_model.h"

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

bool is_gone(const std::string& weights) {
  std::error_code unreadable;
  return fs::status(weights, unreadable).type() == fs::file_type::not_found;
}

// Where the checkpoint is whose model a run resumes that has neither weights nor a model of its own; empty: nowhere.
std::string checkpoint_of(const ConfigToLoad& given, const std::string& text, const std::string& weights) {
  if (!given.resumes || (!weights.empty() && !is_gone(weights))) return "";
  std::vector<std::string> overrides{"model.from=checkpoint"};  // so that the model is not checked
  for (const std::string& one : given.overrides)  // a single key of the model is one that differs, not another model
    if (!one.starts_with("model.")) overrides.push_back(one);
  const Config config = parse_config(text, given.path, overrides);
  if (weights.empty() && describes_model(config)) return "";
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

// Checks whether "auto", which stands for a flag of another program, can stand for the type of the weights.
bool leaves_type_to_weights(const Config& config) {
  const auto is_auto = [](const AutoKey& key) { return key.path == "bf16.enabled"; };
  return config.model_dtype() == DType::Float32 && std::ranges::any_of(config.automatic, is_auto);
}

Config with_type_of_weights(ConfigToLoad given, const std::string& text, const std::vector<std::string>& model_keys,
                            const std::string& weights) {
  given.overrides.emplace_back("bf16.enabled=true");
  Config config = parse(given, text, model_keys);
  config.automatic.push_back(
      {"bf16.enabled", "true",
       fmt::format("bf16.enabled: \"auto\" is true, the type of the weights in {}", printable(weights))});
  return config;
}

}  // namespace

Config load_with_model(const ConfigToLoad& given) {
  const std::string text = given.text.empty() ? read_config_text(given.path) : given.text;
  const std::string weights = weights_of(given, text);
  const Weights needed = given.for_plan ? Weights::NotNeeded : Weights::Needed;
  std::vector<std::string> model_keys;
  const std::string resumed = checkpoint_of(given, text, weights);
  if (!resumed.empty())
    model_keys = model_keys_of_run(resumed, given.resume_key);
  else if (!weights.empty())
    model_keys = model_keys_of(weights, given.init_from.empty() ? "model.from" : "--init-from", needed);
  Config config = parse(given, text, model_keys);
  const std::string& source = resumed.empty() ? weights : resumed;
  if (!source.empty() && leaves_type_to_weights(config) && SavedModel(source, "model.from", needed).is_bfloat16())
    config = with_type_of_weights(given, text, model_keys, source);
  config.model_from = weights;
  if (!resumed.empty()) take_chat_template(SavedModel(resumed, given.resume_key), config);
  if (resumed.empty() && !weights.empty()) settle_with_weights(weights, config, needed);
  return config;
}

}  // namespace trivet::trainer
