#include "trainer/output_checks.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/bounded_file.h"
#include "core/bounded_json.h"
#include "core/printable.h"
#include "data/file_pattern.h"
#include "engine/checkpoint/steps.h"
#include "engine/config/load.h"
#include "report/monitor/csv.h"
#include "report/monitor/jsonl.h"
#include "report/run_files.h"
#include "trainer/initial_weights.h"

namespace trivet::trainer {
namespace {

namespace fs = std::filesystem;

// Some data is in two files: tokens of Megatron.
void add_data(OutputGuard& guard, const std::string& path, const std::string& key) {
  if (path.empty()) return;
  data::name_inputs(guard, path, key);
  if (data::is_pattern(path)) return;
  for (const char* ending : {".bin", ".idx"}) guard.reads(fs::path(path).replace_extension(ending).string(), key);
}

// The steps of a folder of checkpoints, or one step. Other files may lie next to steps, but none in them.
void add_steps(OutputGuard& guard, const std::string& path, const std::string& key) {
  const auto is_step = [](const fs::path& folder) { return folder.filename().string().starts_with("step-"); };
  std::error_code absent;
  if (is_step(path)) guard.reads_data(path, key);
  for (const fs::directory_entry& entry : fs::directory_iterator(path, absent))
    if (is_step(entry.path())) guard.reads_data(entry.path().string(), key);
}

bool is_trace(std::string_view beginning) { return beginning.starts_with("{\"traceEvents\":["); }
bool is_drawing(std::string_view beginning) { return beginning.starts_with("<svg "); }
bool is_costs(std::string_view beginning) { return beginning.starts_with("{\n \"unit\": \"seconds of a microbatch\""); }
bool is_rank_times(std::string_view beginning) { return beginning.starts_with("[\n  {\n    \"rank\": 0,"); }
// "step 2, data 1 x ..., microbatch 2 x accumulation 1, per rank"
bool is_profile_of_work(std::string_view beginning) {
  const std::string_view line = beginning.substr(0, beginning.find('\n'));
  return line.starts_with("step ") && line.find(", microbatch ") != std::string_view::npos && line.ends_with(", per rank");
}
bool is_start(std::string_view beginning) {
  const std::string_view line = beginning.substr(0, beginning.find('\n'));
  return line.starts_with("{\"time\":") && line.find("\"command\":") != std::string_view::npos;
}
bool is_event(std::string_view beginning) { return beginning.starts_with("{\"event\":"); }
bool is_predictions(std::string_view beginning) { return beginning.starts_with("{\"step\":"); }
bool is_config(std::string_view beginning) {
  return beginning.starts_with("{\n  \"device\": \"") && beginning.find("\"reproducible\": \"") != std::string_view::npos;
}
bool is_plan(std::string_view beginning) { return beginning.starts_with("{\n  \"mesh\": {"); }
bool is_plan_text(std::string_view beginning) { return beginning.starts_with("mesh      "); }

// Checks the folders that the config names.
class FolderChecks {
 public:
  FolderChecks(OutputGuard& guard, const Config& config) : guard_(guard), config_(config) {}

  void check_timeline() {
    const std::string& folder = config_.timeline.directory;
    check("timeline.directory", folder, {"timeline.svg"}, is_drawing);
    check("timeline.directory", folder, {"measured.json", "simulated.json"}, is_trace);
    check("timeline.directory", folder, {"costs.json"}, is_costs);
    check("timeline.directory", folder, {"ranks.json"}, is_rank_times);
  }

  // If the config of the run is in it, the run leaves it as it is (run_folder.cpp).
  void check_run_folder() {
    const std::string& folder = config_.run.directory;
    const char* const key = "run.directory";
    check(key, folder, {report::kStartsFile}, is_start);
    check(key, folder, {report::kMetricsFile, monitor::evaluation_path(report::kMetricsFile)}, monitor::is_metrics);
    check(key, folder, {report::kEventsFile}, is_event);
    check(key, folder, {report::kPredictionsFile}, is_predictions);
    check(key, folder, {report::kReportFile}, is_own_page);
    check(key, folder, {report::kPlanTextFile}, is_plan_text);
    check(key, folder, {report::kPlanFile}, is_plan);
    std::error_code absent;
    if (!fs::equivalent(config_.source, fs::path(folder) / report::kConfigFile, absent))
      check(key, folder, {report::kConfigFile}, is_config);
  }

  void check_monitors() {
    const auto folder_of = [](const MonitorConfig& to) { return (fs::path(to.output_path) / to.job_name).string(); };
    if (config_.csv_monitor.enabled)
      check("csv_monitor.output_path", folder_of(config_.csv_monitor), {"*.csv"}, monitor::is_csv_of_monitor);
    if (config_.tensorboard.enabled)  // its files have names that no file has yet
      guard_.check_names_in(folder_of(config_.tensorboard), {"events.out.tfevents.*"}, of_config("tensorboard.output_path"));
  }

  void check_checkpoints() {
    guard_.check_names_in(config_.checkpoint.directory,
                          {"step-*", "broken-*", "latest", "best", ".lock", ".origin", ".disk", ".tmp-*", ".trash-*", ".old-*"},
                          of_config("checkpoint.directory"));
  }

