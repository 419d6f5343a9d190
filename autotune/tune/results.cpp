#include "autotune/tune/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "autotune/tune/html_report.h"
#include "autotune/tune/metric.h"
#include "core/bounded_json.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/replace_file.h"

namespace trivet::autotune {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxResultBytes = int64_t{64} << 20;  // limit for a file that is read back
constexpr JsonLimits kResultLimits{.levels = 72};       // a config may have 64
constexpr const char* kWriter = "trivet tune";
constexpr const char* kReportTitle = "<title>trivet tune</title>";
constexpr const char* kOwnFiles[] = {"summary.txt", "report.html", "ds_config_optimal.json", "cmd_optimal.txt"};

std::string text_of(const ordered_json& json) { return json.dump(2) + "\n"; }

ordered_json experiment(const TrialConfig& trial, const ConfigDocument& document, int world_size) {
  return {{"writer", kWriter},
          {"name", trial.name},
          {"exp_id", trial.id},
          {"num_gpus", world_size},
          {"overrides", trial.overrides},
          {"ds_config", ordered_json::parse(document.json(trial.overrides))}};
}

// Null, or what the parser makes of malformed text, if the file is not one that `trivet tune` wrote.
ordered_json read_result(FileSystem& files, const std::string& path) {
  const std::string text = read_text(files, path, kMaxResultBytes);
  if (!json_excess(text, kResultLimits).empty()) return nullptr;
  return ordered_json::parse(text, nullptr, false);
}

// True for a file that `trivet tune` wrote. Files of other programs may have the same names; DeepSpeed's do.
bool is_experiment(FileSystem& files, const std::string& path) {
  if (files.kind(path) != EntryKind::File) return false;
  const ordered_json json = read_result(files, path);
  return json.is_object() && json.contains("writer") && json["writer"] == kWriter;
}

bool is_of_a_trial(const std::string& name) {
  constexpr const char* kNames[] = {"exp.json", "ds_config.json", "metrics.json", "stderr.log"};
  return std::ranges::any_of(
      kNames, [&](const std::string& own) { return name == own || (name.starts_with(own + ".") && name.ends_with(".tmp")); });
}

// Turns a FileError into a ConfigError, because a folder that cannot be written to, or a full disk, is for the user to change.
template <typename Work>
void writing(Work&& work) {
  try {
    work();
  } catch (const FileError& error) {
    throw ConfigError(fmt::format(
        "autotuning: results cannot be written: {}; make room, or name other folders (results_dir, exps_dir)", error.what()));
  }
}

bool is_settled(const TrialRecord& record) { return record.result.status == TrialStatus::Ok && record.measured.size() > 1; }

// Returns the value of the metric that is tuned for, if a step takes this time.
double value_at(const TuningReport& report, const TrialRecord& record, double seconds) {
  return metrics_of(*record.trial, seconds, report.world_size).of(report.config->autotuning.metric);
}

}  // namespace

const TrialRecord* TuningReport::best() const {
  const TrialRecord* best = nullptr;
  const auto value = [&](const TrialRecord& record) { return value_at(*this, record, record.result.seconds); };
  const bool some_are_settled = std::ranges::any_of(records, is_settled);
  for (const TrialRecord& record : records) {
    if (record.result.status != TrialStatus::Ok || (some_are_settled && !is_settled(record))) continue;
    if (!best || is_better(config->autotuning.metric, value(record), value(*best))) best = &record;
  }
  return best;
}

std::vector<std::string> TuningReport::as_good_as_best() const {
  const TrialRecord* first = best();
  if (!first || !is_settled(*first)) return {};
  const double worst = value_at(*this, *first, std::ranges::max(first->measured));
  std::vector<std::string> names;
  for (const TrialRecord& record : records)
    if (&record != first && is_settled(record) &&
        !is_better(config->autotuning.metric, worst, value_at(*this, record, std::ranges::min(record.measured))))
      names.push_back(record.trial->name);
  return names;
}

std::string ties_text(const std::vector<std::string>& as_good_as_best) {
  if (as_good_as_best.empty()) return "";
  return fmt::format("{}: {} measurements overlap those of the best, so that another tuning may name {}",
                     fmt::join(as_good_as_best, ", "), as_good_as_best.size() == 1 ? "its" : "their",
                     as_good_as_best.size() == 1 ? "it" : "one of them");
}

std::string optimal_config(const AutotuningConfig& tuning) { return tuning.results_dir + "/ds_config_optimal.json"; }

