#include "engine/checkpoint/run_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/strict_json.h"

namespace trivet::checkpoint {
namespace {

constexpr int64_t kMaxSeed = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxSamples = int64_t{1} << 62;  // in all steps: the data cursor must not overflow

// Reads the members of an object. Each must exist unless its function says otherwise.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) corrupt(where_, fmt::format("{} is not an object", shown(object)));
  }

  int64_t whole(const char* name, int64_t least, int64_t most) const {
    const Json& value = member(object_, name, where_);
    const bool fits =
        value.is_number_unsigned()
            ? value.get<uint64_t>() <= static_cast<uint64_t>(most) && value.get<uint64_t>() >= static_cast<uint64_t>(least)
            : value.is_number_integer() && value.get<int64_t>() >= least && value.get<int64_t>() <= most;
    if (!fits) refuse(name, value, fmt::format("a whole number from {} to {}", least, most));
    return value.get<int64_t>();
  }
  double positive(const char* name) const {
    const Json& value = member(object_, name, where_);
    const bool fits = value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
    if (!fits) refuse(name, value, "a finite number above 0");
    return value.get<double>();
  }
  double finite(const char* name) const {
    const Json& value = member(object_, name, where_);
    if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(name, value, "a finite number");
    return value.get<double>();
  }
  std::string text_if_given(const char* name) const {
    if (!object_.contains(name)) return "";
    if (!object_.at(name).is_string()) refuse(name, object_.at(name), "a string");
    return object_.at(name).get<std::string>();
  }
  // Reads a text that is not empty.
  std::string text(const char* name) const {
    const Json& value = member(object_, name, where_);
    if (!value.is_string() || value.get<std::string>().empty()) refuse(name, value, "a string that is not empty");
    return value.get<std::string>();
  }
  // Reads the name of a file in some folder.
  std::string file_name(const char* name) const {
    std::string file = text(name);
    if (file.starts_with(".") || file.find('/') != std::string::npos)
      refuse(name, member(object_, name, where_), "the name of a file that is not hidden, without a folder");
    return file;
  }

 private:
  [[noreturn]] void refuse(const char* name, const Json& value, const std::string& accepted) const {
    corrupt(where_, fmt::format("{}: {} is not accepted; it must be {}", name, shown(value), accepted));
  }

  const Json& object_;
  std::string where_;
};

LossScaleState parse_loss_scale(const Json& json, const std::string& where, int64_t steps) {
  const Fields fields(json, where + ".loss_scale");
  return {.scale = fields.positive("scale"),
          .clean_steps = fields.whole("clean_steps", 0, steps),
          .hysteresis = fields.whole("hysteresis", 0, kMaxSteps)};
}

EvaluationState parse_evaluations(const Json& json, const std::string& where, int64_t steps) {
  const Fields fields(json, where + ".evaluations");
  EvaluationState state;
  state.step = fields.whole("step", 0, steps);
  state.best_step = fields.whole("best_step", 0, state.step);
  if (state.best_step > 0) state.best_loss = fields.finite("best_loss");
  state.without_improvement = fields.whole("without_improvement", 0, state.step);
  return state;
}

// `samples` were read in all steps; an epoch has at least one.
std::vector<DataFileState> parse_data_files(const Json& json, const std::string& where, int64_t samples) {
  if (!json.is_array() || json.empty())
    corrupt(where, fmt::format("data_files: {} is not accepted; it must be a list of files", shown(json)));
  std::vector<DataFileState> files;
  for (const Json& item : json) {
    const Fields fields(item, fmt::format("{}.data_files[{}]", where, files.size()));
    const int64_t least = files.empty() ? 0 : files.back().first_epoch, most = files.empty() ? 0 : samples;
    files.push_back({.first_epoch = fields.whole("first_epoch", least, most),
                     .name = fields.file_name("name"),
                     .digest = fields.text("digest")});
  }
  return files;
}

nlohmann::ordered_json as_json(const std::vector<DataFileState>& files) {
  auto list = nlohmann::ordered_json::array();
  for (const DataFileState& file : files)
    list.push_back({{"first_epoch", file.first_epoch}, {"name", file.name}, {"digest", file.digest}});
  return list;
}

nlohmann::ordered_json as_json(const EvaluationState& state) {
  nlohmann::ordered_json json = {{"step", state.step}, {"best_step", state.best_step}};
  if (state.best_step > 0) json["best_loss"] = state.best_loss;
  json["without_improvement"] = state.without_improvement;
  return json;
}

}  // namespace

std::string to_text(const RunState& state) {
  nlohmann::ordered_json json = {{"steps", state.steps},
                                 {"updates", state.updates},
                                 {"skipped_in_a_row", state.skipped_in_a_row},
                                 {"seed", state.seed},
                                 {"train_batch_size", state.train_batch_size},
                                 {"train_micro_batch_size_per_gpu", state.micro_batch_size}};
  if (const auto& scale = state.loss_scale)
    json["loss_scale"] = {{"scale", scale->scale}, {"clean_steps", scale->clean_steps}, {"hysteresis", scale->hysteresis}};
  if (state.evaluations) json["evaluations"] = as_json(*state.evaluations);
  if (state.steps_per_epoch > 0) json["steps_per_epoch"] = state.steps_per_epoch;
  if (!state.data.empty()) json["data"] = state.data;
  if (!state.data_files.empty()) json["data_files"] = as_json(state.data_files);
  if (!state.tokenizer.empty()) json["tokenizer"] = state.tokenizer;
  if (!state.reference.empty()) json["reference"] = state.reference;
  return json.dump();
}

RunState parse_run_state(std::string_view text, const std::string& where) {
  const Json json = parse_strict(text, where);
  const Fields fields(json, where);
  RunState state;
  state.train_batch_size = fields.whole("train_batch_size", 1, kMaxSamples);
  state.steps = fields.whole("steps", 0, std::min(kMaxSteps, kMaxSamples / state.train_batch_size));
  state.updates = fields.whole("updates", 0, state.steps);
  state.skipped_in_a_row = fields.whole("skipped_in_a_row", 0, state.steps - state.updates);
  state.seed = fields.whole("seed", 0, kMaxSeed);
  state.micro_batch_size = fields.whole("train_micro_batch_size_per_gpu", 1, state.train_batch_size);
  if (json.contains("loss_scale")) state.loss_scale = parse_loss_scale(json.at("loss_scale"), where, state.steps);
  if (json.contains("evaluations")) state.evaluations = parse_evaluations(json.at("evaluations"), where, state.steps);
  if (json.contains("steps_per_epoch")) state.steps_per_epoch = fields.whole("steps_per_epoch", 1, kMaxSteps);
  state.data = fields.text_if_given("data");
  if (json.contains("data_files"))
    state.data_files = parse_data_files(json.at("data_files"), where, state.steps * state.train_batch_size);
  state.tokenizer = fields.text_if_given("tokenizer");
  state.reference = fields.text_if_given("reference");
  return state;
}

}  // namespace trivet::checkpoint
