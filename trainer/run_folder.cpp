#include "trainer/run_folder.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "comm/participants.h"
#include "core/bounded_file.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/replace_file.h"
#include "engine/config/json_reader.h"
#include "engine/config/refuse.h"
#include "report/event_log.h"
#include "report/monitor/jsonl.h"
#include "report/monitor/output_file.h"
#include "report/predictions_file.h"
#include "report/read_run.h"
#include "report/run_files.h"
#include "report/run_page.h"

namespace trivet::trainer {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

// The variables that Trivet and its libraries read (docs/environment.md), without those that lead to secrets.
constexpr std::array kVariables{"RANK",
                                "WORLD_SIZE",
                                "LOCAL_RANK",
                                "LOCAL_SIZE",
                                "LOCAL_WORLD_SIZE",
                                "MASTER_ADDR",
                                "MASTER_PORT",
                                "TF_CONFIG",
                                "OMPI_COMM_WORLD_RANK",
                                "OMPI_COMM_WORLD_SIZE",
                                "PMI_RANK",
                                "PMI_SIZE",
                                "SLURM_PROCID",
                                "SLURM_STEP_ID",
                                "SLURM_STEP_NUM_TASKS",
                                "SLURM_NTASKS",
                                "SLURM_JOB_ID",
                                "SLURM_STEP_NODELIST",
                                "SLURM_JOB_NODELIST",
                                "AZ_BATCH_MASTER_NODE",
                                "OMP_NUM_THREADS",
                                "OMP_WAIT_POLICY",
                                "CUDA_VISIBLE_DEVICES",
                                "CUDA_DEVICE_MAX_CONNECTIONS",
                                "CUDA_MODULE_LOADING",
                                "NCCL_DEBUG",
                                "NCCL_SOCKET_IFNAME",
                                "NCCL_ALGO",
                                "NCCL_PROTO",
                                "UCX_TLS",
                                "UCX_NET_DEVICES",
                                "TRIVET_JOB_ID",
                                "TRIVET_EPOCH",
                                "TRIVET_CUDA_MODULE",
                                "TRIVET_UCX_MODULE",
                                "TRIVET_GLOO_MODULE",
                                "TRIVET_SHARE_GPU",
                                "TRIVET_CUBLAS_TUNE"};

// Above 0 if trivet launch, torchrun or Slurm starts a job again.
constexpr std::array kRestartCounts{"TRIVET_EPOCH", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"};

std::string path_in_folder(const Run& run, const char* name) { return (fs::path(run.config.run.directory) / name).string(); }

void replace(const Run& run, const char* name, const std::string& text) {
  const std::string path = path_in_folder(run, name);
  try {
    replace_file(real_file_system(), path, text);
  } catch (const FileError& error) {
    config::refuse(run.config, "run.directory",
                   fmt::format("{} cannot be written: {}", path, std::strerror(error.error_number())));
  }
}

// For a run that was asked to resume and found no checkpoint: it begins anew, and the files of the earlier run are kept.
void put_aside(const Run& run) {
  const fs::path folder(run.config.run.directory);
  std::error_code error;
  int number = 1;
  while (fs::exists(folder / fmt::format("earlier-{}", number), error)) ++number;
  const fs::path aside = folder / fmt::format("earlier-{}", number);
  fs::create_directory(aside, error);
  for (const std::string& name :
       {std::string(report::kMetricsFile), monitor::evaluation_path(report::kMetricsFile), std::string(report::kEventsFile),
        std::string(report::kStartsFile), std::string(report::kPredictionsFile), std::string(report::kReportFile),
        std::string(report::kPlanTextFile), std::string(report::kPlanFile), std::string(report::kTimelineFolder)}) {
    std::error_code missing;
    if (!error && fs::exists(folder / name, missing)) fs::rename(folder / name, aside / name, error);
  }
  std::error_code missing;  // copied, because it may be this run's input, too
  if (!error && fs::exists(folder / report::kConfigFile, missing))
    fs::copy_file(folder / report::kConfigFile, aside / report::kConfigFile, error);
  if (error)
    config::refuse(run.config, "run.directory",
                   fmt::format("the files of an earlier run in \"{}\" cannot be moved to \"{}\": {}", folder.string(),
                               aside.string(), error.message()));
  run.log.warning(
      fmt::format("run.directory: \"{}\" holds a run of which there is no checkpoint to resume; its files are now in "
                  "\"{}\"",
                  folder.string(), aside.string()));
}

// A launcher has started the job again. Files that earlier starts left in the folder belong to the same run.
bool is_restart() {
  const comm::Environment all = comm::current_environment();
  return std::any_of(kRestartCounts.begin(), kRestartCounts.end(), [&](const char* name) {
    const auto count = all.find(name);
    return count != all.end() && !count->second.empty() && count->second != "0";
  });
}

// Returns which process writes to the folder, if another one does.
std::string other_run_in(Run& run) {
  try {
    run.folder_claim = std::make_unique<FolderClaim>(real_file_system(), run.config.run.directory);
    return run.folder_claim->other();
  } catch (const FileError&) {
    return "";  // the first file that is written says why it cannot be
  }
}

// Another run has some seconds to die, if it was killed. A job that was started again goes on although a rank of the start
// before may live on.
void claim_folder(Run& run) {
  std::string other = other_run_in(run);
  if (is_restart()) return;
  for (int tenths = 0; tenths < 50 && !other.empty(); ++tenths) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    other = other_run_in(run);
  }
  if (!other.empty())
    config::refuse(run.config, "run.directory",
                   fmt::format("\"{}\" is the folder of a run that is going on ({}); wait until that has ended, or use another "
                               "folder",
                               run.config.run.directory, printable(other)));
}

void make_folder(Run& run) {
  const std::string& folder = run.config.run.directory;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) config::refuse(run.config, "run.directory", fmt::format("\"{}\" cannot be created: {}", folder, error.message()));
  claim_folder(run);
  const auto bytes = fs::file_size(path_in_folder(run, report::kMetricsFile), error);
  if (error || bytes == 0 || is_restart()) return;
  if (!run.options.resume)
    config::refuse(
        run.config, "run.directory",
        fmt::format("\"{}\" holds an earlier run; continue it with --resume, use another folder, or remove this one", folder));
  if (run.steps_done() == 0) put_aside(run);
}

