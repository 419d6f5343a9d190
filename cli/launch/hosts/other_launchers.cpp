#include "cli/launch/hosts/other_launchers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cli/launch/hosts/exported_environment.h"
#include "cli/launch/hosts/remote_command.h"
#include "cli/launch/program.h"
#include "core/error.h"
#include "core/shell_words.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kUsualPort = 29500;

std::string own_path() { return fs::read_symlink("/proc/self/exe"); }

std::vector<std::string> names_of(const std::vector<HostRanks>& hosts) {
  std::vector<std::string> names;
  for (const HostRanks& on : hosts) names.push_back(on.host.name);
  return names;
}

// "a:2,b:2"
std::string names_with_counts(const std::vector<HostRanks>& hosts) {
  std::vector<std::string> names;
  for (const HostRanks& on : hosts) names.push_back(fmt::format("{}:{}", on.host.name, on.host.slots.size()));
  return fmt::format("{}", fmt::join(names, ","));
}

std::vector<Host> hosts_of(const std::vector<HostRanks>& ranks) {
  std::vector<Host> hosts;
  for (const HostRanks& on : ranks) hosts.push_back(on.host);
  return hosts;
}

// "a,me@b"
std::string logins_of(const std::vector<HostRanks>& hosts) {
  std::vector<std::string> logins;
  for (const HostRanks& on : hosts) logins.push_back(on.host.login());
  return fmt::format("{}", fmt::join(logins, ","));
}

size_t ranks_per_host(const std::string& flag, const std::vector<HostRanks>& hosts) {
  const size_t count = hosts[0].host.slots.size();
  for (const HostRanks& on : hosts)
    if (on.host.slots.size() != count)
      throw ConfigError(
          fmt::format("--launcher {}: host \"{}\" has {} slots and \"{}\" has {}; with this launcher all hosts must "
                      "have the same number; --launcher ssh has no such limit",
                      flag, hosts[0].host.name, count, on.host.name, on.host.slots.size()));
  return count;
}

// The first of these programs that is in PATH.
std::string first_of(const std::vector<std::string>& programs, const comm::Environment& environment) {
  for (const std::string& program : programs) {
    try {
      find_program(program, path_of(environment));
      return program;
    } catch (const ConfigError&) {
    }
  }
  throw ConfigError(fmt::format("--launcher: none of these programs is in PATH: {}", fmt::join(programs, ", ")));
}

// Where the ranks meet. Whoever starts them does not say it.
comm::Environment meeting_place(const LaunchRequest& request, const std::vector<HostRanks>& hosts) {
  const int port = request.master_port == 0 ? kUsualPort : request.master_port;
  return {{"MASTER_ADDR", request.master_address.empty() ? hosts[0].host.name : request.master_address},
          {"MASTER_PORT", std::to_string(port)}};
}

comm::Environment exports(const LaunchRequest& request, const std::vector<HostRanks>& hosts,
                          const comm::Environment& inherited) {
  comm::Environment all = exported_environment(inherited);
  for (const auto& [name, value] : meeting_place(request, hosts)) all[name] = value;
  // The file must be on every host; the secret itself is on no command line.
  if (const auto secret = inherited.find("TRIVET_SECRET_FILE"); secret != inherited.end())
    all["TRIVET_SECRET_FILE"] = secret->second;
  return all;
}

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::vector<std::string> program_of(const LaunchRequest& request) {
  std::vector<std::string> program = request.program;
  if (program[0] == "trivet") program[0] = own_path();
  return program;
}

// pdsh replaces %% by %.
std::string for_pdsh(std::string text) {
  for (size_t at = 0; (at = text.find('%', at)) != std::string::npos; at += 2) text.insert(at, "%");
  return text;
}

OtherCommand pdsh(const LaunchRequest& request, const std::vector<HostRanks>& hosts, const comm::Environment& inherited) {
  const comm::Environment meeting = meeting_place(request, hosts);
  std::vector<std::string> there{"env"};
  for (const auto& [name, value] : exports(request, hosts, inherited)) there.push_back(name + "=" + value);
  append(there, {own_path(), "launch", "--no_ssh", "--world_info", world_of(hosts_of(hosts)), "--master_addr",
                 meeting.at("MASTER_ADDR"), "--master_port", meeting.at("MASTER_PORT")});
  if (request.bind_cores) there.push_back("--bind_cores_to_rank");
  if (!request.core_list.empty()) append(there, {"--bind_core_list", request.core_list});
  if (!request.log_folder.empty()) append(there, {"--enable_each_rank_log", request.log_folder});
  if (request.save_pid) there.push_back("--save_pid");
  if (request.quiet) there.push_back("--quiet");
  append(there, {"--shutdown-timeout", std::to_string(request.shutdown_timeout_s)});
  // pdsh replaces %n by the host's place in the list.
  const std::string command =
      fmt::format("{} --node_rank %n {}", for_pdsh("cd " + quoted(fs::current_path().string()) + " && exec " + quoted(there)),
                  for_pdsh(quoted(program_of(request))));
  OtherCommand out{{"pdsh", "-S", "-R", "ssh", "-f", "1024", "-w", logins_of(hosts)}};
  append(out.words, words_of(request.launcher_arguments));
  out.words.push_back(command);
  return out;
}

