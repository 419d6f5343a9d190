#include "cli/launch/job_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/launch/job_files/job_facts.h"
#include "core/error.h"

namespace trivet::cli {
namespace {

// Names all flags that are missing.
void check_flags(const JobFileRequest& file) {
  const bool kubernetes = file.kind == JobFileKind::Kubernetes, azure = file.kind == JobFileKind::AzureMl;
  std::vector<std::string> missing;
  const auto need = [&](bool is_used, const std::string& value, const char* flag) {
    if (is_used && value.empty()) missing.emplace_back(flag);
  };
  need(kubernetes || azure, file.image, "--image, the container image that has trivet");
  need(kubernetes, file.volume,
       "--volume, the name of the persistent volume claim that holds the config, its data and its checkpoints");
  need(azure, file.compute, "--compute, the name of the compute cluster");
  if (!missing.empty()) throw ConfigError(fmt::format("--emit: give {}", fmt::join(missing, "; and ")));
}

}  // namespace

std::string job_file(const JobFileRequest& file, const LaunchRequest& request, const std::vector<HostRanks>& hosts) {
  check_flags(file);
  const JobFacts job = job_facts(file, request, hosts);
  switch (file.kind) {
    case JobFileKind::Slurm: return slurm_file(file, job);
    case JobFileKind::Kubernetes: return kubernetes_file(file, job);
    case JobFileKind::AzureMl: return azure_ml_file(file, job);
    case JobFileKind::Torchrun: return torchrun_file(job);
    case JobFileKind::Mpi: break;
  }
  return mpi_file(request, job, hosts);
}

}  // namespace trivet::cli
