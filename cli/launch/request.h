// A request to `trivet launch`: DeepSpeed's flags, and the program with its arguments.
#pragma once

#include <string>
#include <vector>

#include "cli/launch/hostfile.h"

namespace trivet::cli {

struct LaunchRequest {
  int ranks = -1;  // --num_gpus, on each host; -1: all slots
  int nodes = -1;  // --num_nodes: the first of the hostfile; -1: all
  std::string hostfile, include, exclude;
  std::string master_address;  // empty: the loopback interface on one host; an address of the first host on several
  int master_port = 0;         // 0: a free one
  bool bind_cores = false;
  std::string core_list;  // "0-3,8"; empty: all that this process may use
  std::string log_folder;
  bool save_pid = false;
  int shutdown_timeout_s = 30;  // --shutdown-timeout: from a signal to the launcher until the ranks are killed
  bool quiet = false;
  bool dry_run = false, json = false;
  // On several hosts.
  // --host-timeout: a host is lost if its agent says nothing for so long, and an agent gives up its ranks if the launcher says
  // nothing. The same time for both, so that what is lost has ended when its place is taken.
  int host_timeout_s = 6;
  int ssh_port = 0;                // 0: that of ssh's own configuration
  std::string launcher_arguments;  // --launcher_args: further words for ssh, pdsh, mpirun or srun
  bool copy_program = false;
  bool starts_one_host = false;   // --no_ssh: starts only the ranks of the host `node_rank`
  bool takes_allocation = false;  // --launcher slurm or --emit without a hostfile: somebody else chooses the hosts
  int node_rank = -1;
  // Restarts.
  int max_restarts = 0;
  int min_nodes = -1;     // hosts that a restart needs at least; -1: as many as the first start
  int restart = 0;        // the number of restarts so far
  std::string launch_id;  // the same in all starts
  // Lost hosts that the job lacks: when one of them answers again, the ranks save and end, and the job starts again with it.
  std::vector<Host> awaited_hosts = {};
  std::string world;                 // --world_info: the hosts and slots as in --include, instead of a hostfile
  std::vector<std::string> program;  // with its arguments, unchanged
};

}  // namespace trivet::cli
