// A request to `trivet launch`: those of DeepSpeed's flags that apply to one host, and the program with its arguments.
#pragma once

#include <string>
#include <vector>

namespace trivet::cli {

struct LaunchRequest {
  int ranks = -1;  // --num_gpus; -1: all slots
  std::string hostfile, include, exclude;
  std::string master_address = "127.0.0.1";
  int master_port = 0;  // 0: a free one
  bool bind_cores = false;
  std::string core_list;  // "0-3,8"; empty: all that this process may use
  std::string log_folder;
  bool save_pid = false;
  int shutdown_timeout_s = 30;  // --shutdown-timeout: from a signal to the launcher until the ranks are killed
  bool quiet = false;
  bool dry_run = false, json = false;
  std::vector<std::string> program;  // with its arguments, unchanged
};

}  // namespace trivet::cli