 private:
  std::string of_config(const char* key) const { return fmt::format("{}: {}", config_.source, key); }

  void check(const char* key, const std::string& folder, const std::vector<std::string>& names,
             bool (*is_own)(std::string_view)) {
    guard_.check_files_in(folder, names,
                          {.path = "", .key = of_config(key), .what = "a file that trivet train wrote", .is_own = is_own});
  }

  OutputGuard& guard_;
  const Config& config_;
};

bool holds_model_of_hugging_face(const std::string& folder) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  const BoundedText read = read_bounded(folder + "/config.json", kMostBytes, "a model's config");
  if (!read.problem.empty() || !json_excess(read.text, {.levels = 64}).empty()) return false;
  const auto json = nlohmann::json::parse(read.text, nullptr, false);
  return json.is_object() && (json.contains("model_type") || json.contains("architectures"));
}

bool holds_steps(const std::string& folder) {
  std::error_code absent;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, absent))
    if (entry.path().filename().string().starts_with("step-")) return true;
  return false;
}

// Returns the place that another program's file, or link, of this name leads to, such as "global_step200" in
// DeepSpeed's "latest". Empty if there is none.
std::string named_by_others(const std::string& path) {
  constexpr int64_t kMostBytes = 4096;
  std::error_code none;
  if (fs::is_symlink(path, none)) return fs::read_symlink(path, none).string();
  if (!fs::is_regular_file(path, none)) return "";
  const BoundedText read = read_bounded(path, kMostBytes, "the name of a checkpoint");
  const std::string line = read.text.substr(0, read.text.find('\n'));
  return read.problem.empty() && !checkpoint::parse_step(line) ? line : "";
}

// The lock of a run says which one holds it, in words that begin so (checkpoint_store.cpp).
bool is_lock_of_others(const std::string& path) {
  constexpr int64_t kMostBytes = 4096;
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return false;
  const BoundedText read = read_bounded(path, kMostBytes, "the holder of a lock");
  return !read.problem.empty() || !(read.text.empty() || read.text.starts_with("run "));
}

}  // namespace

void refuse_steps_among_others(const std::string& folder, const std::string& key) {
  if (folder.empty() || holds_steps(folder)) return;
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(fmt::format("{}: {} {}; name another folder", key, printable(folder), what));
  };
  if (holds_model_of_hugging_face(folder))
    refuse("is the folder of a model in Hugging Face's format (by its config.json), in which nobody would look for steps");
  if (is_lock_of_others(folder + "/.lock")) refuse("holds a file .lock of another program, which would be replaced");
  for (const std::string_view name : {checkpoint::kLatestName, checkpoint::kBestName})
    if (const std::string named = named_by_others(fmt::format("{}/{}", folder, name)); !named.empty())
      refuse(fmt::format("holds checkpoints of another program, whose \"{}\" names \"{}\" and would be replaced", name,
                         printable(named, 80)));
}

void add_inputs_of_run(OutputGuard& guard, const Config& config, const std::string& init_from) {
  guard.reads(config.source, "the config");
  add_data(guard, config.data.train, "data.train");
  for (const DataSource& source : config.data.sources) add_data(guard, source.path, "data.sources");
  add_data(guard, config.data.validation, "data.validation");
  guard.reads(config.vocabulary.tokenizer_file, "model.vocabulary");
  guard.reads(config.pipeline.schedule_file, "pipeline.schedule");
  guard.reads(config.pipeline.cost_file, "pipeline.partition");
  const std::string key = is_given(config, "model.from") ? "model.from" : "--init-from";
  guard.reads(init_from, key);
  if (!init_from.empty()) add_steps(guard, init_from, key);
}

void check_outputs(const Config& config, const TrainOptions& options, Force force) {
  OutputGuard guard(force);
  add_inputs_of_run(guard, config, initial_weights_of(config, options));
  refuse_steps_among_others(config.checkpoint.directory, config.source + ": checkpoint.directory");
  if (options.resume)
    for (const std::string& from : {config.checkpoint.directory, options.resume_directory})
      if (!from.empty()) add_steps(guard, from, "--resume");
  if (!options.metrics_file.empty())
    for (const std::string& path : {options.metrics_file, monitor::evaluation_path(options.metrics_file)})
      guard.check({.path = path,
                   .key = "--metrics",
                   .what = "metrics of trivet train",
                   .is_own = monitor::is_metrics,
                   .in_place = true});
  if (config.flops_profiler.enabled && !config.flops_profiler.output_file.empty())
    guard.check({.path = config.flops_profiler.output_file,
                 .key = config.source + ": flops_profiler.output_file",
                 .what = "a report of the flops profiler",
                 .is_own = is_profile_of_work,
                 .in_place = true});
  FolderChecks folders(guard, config);
  folders.check_monitors();
  if (config.timeline.step > 0) folders.check_timeline();
  if (!config.run.directory.empty()) folders.check_run_folder();
  if (!config.checkpoint.directory.empty()) folders.check_checkpoints();
}

}  // namespace trivet::trainer
