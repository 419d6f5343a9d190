#include "report/read_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "core/base64.h"
#include "core/bounded_file.h"
#include "core/bounded_json.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/printable.h"
#include "report/monitor/jsonl.h"
#include "report/run_files.h"

namespace trivet::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kMostFileBytes = int64_t{64} << 20;  // per file, except those with a line per step
constexpr size_t kMostLineBytes = 1 << 20;
constexpr size_t kMostNames = 1000;  // categories, channels and facts
constexpr size_t kMostRanks = 100'000;
constexpr size_t kMostPredictions = 100;
constexpr size_t kMostStarts = 10'000;

[[noreturn]] void refuse(const std::string& source, const std::string& wrong) {
  throw DataError(ExitCode::Usage, fmt::format("{}: {}; use a folder that run.directory names, as trivet train left it",
                                               printable(source), wrong));
}

// Runs `read` on JSON that may be anything.
template <typename Read>
void with_json(std::string_view text, const std::string& source, Read&& read) {
  try {
    const Json json = parse_bounded<Json>(text);
    if (!json.is_object() && !json.is_array()) refuse(source, "is neither an object nor a list");
    read(json);
  } catch (const JsonExcess& excess) {
    refuse(source, excess.what());
  } catch (const Json::exception&) {
    refuse(source, fmt::format("\"{}\" is not what trivet train writes there", printable(text, 80)));
  } catch (const std::invalid_argument& wrong) {
    refuse(source, wrong.what());
  }
}

// Calls `read` for every complete line.
void for_each_line(std::istream& lines, const std::string& source, const std::function<void(const Json&)>& read) {
  std::vector<char> line(kMostLineBytes + 1);
  for (int64_t number = 1; !lines.eof(); ++number) {
    lines.getline(line.data(), static_cast<std::streamsize>(line.size()));
    if (lines.eof()) return;  // a run that was killed, or is writing now, may leave half a line
    const std::string where = fmt::format("{}:{}", source, number);
    if (!lines) refuse(where, fmt::format("the line has more than {} bytes", kMostLineBytes));
    with_json({line.data(), static_cast<size_t>(lines.gcount()) - 1}, where, read);
  }
}

// null: not finite.
double number_of(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

constexpr int64_t kMostSteps = int64_t{1} << 50;  // larger numbers and distances between them are not exact as double

int64_t count_of(const Json& json, int64_t most = kMostSteps) {
  if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(most)) ||
      json.get<int64_t>() < 0 || json.get<int64_t>() > most)
    throw std::invalid_argument(fmt::format("{} is not a number from 0 to {}", printable(json.dump(), 40), most));
  return json.get<int64_t>();
}

int64_t step_of(const Json& json) { return count_of(json.at("step")); }

// A number of bytes or operations, or a time.
double amount_of(const Json& json) {
  const auto amount = json.get<double>();
  if (!std::isfinite(amount) || amount < 0 || amount > 1e30)
    throw std::invalid_argument(fmt::format("{} is not a number from 0 to 1e30", printable(json.dump(), 40)));
  return amount;
}

std::vector<std::pair<std::string, std::string>> facts_of(const Json& json) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (const Json& fact : json.at("facts")) {
    facts.emplace_back(fact.at(0).get<std::string>(), fact.at(1).get<std::string>());
    if (facts.size() == kMostNames) break;
  }
  return facts;
}

void read_start(const Json& json, RunData& run) {
  run.state = RunState::Unfinished;
  run.total_steps = count_of(json.at("total_steps"));
  run.facts = facts_of(json);
  run.end_facts.clear();
  run.memory.clear();
  ++run.starts;
  if (run.starts > 1) add(run, Note{step_of(json), "start", fmt::format("start number {}", run.starts)});
}

void read_end(const Json& json, RunData& run) {
  run.state = RunState::Ended;
  run.end_facts = facts_of(json);
  run.memory.clear();
  for (const Json& peak : json.at("memory")) {
    run.memory.push_back({peak.at(0).get<std::string>(), count_of(peak.at(1)), count_of(peak.at(2))});
    if (run.memory.size() == kMostNames) break;
  }
}

std::vector<NamedValue> amounts_of(const Json& object) {
  std::vector<NamedValue> values;
  for (const auto& [name, value] : object.items()) {
    if (name != "total" && values.size() < kMostNames) values.push_back({name, amount_of(value)});
  }
  return values;
}

// False if there is none. Anything else of this name is refused: to open a pipe, for example, would wait for its other end.
bool is_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return false;
  if (error) throw DataError(ExitCode::Usage, fmt::format("{}: {}", printable(path.string()), error.message()));
  if (status.type() != fs::file_type::regular) refuse(path.string(), "is not a file");
  return true;
}

