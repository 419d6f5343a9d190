// trivet launch --emit KIND: instead of starting `trivet train CONFIG`, prints the file with which a cluster starts it.
#pragma once

#include <string>
#include <vector>

#include "cli/launch/rank_layout.h"

namespace trivet::cli {

enum class JobFileKind { Slurm, Kubernetes, AzureMl, Torchrun, Mpi };

// The way in which Azure ML starts the ranks of a job, in its words.
enum class AzureDistribution { Pytorch, Mpi, TensorFlow };

struct JobFileRequest {
  JobFileKind kind = JobFileKind::Slurm;
  std::string image;    // container image, for Kubernetes and Azure ML
  std::string compute;  // Azure ML's name of the cluster
  AzureDistribution distribution = AzureDistribution::Pytorch;
  std::string volume;          // the claim of the Kubernetes volume with the config and everything that it names
  int time_limit_minutes = 0;  // 0: none
  bool tunes = false;          // the job finds the fastest config (trivet tune) instead of training
};

// The text of the file, for as many hosts and ranks per host as `hosts` has. Reads the config for its device, its files and its
// time to save. Throws ConfigError for another program than `trivet train CONFIG`, for hosts that differ in their number of
// ranks, for a missing image, compute or volume, and for several ranks on a host of a TensorFlow job.
std::string job_file(const JobFileRequest& file, const LaunchRequest& request, const std::vector<HostRanks>& hosts);

}  // namespace trivet::cli
