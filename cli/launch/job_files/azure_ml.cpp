#include <fmt/format.h>

#include <filesystem>

#include "cli/launch/job_files/job_facts.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/shell_words.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

// The variable by which Azure's ways to start ranks tell those of a host apart; TensorFlow's starts one on each host.
std::string secret_file(AzureDistribution distribution) {
  switch (distribution) {
    case AzureDistribution::Pytorch: return "/tmp/trivet-secret-$RANK";
    case AzureDistribution::Mpi: return "/tmp/trivet-secret-$OMPI_COMM_WORLD_RANK";
    case AzureDistribution::TensorFlow: break;
  }
  return "/tmp/trivet-secret";
}

// Azure replaces ${{...}}; everything else goes through a shell.
std::string azure_command(const JobFileRequest& file, const JobFacts& job) {
  const std::string secret = secret_file(file.distribution);
  std::string command =
      fmt::format("install -m 600 ${{{{inputs.secret}}}} {0} && TRIVET_SECRET_FILE={0} exec {1}", secret, quoted(job.program)) +
      " --set data.train=${{inputs.data}}";
  if (!job.validation.empty()) command += " --set data.validation=${{inputs.validation}}";
  if (!job.checkpoints.empty()) command += " --set checkpoint.directory=${{outputs.checkpoints}}";
  if (job.tunes) command += " --set autotuning.results_dir=${{outputs.results}}";
  return command;
}

// The lines that say how many ranks start where.
std::string azure_ranks(const JobFileRequest& file, const JobFacts& job) {
  std::string variables, distribution;
  switch (file.distribution) {
    case AzureDistribution::Pytorch:
      variables = "environment_variables: {LOCAL_WORLD_SIZE: " + yaml(fmt::format("{}", job.ranks_per_host)) + "}\n";
      distribution = fmt::format("{{type: pytorch, process_count_per_instance: {}}}", job.ranks_per_host);
      break;
    case AzureDistribution::Mpi:
      distribution = fmt::format("{{type: mpi, process_count_per_instance: {}}}", job.ranks_per_host);
      break;
    case AzureDistribution::TensorFlow:
      if (job.ranks_per_host != 1)
        throw ConfigError(
            fmt::format("--distribution tensorflow: Azure ML starts one worker on each host, not {}; give --num_gpus 1, or "
                        "--distribution pytorch",
                        job.ranks_per_host));
      distribution = fmt::format("{{type: tensorflow, worker_count: {}}}", job.hosts);
      break;
  }
  return fmt::format("{}compute: {}\ndistribution: {}\nresources: {{instance_count: {}}}\n", variables,
                     yaml("azureml:" + file.compute), distribution, job.hosts);
}

void check_azure_data(const JobFacts& job, const std::string& key, const std::string& path) {
  const fs::path other = fs::path(path).replace_extension(path.ends_with(".bin") ? ".idx" : ".bin");
  const bool is_half = (path.ends_with(".bin") || path.ends_with(".idx")) && fs::exists(other);
  if (is_half || path.find('*') != std::string::npos)
    throw ConfigError(
        fmt::format("{}: {}: \"{}\" is {}, but an input of Azure ML is one file or one folder; name a folder that "
                    "has nothing else",
                    job.config, key, printable(path), is_half ? "half of a pair of files" : "a pattern"));
}

// Returns the type of a path; if it does not exist yet, the type that the config's model would read.
std::string azure_type(const JobFacts& job, const std::string& path) {
  const bool is_folder = fs::exists(path) ? fs::is_directory(path) : job.reads_images;
  return is_folder ? "uri_folder" : "uri_file";
}

}  // namespace

std::string azure_ml_file(const JobFileRequest& file, const JobFacts& job) {
  std::string out = comment(job,
                            "First make the job's secret: head -c 32 /dev/urandom > trivet.secret. Then start it with "
                            "az ml job create --file.") +
                    "$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\ntype: command\n";
  const auto line = [&](const std::string& text) { out += text + "\n"; };
  line("display_name: " + job.name);
  line("experiment_name: trivet");
  line("code: .");
  line("command: " + yaml(azure_command(file, job)));
  line("environment: {image: " + yaml(file.image) + "}");
  out += azure_ranks(file, job);
  if (file.time_limit_minutes > 0) line(fmt::format("limits: {{timeout: {}}}", file.time_limit_minutes * 60));
  line("inputs:");
  check_azure_data(job, "data.train", job.data);
  check_azure_data(job, "data.validation", job.validation);
  const auto input = [&](const std::string& name, const std::string& path) {
    line(fmt::format("  {}: {{type: {}, path: {}, mode: ro_mount}}", name, azure_type(job, path), yaml(path)));
  };
  input("data", job.data);
  if (!job.validation.empty()) input("validation", job.validation);
  line("  secret: {type: uri_file, path: trivet.secret, mode: download}");
  const std::string output = job.tunes ? "results" : job.checkpoints.empty() ? "" : "checkpoints";
  if (!output.empty()) line(fmt::format("outputs:\n  {}: {{type: uri_folder, mode: rw_mount}}", output));
  return out;
}

}  // namespace trivet::cli
