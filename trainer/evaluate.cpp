#include "trainer/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/enum_names.h"
#include "core/error.h"
#include "core/printable.h"
#include "data/counted_targets.h"
#include "trainer/config_checks.h"
#include "trainer/initial_weights.h"
#include "trainer/load_with_model.h"
#include "trainer/run.h"
#include "trainer/saved_model.h"
#include "trainer/validation.h"

namespace trivet {
namespace {

constexpr int64_t kUsualLength = 1024;  // length of a sample, in tokens
constexpr const char* kSource = "evaluate";

bool gives(const std::vector<std::string>& overrides, const std::string& key) {
  return std::ranges::any_of(overrides, [&](const std::string& one) { return one.starts_with(key + "="); });
}

// Returns what a run's config says about how its data are read and how its model computes.
nlohmann::ordered_json settings_of(const Config& saved) {
  nlohmann::ordered_json json;
  json["training"]["objective"] = name_of(saved.model.objective);
  json["data"] = {{"chat_template", name_of(saved.data.chat_template)},
                  {"special_tokens", saved.data.special_tokens},
                  {"packing", name_of(saved.data.packing)},
                  {"loss_on", name_of(saved.data.loss_on)},
                  {"mean", saved.data.mean},
                  {"std", saved.data.deviation}};
  if (saved.data.read_as == ReadAs::Text || saved.data.read_as == ReadAs::Bytes)  // other data may be ids of tokens, or not
    json["data"]["read_as"] = name_of(saved.data.read_as);
  json["bf16"]["enabled"] = saved.bf16.enabled;
  json["fp16"]["enabled"] = saved.fp16.enabled;
  return json;
}

// Refuses keys for another model or other data than the command names, and for only a part of the data.
void refuse_other_keys(const Config& config, const std::string& model, const std::string& data) {
  const auto refuse = [&](const char* key, const char* advice) {
    throw ConfigError(fmt::format("--set {}: trivet evaluate {} {} says what is evaluated; {}", key, printable(model),
                                  printable(data), advice));
  };
  if (config.model_from != model) refuse("model.from", "name the model there");
  if (config.data.train != data || !config.data.sources.empty() || !config.data.validation.empty())
    refuse("data.train, data.sources and data.validation", "name the data there");
  if (config.data.validation_fraction != 0) refuse("data.validation_fraction", "all of the data are evaluated");
}

// Before the config is read, which would say what training needs for them.
void refuse_keys_of_training(const std::vector<std::string>& overrides, const std::string& model, const std::string& data) {
  for (const char* key :
       {"training.evaluate_samples", "training.evaluate_every", "training.evaluate_every_epochs", "data.grows", "run.directory",
        "checkpoint.directory", "timeline.step", "csv_monitor.enabled", "tensorboard.enabled", "flops_profiler.enabled",
        "comms_logger.enabled", "wall_clock_breakdown", "memory_breakdown"})
    if (gives(overrides, key))
      throw ConfigError(
          fmt::format("--set {}: trivet evaluate {} {} trains nothing and writes no files; this key is for training", key,
                      printable(model), printable(data)));
}

}  // namespace

Config evaluation_config(const std::string& model, const std::string& data, const std::vector<std::string>& overrides) {
  refuse_keys_of_training(overrides, model, data);
  const trainer::SavedModel saved(model, kSource);
  nlohmann::ordered_json json = saved.step() ? settings_of(saved.config()) : nlohmann::ordered_json::object();
  json["model"]["from"] = model;
  json["data"]["train"] = data;
  json["data"]["validation_fraction"] = 0;
  json["training"]["steps"] = 1;
  json["train_micro_batch_size_per_gpu"] = 1;
  json["optimizer"]["type"] = "SGD";  // has no state
  const model::Description& description = saved.config().model;
  const bool any_length = description.type == model::Type::Llama && description.sequence_length > kUsualLength;
  if (any_length && !gives(overrides, "model.sequence_length")) json["model"]["sequence_length"] = kUsualLength;
  Config config = trainer::load_with_model({.path = kSource, .overrides = overrides, .text = json.dump()});
  refuse_other_keys(config, model, data);
  config.data.only_evaluated = true;
  if (config.model.objective == model::Objective::Dpo)
    throw ConfigError(fmt::format(
        "evaluate {}: training.objective is \"dpo\", which compares with the weights that its run began with; name pairs in "
        "data.validation of that run, or score answers alone, as lines of \"prompt\" and \"completion\": --set "
        "training.objective=sft",
        printable(model)));
  return config;
}

Evaluation evaluate(const Config& config, comm::World& world, const EvaluationOptions& options) {
  const TrainOptions train_options{.threads = options.threads, .local_rank = options.local_rank};
  trainer::check_complete(config);
  trainer::check_same_config(config, world, train_options);
  trainer::Run run(config, world, train_options);
  Evaluation found{.model = trainer::load_initial_weights_if_asked(run), .data = run.data->sizes(), .notes = run.data->notes()};
  if (const int64_t tokens = run.data->stream_tokens(); tokens > 0) {
    const int64_t length = config.model.sequence_length;
    if (const int64_t rest = (tokens - 1) % length; rest > 0)
      found.notes.push_back(fmt::format("the last {} token{} not scored: {} no sample of model.sequence_length {}", rest,
                                        rest == 1 ? " is" : "s are", rest == 1 ? "it fills" : "they fill", length));
  }
  const auto tests = run.data->validation();
  const auto samples = tests ? tests : run.data->train();
  data::refuse_without_targets(*samples, "evaluated", 0);
  const data::EvaluationLoader loader(samples, run.batches.layout().micro_batch);
  const StepResult result = trainer::evaluate_on(loader, run, nullptr);
  found.loss = result.loss;
  found.targets = result.targets;
  found.samples = loader.samples();
  if (run.counts_correct()) found.correct = result.correct;
  return found;
}

}  // namespace trivet