// Empty if there is no such file.
std::string text_of(const fs::path& path) {
  if (!is_file(path)) return "";
  BoundedText file = read_bounded(path.string(), kMostFileBytes, "a file of a run");
  if (!file.problem.empty()) throw DataError(ExitCode::Usage, fmt::format("{}: {}", printable(path.string()), file.problem));
  return std::move(file.text);
}

using ReadLines = void (*)(std::istream&, const std::string&, RunData&);

void read_lines(const fs::path& path, ReadLines read, RunData& run) {
  if (!is_file(path)) return;
  std::ifstream file(path, std::ios::binary);
  if (file) read(file, path.string(), run);
}

void read_starts(std::istream& lines, const std::string& source, RunData& run) {
  for_each_line(lines, source, [&](const Json& json) {
    run.last_start_json = json.dump(2, ' ', false, Json::error_handler_t::replace);
    if (run.known_starts.size() == kMostStarts) run.known_starts.erase(run.known_starts.begin());
    const auto ranks = json.contains("hosts") ? static_cast<int64_t>(json.at("hosts").size()) : 0;
    run.known_starts.push_back({.steps_done = json.contains("step") ? step_of(json) : 0, .ranks = ranks});
  });
}

void read_metrics(const fs::path& path, RunData& run) {
  if (const fs::path folder = path.parent_path(); fs::exists(folder) && !fs::is_directory(folder))
    refuse(folder.string(), "is a pipe or a device");
  if (!is_file(path)) refuse(path.string(), "there is no such file, so this is not the folder of a run that has begun");
  read_lines(path, read_steps, run);
  read_lines(monitor::evaluation_path(path.string()), read_evaluations, run);
}

double peak_flops_of(const std::string& config, const std::string& source) {
  double tflops = 0;
  if (!config.empty())
    with_json(config, source, [&](const Json& json) {
      const auto found = json.find("run");
      if (found != json.end() && found->contains("peak_tflops")) tflops = amount_of(found->at("peak_tflops"));
    });
  return 1e12 * tflops;
}

std::string speed_key(const monitor::TargetWords& words) { return std::string(words.many) + "_per_second"; }

// The targets of a line of metrics, which names them. Earlier versions of Trivet called images tokens, too.
monitor::TargetWords targets_of(const Json& step) {
  for (const monitor::TargetWords& words : {monitor::kImages, monitor::kPairs})
    if (step.contains(speed_key(words))) return words;
  return monitor::kTokens;
}

monitor::TargetWords counted_in(const Json& evaluation) {
  for (const monitor::TargetWords& words : {monitor::kImages, monitor::kPairs})
    if (evaluation.contains(words.many)) return words;
  return monitor::kTokens;
}

double accuracy_of(const Json& evaluation) {
  if (!evaluation.contains("correct")) return std::numeric_limits<double>::quiet_NaN();
  const int64_t targets = count_of(evaluation.at(counted_in(evaluation).many));
  const int64_t correct = count_of(evaluation.at("correct"), targets);
  return targets == 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(correct) / static_cast<double>(targets);
}

// Of all blocks with experts; 0: there are none.
double fullest_expert(const Json& json) {
  double fullest = 0;
  if (json.contains("experts"))
    for (const Json& block : json.at("experts").at("fullest")) fullest = std::max(fullest, amount_of(block));
  return fullest;
}

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

// Checks whether the line says that it counted nothing.
bool is_without_targets(const Json& json, const monitor::TargetWords& words) {
  const auto found = json.find(words.many);
  return found != json.end() && found->is_number_integer() && *found == 0;
}

}  // namespace

void read_steps(std::istream& lines, const std::string& source, RunData& run) {
  for_each_line(lines, source, [&](const Json& json) {
    run.targets = targets_of(json);
    const bool none = is_without_targets(json, run.targets);
    add(run, StepPoint{.step = step_of(json),
                       .loss = none ? kNoValue : number_of(json, "loss"),
                       .lr = number_of(json, "lr"),
                       .grad_norm = none ? kNoValue : number_of(json, "grad_norm"),
                       .targets_per_second = none ? kNoValue : number_of(json, speed_key(run.targets).c_str()),
                       .step_ms = number_of(json, "step_ms"),
                       .memory_bytes = amount_of(json.at("memory_bytes")),
                       .loss_scale = json.contains("loss_scale") ? number_of(json, "loss_scale") : 0,
                       .fullest = fullest_expert(json),
                       .skipped = json.value("skipped", false),
                       .without_targets = none});
  });
}

void read_evaluations(std::istream& lines, const std::string& source, RunData& run) {
  for_each_line(lines, source, [&](const Json& json) {
    const bool none = is_without_targets(json, counted_in(json));
    add(run, EvaluationPoint{.step = step_of(json),
                             .loss = none ? kNoValue : number_of(json, "loss"),
                             .without_targets = none,
                             .accuracy = accuracy_of(json)});
  });
}

