// Reads a config whose model may be described elsewhere: the keys of the section "model" that the config leaves out, and the
// tokenizer, are those of the weights that the run begins with (model.from, --init-from). So a config that was written for
// DeepSpeed is complete with one line more.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace trivet::trainer {

struct ConfigToLoad {
  std::string path;
  std::vector<std::string> overrides;  // overrides as for load_config
  std::string init_from;               // --init-from; empty: the value of model.from
  // The run resumes: if the config does not say which model, or the weights that the run began with are gone, the model is that
  // of the checkpoint.
  bool resumes = false;
  std::string resume_directory = {};    // empty: checkpoint.directory
  std::string resume_key = "--resume";  // that has named it
  // The config is only planned with, so that the model's weights may be absent.
  bool for_plan = false;
  // Also refuses what only training refuses (load_for_run.h).
  bool for_run = false;
  std::string text = {};  // text to read; empty: that of the file `path`. Otherwise `path` only names it in messages
};

// Config::model_from of the result names the weights, also those of init_from. Throws ConfigError as load_config does, and if
// there is no model, or model.from and init_from name different ones.
Config load_with_model(const ConfigToLoad& given);

}  // namespace trivet::trainer
