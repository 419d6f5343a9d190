#include "cli/launch/job_files/job_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/launch/autotuning.h"
#include "cli/launch/train_command.h"
#include "core/error.h"
#include "core/printable.h"
#include "engine/config/load.h"
#include "engine/config/parallel_config.h"
#include "engine/mesh.h"
#include "engine/sharing.h"

namespace trivet::cli {
namespace {

constexpr size_t kLongestName = 50;                      // Kubernetes adds to it and allows 63
constexpr std::string_view kEndingOfTuning = "-tuning";  // ends the name of a job that tunes
constexpr double kMostSecondsToSave = 60000;             // Slurm takes at most 65535

std::string name_of(const std::string& config) {
  std::string name;
  for (const char c : std::filesystem::path(config).stem().string()) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_letter_or_digit = byte < 0x80 && std::isalnum(byte) != 0;
    if (is_letter_or_digit) name += static_cast<char>(std::tolower(byte));
    if (!is_letter_or_digit && !name.empty() && name.back() != '-') name += '-';
  }
  name.resize(std::min(name.size(), kLongestName));
  while (!name.empty() && name.back() == '-') name.pop_back();
  if (name.empty()) return "trivet";
  for (const char* word : {"null", "true", "false", "yes", "no", "on", "off", "y", "n"})  // mean something else in YAML
    if (name == word) return "job-" + name;
  return std::isdigit(static_cast<unsigned char>(name[0])) ? "job-" + name : name;
}

size_t ranks_of_each(const std::vector<HostRanks>& hosts) {
  for (const HostRanks& on : hosts)
    if (*std::max_element(on.host.slots.begin(), on.host.slots.end()) + 1 != static_cast<int>(on.host.slots.size()))
      throw ConfigError(fmt::format(
          "--emit: host \"{}\": a job file cannot choose the slots {}; it only has a number of ranks for each host, so "
          "give --include and --exclude hosts without slots, and the number with --num_gpus",
          on.host.name, fmt::join(on.host.slots, ",")));
  for (const HostRanks& on : hosts)
    if (on.host.slots.size() != hosts[0].host.slots.size())
      throw ConfigError(
          fmt::format("--emit: host \"{}\" has {} slots and \"{}\" has {}; a job file needs the same number for all hosts",
                      hosts[0].host.name, hosts[0].host.slots.size(), on.host.name, on.host.slots.size()));
  return hosts[0].host.slots.size();
}

// A job that the cluster has ended and starts again goes on where it was.
void resume_if_it_saves(JobFacts& job, const std::vector<std::string>& flags) {
  for (size_t i = 0; i < flags.size(); ++i) {
    const std::string& word = flags[i];
    const bool has_value = i + 1 < flags.size() && !flags[i + 1].starts_with("-");
    if (word.starts_with("--resume=") || (word == "--resume" && has_value))
      throw ConfigError(
          "--emit: --resume with a directory: the cluster could not start this job again, because it would go back to that "
          "directory; leave it out");
  }
  const auto is_resume = [](const std::string& word) { return word.starts_with("--resume"); };
  if (!job.checkpoints.empty() && std::none_of(flags.begin(), flags.end(), is_resume)) job.program.emplace_back("--resume");
}

// The same ranks tune, which saves no checkpoints. A job that the cluster starts again keeps the trials that had ended.
void tune_instead(JobFacts& job) {
  job.tunes = true;
  job.name.resize(std::min(job.name.size(), kLongestName - kEndingOfTuning.size()));
  job.name += kEndingOfTuning;
  std::erase(job.program, "--resume");
  job.program = autotuned(job.program, AfterTuning::End).tune;
  job.program.emplace_back("--resume");
  job.checkpoints.clear();
}

// The job would end at its start if its ranks could not share the work; then it would have waited in a queue for nothing.
void check_ranks(const Config& config, size_t ranks) {
  const Mesh mesh(config.parallel, static_cast<int>(ranks));
  resolve_batch(config.batch, mesh.size(batch_axes()), config.source);
  sharding_of(config, mesh);
}

std::string count_of(size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

JobFacts job_facts(const JobFileRequest& file, const LaunchRequest& request, const std::vector<HostRanks>& hosts) {
  const auto command = train_command(request.program);
  if (!command) throw ConfigError("--emit: PROGRAM must be: trivet train CONFIG, with its flags after the config");
  const Config config = load_config(command->config, command->overrides);
  if (config.device == DeviceChoice::Auto)
    throw ConfigError(
        fmt::format("{}: device: \"auto\": this host cannot tell what the cluster's hosts have; for --emit, give "
                    "\"cpu\" or \"cuda\", for example with --set device=cuda",
                    command->config));
  if (config.checkpoint.stop_seconds <= 0 || config.checkpoint.stop_seconds > kMostSecondsToSave)
    throw ConfigError(
        fmt::format("{}: checkpoint.stop_seconds {}: --emit tells the cluster how long to wait; give a number "
                    "above 0, at most {}",
                    command->config, config.checkpoint.stop_seconds, kMostSecondsToSave));
  if (!config.data.sources.empty())
    throw ConfigError(
        fmt::format("{}: data.sources: --emit knows one place of data; give data.train, for example a token file of "
                    "all sources",
                    command->config));
  JobFacts job{.name = name_of(command->config),
               .config = command->config,
               .hosts = hosts.size(),
               .ranks_per_host = ranks_of_each(hosts),
               .uses_gpus = config.device == DeviceChoice::Cuda,
               .seconds_to_save = static_cast<int>(std::ceil(config.checkpoint.stop_seconds)) + kMoreSecondsToEnd,
               .reads_images = config.model.type == model::Type::Sequential,
               .data = config.data.train,
               .validation = config.data.validation,
               .weights = config.model_from,
               .checkpoints = config.checkpoint.directory,
               .program = request.program};
  job.program[0] = "trivet";
  if (file.tunes) {
    tune_instead(job);
  } else {
    check_ranks(config, job.hosts * job.ranks_per_host);
    resume_if_it_saves(job, command->others);
  }
  return job;
}

std::string comment(const JobFacts& job, const std::string& how_to_start) {
  return fmt::format("# {}: {} with {} each.\n# {}\n", printable(job.config), count_of(job.hosts, "host"),
                     count_of(job.ranks_per_host, "rank"), how_to_start);
}

std::string yaml(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace trivet::cli
