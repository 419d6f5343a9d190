// The facts from which the files of all kinds of clusters are filled in (cli/launch/job_file.h), and the text of each kind.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/launch/job_file.h"

namespace trivet::cli {

struct JobFacts {
  std::string name;  // from the config: lower-case letters, digits and hyphens
  std::string config;
  size_t hosts = 1, ranks_per_host = 1;
  bool uses_gpus = false;
  int seconds_to_save = 0;
  bool reads_images = false;
  std::string data, validation, weights, checkpoints;  // paths; empty: none
  bool tunes = false;
  std::vector<std::string> program;  // trivet train CONFIG ..., or trivet tune CONFIG ...
};

// Throws ConfigError for what no file can say.
JobFacts job_facts(const JobFileRequest& file, const LaunchRequest& request, const std::vector<HostRanks>& hosts);

// The first lines of a file, which name the config and how the job is started.
std::string comment(const JobFacts& job, const std::string& how_to_start);
// Returns a string of YAML.
std::string yaml(const std::string& text);

// A launcher waits for its ranks, and they for the file system.
inline constexpr int kMoreSecondsToEnd = 10;

std::string slurm_file(const JobFileRequest& file, const JobFacts& job);
std::string kubernetes_file(const JobFileRequest& file, const JobFacts& job);
std::string azure_ml_file(const JobFileRequest& file, const JobFacts& job);
std::string torchrun_file(const JobFacts& job);
std::string mpi_file(const LaunchRequest& request, const JobFacts& job, const std::vector<HostRanks>& hosts);

}  // namespace trivet::cli