void read_events(std::istream& lines, const std::string& source, RunData& run) {
  for_each_line(lines, source, [&](const Json& json) {
    const auto kind = json.at("event").get<std::string>();
    if (kind == "start") read_start(json, run);
    if (kind == "end") read_end(json, run);
    if (kind == "checkpoint") add(run, checkpoint_note(step_of(json)));
    if (kind == "note") add(run, Note{step_of(json), json.at("what").get<std::string>(), json.at("text").get<std::string>()});
  });
}

monitor::ShownPredictions parse_predictions(std::string_view text, const std::string& source) {
  monitor::ShownPredictions predictions;
  with_json(text, source, [&](const Json& json) {
    predictions.step = step_of(json);
    for (const Json& sample : json.at("samples")) {
      const std::optional<std::string> bytes = from_base64(sample.value("png", ""));
      if (!bytes) throw std::invalid_argument("is not text in base64");
      const std::string& png = *bytes;
      predictions.samples.push_back({.sample = count_of(sample.at("sample")),
                                     .right = sample.at("right").get<bool>(),
                                     .png = png,
                                     .before = png.empty() ? sample.value("before", "") : "",
                                     .target = sample.at("target").get<std::string>(),
                                     .predicted = sample.at("predicted").get<std::string>()});
      if (predictions.samples.size() == kMostPredictions) break;
    }
  });
  return predictions;
}

// In the order in which a finished run has them, so that each has one colour. The object's own order is lost.
void order_by_category(std::vector<NamedValue>& memory) {
  const auto& table = EnumNames<MemoryCategory>::table;
  std::ranges::stable_sort(memory, {}, [&](const NamedValue& one) {
    return std::ranges::find(table, one.name, [](const auto& row) { return row.first; }) - table.begin();
  });
}

PlanFigures parse_plan_figures(std::string_view text, const std::string& source) {
  PlanFigures figures;
  with_json(text, source, [&](const Json& json) {
    double ranks = 1;
    for (const auto& [axis, size] : json.at("mesh").items()) ranks *= amount_of(size);
    figures.ranks = static_cast<int64_t>(std::clamp(ranks, 1.0, 1e9));
    if (json.contains("train_batch_size")) figures.samples_per_step = count_of(json.at("train_batch_size"));
    figures.flops_per_step = amount_of(json.at("model_flops_per_step"));
    figures.memory = amounts_of(json.at("memory_bytes"));
    order_by_category(figures.memory);
    if (json.contains("communication_bytes")) figures.communication = amounts_of(json.at("communication_bytes"));
  });
  return figures;
}

std::vector<RankTime> parse_rank_times(std::string_view text, const std::string& source) {
  std::vector<RankTime> ranks;
  with_json(text, source, [&](const Json& json) {
    for (const Json& rank : json) {
      ranks.push_back({static_cast<int>(count_of(rank.at("rank"), 1 << 30)), amount_of(rank.at("compute_ms")),
                       amount_of(rank.at("wait_ms"))});
      if (ranks.size() == kMostRanks) break;
    }
  });
  return ranks;
}

RunData read_run(const std::string& path) {
  RunData run;
  run.name = path;
  if (std::error_code none; fs::is_regular_file(path, none)) {
    read_metrics(path, run);
    if (run.steps.count() == 0 && run.evaluations.empty())
      throw DataError(ExitCode::Usage, fmt::format("{}: holds no line of metrics, so there is nothing to show; use a file that "
                                                   "trivet train --metrics wrote",
                                                   printable(path)));
    return run;
  }
  const fs::path folder(path);
  read_metrics(folder / kMetricsFile, run);
  read_lines(folder / kEventsFile, read_events, run);
  read_lines(folder / kStartsFile, read_starts, run);
  run.config_json = text_of(folder / kConfigFile);
  run.plan_text = text_of(folder / kPlanTextFile);
  const std::string plan = text_of(folder / kPlanFile), ranks = text_of(folder / kRankTimesFile);
  if (const std::string text = text_of(folder / kPredictionsFile); !text.empty())
    run.predictions = parse_predictions(text, (folder / kPredictionsFile).string());
  if (!plan.empty()) run.plan = parse_plan_figures(plan, (folder / kPlanFile).string());
  if (!ranks.empty()) run.ranks = parse_rank_times(ranks, (folder / kRankTimesFile).string());
  run.plan.peak_flops = peak_flops_of(run.config_json, (folder / kConfigFile).string());
  run.timeline_svg = text_of(folder / kTimelineDrawing);
  return run;
}

}  // namespace trivet::report