// A run may be continued with the config that it left in its folder, which is then an input.
void keep_config(const Run& run) {
  std::error_code none;
  const std::string path = path_in_folder(run, report::kConfigFile);
  if (!fs::equivalent(run.config.source, path, none)) return replace(run, report::kConfigFile, run.options.config_text);
  if (read_bounded(path, static_cast<int64_t>(config::kMaxConfigBytes), "a config").text != run.options.config_text)
    config::refuse(run.config, "run.directory",
                   fmt::format("{} is the config of this run, which would be overwritten because --set or this version changes "
                               "it; give a copy of it that is not in the folder",
                               path));
}

std::string utc(int64_t unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

OrderedJson environment() {
  OrderedJson variables = OrderedJson::object();
  const comm::Environment all = comm::current_environment();
  for (const char* name : kVariables)
    if (const auto found = all.find(name); found != all.end()) variables[name] = found->second;
  return variables;
}

OrderedJson versions(const Run& run) {
  utsname system{};
  ::uname(&system);
  return {{"trivet", run.options.version},
          {"compiler", __VERSION__},
          {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)}};
}

// Empty if it was removed.
std::string working_directory() {
  std::error_code none;
  return fs::current_path(none).string();
}

std::string start_line(const Run& run, const std::vector<std::string>& hosts) {
  const OrderedJson start{{"time", utc(system_clock().unix_seconds())},
                          {"step", run.steps_done()},
                          {"command", run.options.command},
                          {"directory", working_directory()},
                          {"environment", environment()},
                          {"versions", versions(run)},
                          {"threads_per_rank", run.options.threads},
                          {"hosts", hosts}};
  return start.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace

std::unique_ptr<monitor::Monitor> metrics_monitor(const std::string& path) {
  if (is_restart()) return std::make_unique<monitor::JsonlMonitor>(path, std::nullopt);
  return std::make_unique<monitor::JsonlMonitor>(path);
}

void open_run_folder(Run& run) {
  if (run.config.run.directory.empty()) return;
  const auto hosts = comm::over_group(run.world.group()).gather(run.world.host());
  if (!run.is_first_rank()) return;
  make_folder(run);
  keep_config(run);
  replace(run, report::kPlanTextFile, to_text(run.engine.plan()));
  replace(run, report::kPlanFile, to_json(run.engine.plan()) + "\n");
  if (run.steps_done() == 0) replace(run, report::kStartsFile, "");
  monitor::cut_incomplete_line(path_in_folder(run, report::kStartsFile));
  monitor::OutputFile(path_in_folder(run, report::kStartsFile)).write(start_line(run, hosts));
  run.monitors.add(metrics_monitor(path_in_folder(run, report::kMetricsFile)));
  run.monitors.add(std::make_unique<report::EventLog>(path_in_folder(run, report::kEventsFile)));
  run.monitors.add(std::make_unique<report::PredictionsFile>(path_in_folder(run, report::kPredictionsFile)));
}

std::string report_path(const Run& run) {
  return run.config.run.directory.empty() ? "" : path_in_folder(run, report::kReportFile);
}

void write_report(Run& run) {
  if (run.config.run.directory.empty() || !run.is_first_rank()) return;
  try {
    const report::RunData data = report::read_run(run.config.run.directory);
    replace(run, report::kReportFile, report::to_page({&data, 1}));
  } catch (const std::exception& error) {
    run.log.warning(fmt::format("the report of this run is not written: {}", error.what()));
  }
}

}  // namespace trivet::trainer