ResultFolders::ResultFolders(FileSystem& files, const AutotuningConfig& tuning, bool overwrite)
    : files_(files), results_(tuning.results_dir), experiments_(tuning.exps_dir) {
  writing([&] {
    create_directories(files_, results_);
    create_directories(files_, experiments_);
    refuse_foreign();
    if (overwrite) remove_earlier();
  });
}

void ResultFolders::remove_earlier() {
  for (const DirectoryEntry& entry : files_.list(experiments_))
    if (entry.name.ends_with(".json") && is_experiment(files_, experiments_ + "/" + entry.name))
      files_.remove(experiments_ + "/" + entry.name);
  for (const DirectoryEntry& entry : files_.list(results_))
    if (entry.kind == EntryKind::Directory && is_experiment(files_, results_ + "/" + entry.name + "/exp.json"))
      clear_trial(results_ + "/" + entry.name);
  const std::string report = results_ + "/report.html";
  if (files_.kind(report) != EntryKind::File ||
      read_text(files_, report, kMaxResultBytes).find(kReportTitle) == std::string::npos)
    return;
  for (const char* name : kOwnFiles)
    if (files_.kind(results_ + "/" + name) == EntryKind::File) files_.remove(results_ + "/" + name);
}

// DeepSpeed also writes folders of these names with these files.
void ResultFolders::refuse_foreign() {
  for (const DirectoryEntry& entry : files_.list(results_)) {
    const std::string exp = results_ + "/" + entry.name + "/exp.json";
    if (entry.kind != EntryKind::Directory || files_.kind(exp) != EntryKind::File || is_experiment(files_, exp)) continue;
    throw ConfigError(
        fmt::format("autotuning.results_dir: {} holds results that trivet tune did not write ({}); name another "
                    "folder",
                    results_, entry.name));
  }
  for (const DirectoryEntry& entry : files_.list(experiments_)) {
    const bool may_be_trial =
        entry.name.size() > 1 && entry.name[0] == 'z' && std::isdigit(static_cast<unsigned char>(entry.name[1]));
    if (!may_be_trial || !entry.name.ends_with(".json") || is_experiment(files_, experiments_ + "/" + entry.name)) continue;
    throw ConfigError(
        fmt::format("autotuning.exps_dir: {} holds experiments that trivet tune did not write ({}); name another folder",
                    experiments_, printable(entry.name)));
  }
}

// Removes what a trial left; a folder with anything else in it stays.
void ResultFolders::clear_trial(const std::string& folder) {
  bool others = false;
  for (const DirectoryEntry& entry : files_.list(folder)) {
    if (entry.kind == EntryKind::File && is_of_a_trial(entry.name)) {
      files_.remove(folder + "/" + entry.name);
    } else {
      others = true;
    }
  }
  if (!others) remove_tree(files_, folder);
}

std::optional<EarlierTrial> ResultFolders::find(const TrialConfig& trial, const std::string& key) {
  const std::string path = results_ + "/" + trial.name + "/exp.json";
  if (files_.kind(path) != EntryKind::File) return std::nullopt;
  const ordered_json json = read_result(files_, path);
  try {
    if (!json.is_object() || json.at("key") != key) return std::nullopt;
    const auto status = from_name<TrialStatus>(json.at("status").get<std::string>());
    if (!status) return std::nullopt;
    EarlierTrial earlier{.order = json.at("order"), .result = {.status = *status, .message = json.value("message", "")}};
    if (*status == TrialStatus::Ok) earlier.result.seconds = json.at("seconds");
    if (*status == TrialStatus::Ok && !(earlier.result.seconds > 0)) return std::nullopt;
    earlier.measured = json.value("measured_seconds", std::vector{earlier.result.seconds});
    return earlier;
  } catch (const ordered_json::exception&) {  // incomplete, or edited by somebody: it is run again
    return std::nullopt;
  }
}

void ResultFolders::begin(const TrialConfig& trial, const ConfigDocument& document, int world_size) {
  write_atomically(fmt::format("{}/{}.json", experiments_, trial.name), text_of(experiment(trial, document, world_size)));
}