OtherCommand open_mpi(const LaunchRequest& request, const std::vector<HostRanks>& hosts, const comm::Environment& inherited) {
  OtherCommand out{{first_of({"mpirun.openmpi", "mpirun"}, inherited), "-n", std::to_string(hosts[0].world_size), "--host",
                    names_with_counts(hosts)}};
  for (const auto& [name, value] : exports(request, hosts, inherited)) append(out.words, {"-x", name + "=" + value});
  append(out.words, words_of(request.launcher_arguments));
  append(out.words, program_of(request));
  return out;
}

OtherCommand mpich(const LaunchRequest& request, const std::vector<HostRanks>& hosts, const comm::Environment& inherited) {
  OtherCommand out{{first_of({"mpiexec.hydra", "mpiexec.mpich", "mpirun"}, inherited), "-hosts", names_with_counts(hosts)}};
  for (const auto& [name, value] : exports(request, hosts, inherited)) append(out.words, {"-genv", name, value});
  append(out.words, {"-np", std::to_string(hosts[0].world_size)});
  append(out.words, words_of(request.launcher_arguments));
  append(out.words, program_of(request));
  return out;
}

OtherCommand slurm(const LaunchRequest& request, const std::vector<HostRanks>& hosts, const comm::Environment& inherited) {
  OtherCommand out{{"srun"}};
  if (!request.hostfile.empty()) {
    append(out.words, {fmt::format("--nodelist={}", fmt::join(names_of(hosts), ",")), fmt::format("--nodes={}", hosts.size()),
                       fmt::format("--ntasks-per-node={}", ranks_per_host("slurm", hosts))});
  } else {
    if (request.nodes > 0) out.words.push_back(fmt::format("--nodes={}", request.nodes));
    if (request.ranks > 0) out.words.push_back(fmt::format("--ntasks-per-node={}", request.ranks));
  }
  append(out.words, {"--export=ALL", "--kill-on-bad-exit=1"});
  append(out.words, words_of(request.launcher_arguments));
  append(out.words, program_of(request));
  // Slurm says which node runs rank 0.
  out.environment = exported_environment(inherited);
  if (!request.master_address.empty()) out.environment["MASTER_ADDR"] = request.master_address;
  if (request.master_port != 0) out.environment["MASTER_PORT"] = std::to_string(request.master_port);
  return out;
}

// pdsh starts this launcher on each host, which knows these flags; the other programs start the ranks themselves.
void refuse_what_only_this_launcher_does(const std::string& flag, const LaunchRequest& request, bool starts_launchers) {
  const auto refuse = [&](bool given, const std::string& other) {
    if (given)
      throw ConfigError(
          fmt::format("{}: has no effect with --launcher {}; use --launcher ssh, or --launcher_args with what {} offers", other,
                      flag, flag));
  };
  refuse(request.ssh_port > 0, "--ssh_port");
  refuse(request.copy_program, "--copy_program");
  refuse(request.json, "--json");
  if (starts_launchers) return;
  refuse(request.bind_cores, request.core_list.empty() ? "--bind_cores_to_rank" : "--bind_core_list");
  refuse(!request.log_folder.empty(), "--enable_each_rank_log");
  refuse(request.save_pid, "--save_pid");
}

void refuse_chosen_slots(const std::string& flag, const std::vector<HostRanks>& hosts) {
  for (const HostRanks& on : hosts) {
    for (size_t i = 0; i < on.host.slots.size(); ++i) {
      if (on.host.slots[i] != static_cast<int>(i))
        throw ConfigError(fmt::format("--launcher {}: cannot choose slot {} of host \"{}\"; only --launcher ssh and pdsh can",
                                      flag, on.host.slots[i], on.host.name));
    }
  }
}

}  // namespace

OtherCommand other_command(OtherLauncher launcher, const LaunchRequest& request, const std::vector<HostRanks>& hosts,
                           const comm::Environment& inherited) {
  const std::string flag = launcher == OtherLauncher::Pdsh      ? "pdsh"
                           : launcher == OtherLauncher::OpenMpi ? "openmpi"
                           : launcher == OtherLauncher::Mpich   ? "mpich"
                                                                : "slurm";
  refuse_what_only_this_launcher_does(flag, request, launcher == OtherLauncher::Pdsh);
  if (!request.takes_allocation)
    refuse_hosts_only_for_ssh("--launcher " + flag, hosts_of(hosts), launcher == OtherLauncher::Pdsh);
  if (launcher == OtherLauncher::Pdsh) return pdsh(request, hosts, inherited);
  refuse_chosen_slots(flag, hosts);
  if (launcher == OtherLauncher::OpenMpi) return open_mpi(request, hosts, inherited);
  return launcher == OtherLauncher::Mpich ? mpich(request, hosts, inherited) : slurm(request, hosts, inherited);
}

}  // namespace trivet::cli
