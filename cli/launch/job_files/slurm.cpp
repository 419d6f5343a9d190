#include <fmt/format.h>

#include "cli/launch/job_files/job_facts.h"
#include "core/error.h"
#include "core/shell_words.h"

namespace trivet::cli {

std::string slurm_file(const JobFileRequest& file, const JobFacts& job) {
  std::string out =
      "#!/bin/bash\n" + comment(job, "Start it with sbatch, from a directory that all nodes share.") +
      "# Slurm gives each rank one core unless you say how many: sbatch --cpus-per-task=N, the cores of a node divided "
      "by its ranks.\n";
  const auto option = [&](const std::string& text) { out += "#SBATCH --" + text + "\n"; };
  option("job-name=" + job.name);
  option(fmt::format("nodes={}", job.hosts));
  option(fmt::format("ntasks-per-node={}", job.ranks_per_host));
  if (job.uses_gpus) option(fmt::format("gpus-per-node={}", job.ranks_per_host));
  if (file.time_limit_minutes > 0) option(fmt::format("time={}", file.time_limit_minutes));
  if (!job.checkpoints.empty() && file.time_limit_minutes > 0 && file.time_limit_minutes * 60 <= job.seconds_to_save)
    throw ConfigError(fmt::format(
        "--time_limit {}: Slurm would end the job {} s before, to let it save (checkpoint.stop_seconds), and so at its "
        "start; give more minutes, or a smaller checkpoint.stop_seconds",
        file.time_limit_minutes, job.seconds_to_save));
  // Before the time limit, so that the ranks can save; when a job is preempted, Slurm sends SIGTERM by itself.
  if (!job.checkpoints.empty()) option(fmt::format("signal=TERM@{}", job.seconds_to_save));
  option("requeue");
  option("open-mode=append");
  option("output=%x-%j.out");
  out += R"(set -eu
# Ranks of other users' jobs cannot join without this file.
export TRIVET_SECRET_FILE=$PWD/.trivet-secret-$SLURM_JOB_ID
trap 'rm -f "$TRIVET_SECRET_FILE"' EXIT
rm -f "$TRIVET_SECRET_FILE"
(umask 077 && head -c 32 /dev/urandom > "$TRIVET_SECRET_FILE")
# srun does not take this number from sbatch.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
)";
  return out + "srun --kill-on-bad-exit=1 " + quoted(job.program) + "\n";
}

}  // namespace trivet::cli