void ResultFolders::end(const TrialRecord& record, const ConfigDocument& document, const std::string& key, int world_size) {
  const TrialConfig& trial = *record.trial;
  const TrialResult& result = record.result;
  const std::string folder = results_ + "/" + trial.name;
  writing([&] {
    if (files_.kind(folder) == EntryKind::Directory) clear_trial(folder);  // removes results of a different setup
    create_directories(files_, folder);
  });
  write_atomically(folder + "/ds_config.json", document.json(trial.overrides));
  ordered_json exp = experiment(trial, document, world_size);
  exp["key"] = key;
  exp["order"] = record.order;
  exp["status"] = name_of(result.status);
  exp["predicted_seconds"] = record.predicted_seconds;
  if (result.status == TrialStatus::Ok) {
    exp["seconds"] = result.seconds;
    if (record.measured.size() > 1) exp["measured_seconds"] = record.measured;
    const Metrics metrics = metrics_of(trial, result.seconds, world_size);
    write_atomically(
        folder + "/metrics.json",
        text_of({{"throughput", metrics.throughput}, {"latency", metrics.latency}, {"FLOPS_per_gpu", metrics.flops_per_gpu}}));
  } else {
    exp["message"] = result.message;
    write_atomically(folder + "/stderr.log", result.message + "\n");
  }
  write_atomically(folder + "/exp.json", text_of(exp));  // last: it marks the trial as ended
}

void ResultFolders::write(const TuningReport& report, const ConfigDocument& document, const std::string& command) {
  if (const TrialRecord* best = report.best()) {
    write_atomically(optimal_config(report.config->autotuning), document.json(best->trial->overrides));
    write_atomically(results_ + "/cmd_optimal.txt", command + "\n");
  }
  write_atomically(results_ + "/summary.txt", summary_text(report));
  write_atomically(results_ + "/report.html", report_html(report));
}

void ResultFolders::write_atomically(const std::string& path, const std::string& text) {
  writing([&] { replace_file(files_, path, text); });
}

std::string spread_text(const std::vector<double>& measured) {
  if (measured.size() < 2) return "";
  const auto [least, most] = std::ranges::minmax(measured);
  return fmt::format("{} measurements: {:.2f} to {:.2f} ms", measured.size(), least * 1e3, most * 1e3);
}

std::string summary_text(const TuningReport& report) {
  const TuningMetric metric = report.config->autotuning.metric;
  struct Row {
    std::string space;
    int64_t trials = 0;
    const TrialRecord* best = nullptr;
  };
  const auto value = [&](const TrialRecord& record) {
    return metrics_of(*record.trial, record.result.seconds, report.world_size).of(metric);
  };
  std::vector<Row> rows;
  for (int stage = 0; stage <= 3; ++stage) rows.push_back({fmt::format("z{}", stage)});
  rows.push_back({"global"});
  int64_t by_status[4] = {}, reused = 0;
  for (const TrialRecord& record : report.records) {
    ++by_status[static_cast<int>(record.result.status)];
    reused += record.reused ? 1 : 0;
    for (Row* row : {&rows[record.trial->config.zero.stage], &rows.back()}) {
      row->trials += record.result.status == TrialStatus::DoesNotFit ? 0 : 1;
      if (record.result.status != TrialStatus::Ok) continue;
      if (!row->best || is_better(metric, value(record), value(*row->best))) row->best = &record;
    }
  }
  std::string text =
      fmt::format("{:<14}  {:>15}  {:>22}  {}\n", "tuning_space", "num_experiments", "best_metric_val", "best_exp_name");
  rows.back().best = report.best();
  for (const Row& row : rows)
    if (row.trials > 0)
      text += fmt::format("{:<14}  {:>15}  {:>22}  {}\n", row.space, row.trials,
                          row.best ? metric_text(metric, value(*row.best)) : "-", row.best ? row.best->trial->name : "-");
  text += fmt::format("\nmetric {}, {} of {} configs, {:.1f} s on {} ranks ({})\n", name_of(metric), rows.back().trials,
                      report.space->trials.size(), report.seconds, report.world_size, report.hardware);
  text += fmt::format("ok {}, out of memory {}, failed {}, do not fit by their plan {}, reused from an earlier tuning {}\n",
                      by_status[static_cast<int>(TrialStatus::Ok)], by_status[static_cast<int>(TrialStatus::OutOfMemory)],
                      by_status[static_cast<int>(TrialStatus::Failed)], by_status[static_cast<int>(TrialStatus::DoesNotFit)],
                      reused);
  if (const std::string ties = ties_text(report.as_good_as_best()); !ties.empty()) text += "as good: " + ties + "\n";
  if (!report.ended.empty()) text += "ended: " + report.ended + "\n";
  if (!report.space->context.empty()) text += "context " + report.space->context + "\n";
  for (const std::string& key : report.space->kept) text += "kept as given: " + key + "\n";
  for (const RefusedConfigs& refused : report.space->refused)
    text += fmt::format("{} configs refused, such as {}: {}\n", refused.configs, refused.example, refused.reason);
  return text;
}

}  // namespace trivet::autotune
