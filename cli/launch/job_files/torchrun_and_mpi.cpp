#include <fmt/format.h>

#include "cli/launch/job_files/job_facts.h"
#include "core/shell_words.h"

namespace trivet::cli {
namespace {

// The text for starters that bring no secret to other hosts.
constexpr const char* kNeedsSecret =
    ": \"${TRIVET_SECRET_FILE:?must name a file of 32 random bytes, mode 600, the same on all hosts}\"\n";

}  // namespace

std::string torchrun_file(const JobFacts& job) {
  std::string out = "#!/bin/bash\n";
  std::string command = "exec torchrun --no-python ";
  if (job.hosts == 1) {
    out += comment(job, "Start it on that host.");
    command += "--standalone ";
  } else {
    out += comment(job, "Start it on each of the hosts, with FIRST_HOST=name of one of them.") + "set -eu\n" +
           ": \"${FIRST_HOST:?must be the name of one of the hosts, the same on all}\"\n" + kNeedsSecret;
    command +=
        fmt::format("--nnodes={} --rdzv-backend=c10d --rdzv-endpoint=\"$FIRST_HOST:29400\" --rdzv-id={} ", job.hosts, job.name);
  }
  return out + command + fmt::format("--nproc-per-node={} ", job.ranks_per_host) + quoted(job.program) + "\n";
}

std::string mpi_file(const LaunchRequest& request, const JobFacts& job, const std::vector<HostRanks>& hosts) {
  std::string out = "#!/bin/bash\n" + comment(job, "Start it on the first of the hosts.");
  std::string command =
      fmt::format("exec mpirun -n {} --map-by ppr:{}:node --bind-to none ", job.hosts * job.ranks_per_host, job.ranks_per_host);
  if (job.hosts > 1) {
    const bool has_names = !request.hostfile.empty();
    out += fmt::format("set -eu\n{}export MASTER_ADDR=${{MASTER_ADDR:-{}}} MASTER_PORT=${{MASTER_PORT:-29500}}\n", kNeedsSecret,
                       has_names ? hosts[0].host.name : "$(hostname)");
    if (has_names) {
      for (const HostRanks& on : hosts) refuse_hosts_only_for_ssh("--emit mpi", {on.host}, false);
      command += "--host ";
      for (const HostRanks& on : hosts)
        command += fmt::format("{}{}:{}", on.node_rank == 0 ? "" : ",", on.host.name, job.ranks_per_host);
      command += " ";
    }
    command += "-x MASTER_ADDR -x MASTER_PORT -x TRIVET_SECRET_FILE ";
  }
  return out + command + quoted(job.program) + "\n";
}

}  // namespace trivet::cli
