// Scores a model that was saved on data, without training, as `trivet evaluate` does on each rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/config/config.h"

namespace trivet {

// The config of an evaluation: the model, the objective, the precision and the template of conversations are those of `model`,
// which is a folder in Hugging Face's format or a checkpoint, and the data are `data`. `overrides`: as those of load_config. If
// they do not say how long samples are, a model whose weights do not depend on it gets at most 1024 tokens. Throws ConfigError
// and CheckpointError.
Config evaluation_config(const std::string& model, const std::string& data, const std::vector<std::string>& overrides);

struct Evaluation {
  double loss = 0;  // mean over the targets; the same bits on all ranks, and with reproducible "layout" on all layouts
  int64_t targets = 0, samples = 0;
  std::optional<int64_t> correct;  // correct targets, if the model chooses classes
  std::string model, data;         // in words
  std::vector<std::string> notes;  // facts about the data for the user
};

struct EvaluationOptions {
  int threads = 1;      // for the kernels of one rank
  int local_rank = -1;  // as in EngineOptions
};

// Collective. Images for tests are evaluated, if the data have them; otherwise all samples are, once. Throws what
// trainer::load_with_model and the engine throw, and DataError if there are no targets.
Evaluation evaluate(const Config& config, comm::World& world, const EvaluationOptions& options);

}  // namespace trivet
