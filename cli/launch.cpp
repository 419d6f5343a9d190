// trivet launch: starts the ranks of a job, on this host or on several. It takes DeepSpeed's flags, which `trivet launch
// --help` explains; docs/exit_codes.md lists the exit codes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <system_error>

#include "cli/commands.h"
#include "cli/launch/autotuning.h"
#include "cli/launch/guardian.h"
#include "cli/launch/hosts/agent.h"
#include "cli/launch/hosts/exported_environment.h"
#include "cli/launch/hosts/hosts_job.h"
#include "cli/launch/hosts/other_launchers.h"
#include "cli/launch/job.h"
#include "cli/launch/job_file.h"
#include "cli/launch/job_outcome.h"
#include "cli/launch/output.h"
#include "cli/launch/program.h"
#include "cli/launch/rank_layout.h"
#include "cli/launch/restarts.h"
#include "cli/launch/train_command.h"
#include "cli/usage.h"
#include "comm/secret.h"
#include "comm/socket.h"
#include "core/error.h"
#include "core/log.h"
#include "core/named_files.h"
#include "core/printable.h"
#include "core/shell_words.h"

namespace trivet::cli {
namespace {

constexpr const char* kFooter = R"(Everything after PROGRAM belongs to the program. "trivet" as PROGRAM means this executable.

SIGTERM, SIGINT and SIGHUP are passed on to the ranks, which then have --shutdown-timeout seconds to finish a step and save; a
second signal kills them. SIGQUIT is passed on, too, but it ends trivet train at once, without a save. SIGUSR1 and SIGUSR2 are
passed on to processes that handle them. Nothing that the ranks start outlives the job or the launcher. If the reader of the
output exits (| head), the job continues without output. docs/exit_codes.md lists the exit codes.

Examples:
  trivet launch --num_gpus 4 trivet train configs/gpt_char.json
  trivet launch --num_gpus 4 configs/gpt_char.json                                    the same
  trivet launch --emit slurm --num_nodes 2 --num_gpus 4 configs/gpt_char.json > job.sh
)";

constexpr const char* kLoopback = "127.0.0.1";
constexpr std::chrono::seconds kJoinDeadline{30};

// DeepSpeed's flags that this version does not support. Each is refused by name, with advice.
struct UnsupportedFlag {
  const char* flag;
  const char* why;
};
constexpr UnsupportedFlag kUnsupportedFlags[] = {
    {"--venv_script", "programs are not started through a shell; activate the environment before starting the launcher"},
    {"--max_elastic_nodes", "give --num_nodes, the number of hosts to use; further hosts of the hostfile are spares"},
};
constexpr UnsupportedFlag kUnsupportedSwitches[] = {
    {"--module", "PROGRAM is an executable file, not a Python module; write: python3 -m MODULE"},
    {"--elastic_training", "give --max_restarts, and --min_nodes, the hosts with which a restart is content"},
};

const std::map<std::string, OtherLauncher> kOtherLaunchers{{"pdsh", OtherLauncher::Pdsh},
                                                           {"openmpi", OtherLauncher::OpenMpi},
                                                           {"mpich", OtherLauncher::Mpich},
                                                           {"slurm", OtherLauncher::Slurm}};

const std::map<std::string, JobFileKind> kJobFiles{{"slurm", JobFileKind::Slurm},
                                                   {"kubernetes", JobFileKind::Kubernetes},
                                                   {"azureml", JobFileKind::AzureMl},
                                                   {"torchrun", JobFileKind::Torchrun},
                                                   {"mpi", JobFileKind::Mpi}};

const std::map<std::string, AzureDistribution> kDistributions{
    {"pytorch", AzureDistribution::Pytorch}, {"mpi", AzureDistribution::Mpi}, {"tensorflow", AzureDistribution::TensorFlow}};

struct LaunchFlags {
  LaunchRequest request;
  std::string emit;  // kind of the job file; empty: none
  JobFileRequest job_file;
  std::string distribution = "pytorch";
  std::string launcher;      // empty: ssh, if there are other hosts
  bool force_multi = false;  // an agent even if this is the only host
  std::string log_level = "info";
  std::string autotuning;       // "tune" or "run"; empty: start the program unchanged
  bool without_effect = false;  // set by flags that DeepSpeed needs and Trivet does not
};

void add_unsupported(CLI::App& launch) {
  const auto refuse = [](const UnsupportedFlag& entry) { throw ConfigError(std::string(entry.flag) + ": " + entry.why); };
  for (const UnsupportedFlag& entry : kUnsupportedFlags) {
    launch.add_option_function<std::string>(entry.flag, [&entry, refuse](const std::string&) { refuse(entry); })->group("");
  }
  for (const UnsupportedFlag& entry : kUnsupportedSwitches) {
    launch.add_flag_callback(entry.flag, [&entry, refuse] { refuse(entry); })->group("");
  }
}

void add_job_file_flags(CLI::App& launch, LaunchFlags& flags) {
  launch
      .add_option("--emit", flags.emit,
                  "print a job file for --num_nodes hosts with --num_gpus ranks each instead of starting them: slurm, "
                  "kubernetes (k8s), azureml, torchrun or mpi (docs/many_hosts.md)")
      ->check(CLI::IsMember({"slurm", "kubernetes", "azureml", "torchrun", "mpi"}))
      ->transform([](const std::string& kind) { return kind == "k8s" ? "kubernetes" : kind; });
  launch.add_option("--image", flags.job_file.image, "with --emit: the container image (kubernetes, azureml)");
  launch.add_option("--compute", flags.job_file.compute, "with --emit: the name of the cluster (azureml)");
  launch
      .add_option("--distribution", flags.distribution,
                  "with --emit: what starts the ranks, pytorch, mpi or tensorflow (azureml)")
      ->check(CLI::IsMember({"pytorch", "mpi", "tensorflow"}))
      ->capture_default_str();
  launch.add_option("--volume", flags.job_file.volume,
                    "with --emit: the volume claim with the config and all that it names (kubernetes)");
  launch.add_option("--time_limit", flags.job_file.time_limit_minutes, "with --emit: minutes after which the job is ended")
      ->check(from_to(1, 1000000));
}

void add_flags(CLI::App& launch, LaunchFlags& flags) {
  LaunchRequest& request = flags.request;
  launch.add_option("-n,--num_gpus,--num_accelerators,--nproc_per_node,--nproc-per-node", request.ranks,
                    "ranks to start on each host (slots; default: all of the hostfile, else one per GPU or, on a host without "
                    "GPUs, one per memory node or as many as --include names)");
  launch.add_option("-H,--hostfile", request.hostfile,
                    "file with lines \"host slots=N\" (default: /job/hostfile, if it exists)");
  launch.add_option("-i,--include", request.include, "slots to use: host:0,2");
  launch.add_option("-e,--exclude", request.exclude, "slots not to use: host:1");
  launch.add_option("--num_nodes,--nnodes", request.nodes, "number of hosts: the first of the hostfile (default: all)");
  launch
      .add_option("--launcher", flags.launcher,
                  "what reaches other hosts: ssh (default), pdsh, openmpi, mpich or slurm (docs/many_hosts.md)")
      ->check(CLI::IsMember({"ssh", "pdsh", "openmpi", "mpich", "slurm"}));
  launch.add_option("--launcher_args", request.launcher_arguments, "further arguments for that program");
  launch.add_option("--ssh_port", request.ssh_port, "port of sshd on the other hosts")->check(from_to(1, 65535));
  launch.add_flag("--copy_program", request.copy_program,
                  "with ssh: copy this executable and its modules to hosts that lack this build, into ~/.cache/trivet");
  launch.add_flag("--force_multi", flags.force_multi, "start even a single host through an agent, as in jobs on several hosts");
  launch.add_flag("--no_ssh", request.starts_one_host,
                  "start only the ranks of the host --node_rank: the same command is started on every host by other means");
  launch.add_option("--node_rank", request.node_rank, "with --no_ssh: which host of the job this is, from 0");
  launch.add_option("--world_info", request.world, "with --no_ssh: all hosts and slots, host:0,1@host:0,1")->group("");
  launch.add_option(
      "--master_addr", request.master_address,
      "address that rank 0 listens on (default: 127.0.0.1; on several hosts, that by which the first was reached)");
  launch.add_option("--master_port", request.master_port, "port that rank 0 listens on; 0: a free one")
      ->check(from_to(0, 65535))
      ->capture_default_str();
  launch.add_flag("--bind_cores_to_rank", request.bind_cores, "bind each rank to cores of its own");
  launch.add_option("--bind_core_list", request.core_list, "bind the ranks to these cores, as in 0-3,8");
  launch.add_option("--enable_each_rank_log", request.log_folder,
                    "write stdout and stderr of rank N to DIR/rank_N.out and .err");
  launch.add_flag("--save_pid", request.save_pid,
                  "keep the ranks' pids in a file while they run: in $XDG_RUNTIME_DIR, else in trivet-UID in $TMPDIR or /tmp");
  launch
      .add_option("--shutdown-timeout,--shutdown_timeout", request.shutdown_timeout_s,
                  "seconds in which the ranks may finish a step and save after a signal to the launcher; then they are killed")
      ->check(from_to(0, 86400))
      ->capture_default_str();
  launch
      .add_option("--host-timeout,--host_timeout", request.host_timeout_s,
                  "with ssh: seconds after which a host is lost if nothing is heard from it; its ranks are ended then")
      ->check(from_to(3, 86400))
      ->capture_default_str();
  launch.add_flag("-q,--quiet", request.quiet,
                  "print only what the ranks print, and errors: what ended the job, and output or pids that were lost");
  launch.add_option("--log_level", flags.log_level, "debug, info, warning, error or critical")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "critical"}));
  launch
      .add_option("--autotuning", flags.autotuning,
                  "for PROGRAM = trivet train CONFIG; tune: find its fastest config instead of training (docs/tuning.md); run: "
                  "find it, then train with it")
      ->check(CLI::IsMember({"tune", "run"}));
  launch
      .add_option("--max_restarts", request.max_restarts,
                  "how often a job that lost ranks or hosts starts again from its newest checkpoint (docs/many_hosts.md)")
      ->check(from_to(0, 1000000))
      ->capture_default_str();
  launch
      .add_option("--min_nodes,--min_elastic_nodes", request.min_nodes,
                  "hosts with which a restart is content (default: as many as at first)")
      ->check(from_to(1, 1000000));
  add_job_file_flags(launch, flags);
  launch.add_flag("--dry-run", request.dry_run, "print what would be started");
  launch.add_flag("--json", request.json, "print the result of --dry-run as JSON");
  launch.add_flag("--no_local_rank", flags.without_effect, "accepted without effect: arguments are never added");
  launch.add_flag("--no_python", flags.without_effect, "accepted without effect: PROGRAM is always an executable");
  launch.add_flag("--no_ssh_check", flags.without_effect,
                  "accepted without effect: hosts are checked without extra connections");
}

void check(const CLI::App& launch, const LaunchFlags& flags) {
  const LaunchRequest& request = flags.request;
  if (request.node_rank < -1)
    throw ConfigError(fmt::format("--node_rank {}: must be from 0 to the number of hosts less 1", request.node_rank));
  if (request.node_rank >= 0 && !request.starts_one_host)
    throw ConfigError(
        fmt::format("--node_rank {}: is only used with --no_ssh; without it the launcher starts the ranks of all hosts",
                    request.node_rank));
  if (request.starts_one_host && !flags.launcher.empty())
    throw ConfigError(fmt::format("--launcher {} and --no_ssh exclude each other; give one of them", flags.launcher));
  if (request.max_restarts > 0 && (request.starts_one_host || kOtherLaunchers.contains(flags.launcher)))
    throw ConfigError("--max_restarts: only works where this launcher starts all ranks: on one host, or with --launcher ssh");
  if (request.min_nodes > 0 && request.max_restarts == 0) throw ConfigError("--min_nodes: is only used with --max_restarts");
  if (request.json && !request.dry_run) throw ConfigError("--json: prints the result of --dry-run; give both");
  if (!request.master_address.empty() && !can_name_host(request.master_address))
    throw ConfigError(
        fmt::format("--master_addr \"{}\": is not the name or the address of a host; name the host alone, and its "
                    "port with --master_port",
                    printable(request.master_address)));
  if (request.program.empty())
    throw ConfigError("launch: no PROGRAM given; write, for example, trivet launch --num_gpus 2 trivet train gpt.json");
  if (request.program[0].starts_with("--deepspeed") || request.program[0].starts_with("--config"))
    throw ConfigError(
        fmt::format("launch: {} belongs to the program; write, for example, trivet launch --num_gpus 2 trivet "
                    "train {} ds_config.json",
                    printable(request.program[0]), printable(request.program[0].substr(0, request.program[0].find('=')))));
  if (request.program[0].starts_with("-")) throw ConfigError(with_help(launch, unknown_flag(launch, request.program[0])));
}

// The program follows the flags. A config alone means trivet train.
std::vector<std::string> program_of(const CLI::App& launch) {
  std::vector<std::string> program = launch.remaining();
  if (!program.empty() && program[0].ends_with(".json")) program.insert(program.begin(), {"trivet", "train"});
  return program;
}

// A job file says how many ranks start on how many hosts; flags that say how this launcher starts them have no place in it.
void check_flags_of_job_file(const CLI::App& launch, const LaunchFlags& flags) {
  const std::map<std::string, std::vector<std::string>> kinds_of{{"--image", {"kubernetes", "azureml"}},
                                                                 {"--compute", {"azureml"}},
                                                                 {"--distribution", {"azureml"}},
                                                                 {"--volume", {"kubernetes"}},
                                                                 {"--time_limit", {"slurm", "kubernetes", "azureml"}}};
  const std::vector<std::string> always{"--emit",    "--num_gpus", "--num_nodes", "--hostfile",
                                        "--include", "--exclude",  "--autotuning"};
  const auto is_among = [](const std::vector<std::string>& list, const std::string& one) {
    return std::find(list.begin(), list.end(), one) != list.end();
  };
  for (const CLI::Option* option : launch.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = "--" + option->get_lnames()[0];
    const auto kinds = kinds_of.find(name);
    if (flags.emit.empty() && kinds != kinds_of.end()) throw ConfigError(name + ": is only used with --emit");
    if (flags.emit.empty() || is_among(always, name)) continue;
    if (kinds == kinds_of.end()) throw ConfigError(fmt::format("{}: has no effect in a job file (--emit); leave it out", name));
    if (!is_among(kinds->second, flags.emit))
      throw ConfigError(fmt::format("{}: is not used in a job file for {}; leave it out", name, flags.emit));
  }
  if (!flags.emit.empty() && flags.request.ranks < 0 && flags.request.hostfile.empty())
    throw ConfigError("--emit: give --num_gpus, the number of ranks on each host, or a hostfile");
  if (!flags.emit.empty() && flags.autotuning == "run")
    throw ConfigError(
        "--autotuning run: a job file tunes or trains; give --autotuning tune, and train with the config that it finds");
}

// The jobs run in sequence on the same slots. The logs of tuning go into a subfolder of the folder for the logs of training.
std::vector<LaunchRequest> tuning_jobs(const LaunchFlags& flags) {
  const bool only_tunes = flags.autotuning == "tune";
  const AutotunedPrograms programs = autotuned(flags.request.program, only_tunes ? AfterTuning::End : AfterTuning::Train);
  LaunchRequest tune = flags.request, train = flags.request;
  tune.program = programs.tune;
  if (!tune.log_folder.empty()) tune.log_folder += "/tuning";
  train.program = programs.train;
  return only_tunes ? std::vector{tune} : std::vector{tune, train};
}

JobOutcome run_here(const LaunchRequest& request, const HostRanks& on, const comm::Environment& environment) {
  const std::string job_id = comm::hexadecimal(comm::random_bytes(8));
  const std::vector<RankLayout> ranks = lay_out_here(request, on, environment);
  return run_ranks({.request = request, .ranks = ranks, .inherited = environment, .job_id = job_id, .meet = [&] {
                      return make_meeting(job_id, request.master_address, request.master_port);
                    }});
}

// The ranks' environment says what makes them one job with those on the other hosts: a secret, and perhaps an id.
JobOutcome run_one_of_many(const LaunchRequest& request, const HostRanks& on, const comm::Environment& environment) {
  const std::vector<RankLayout> ranks = lay_out_here(request, on, environment);
  return run_ranks({.request = request, .ranks = ranks, .inherited = environment, .job_id = {}, .meet = [&] {
                      Meeting meeting{.address = request.master_address, .port = request.master_port};
                      if (on.first_rank != 0) return meeting;
                      comm::wait_for_name(meeting.address, {std::chrono::steady_clock::now() + kJoinDeadline});
                      meeting.listener = comm::listen_on(meeting.address, meeting.port);
                      meeting.port = comm::port_of(meeting.listener);
                      return meeting;
                    }});
}

const HostRanks& host_of_this_launcher(const LaunchRequest& request, const std::vector<HostRanks>& hosts) {
  const int node = std::max(0, request.node_rank);
  if (request.node_rank < 0 && hosts.size() > 1)
    throw ConfigError(fmt::format("--no_ssh: give --node_rank, from 0 to {}, which says which of the {} hosts this is",
                                  hosts.size() - 1, hosts.size()));
  if (node >= static_cast<int>(hosts.size()))
    throw ConfigError(fmt::format("--node_rank {}: must be from 0 to {} with --no_ssh and {} hosts", request.node_rank,
                                  hosts.size() - 1, hosts.size()));
  if (hosts.size() > 1 && (request.master_address.empty() || request.master_port == 0))
    throw ConfigError(
        "--no_ssh: give --master_addr and --master_port, the same on all hosts; nobody else tells them where rank 0 is");
  return hosts[node];
}

// The other launcher takes the place of this process, and so does its exit code.
[[noreturn]] void become(const OtherCommand& command) {
  for (const auto& [name, value] : command.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> words = command.words;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execvp(pointers[0], pointers.data());
  throw ConfigError(fmt::format("--launcher: {}: {}", words[0], std::strerror(errno)));
}

enum class Way {
  Here,           // all ranks are on this host
  OneOfMany,      // --no_ssh: those on this host
  Agents,         // over ssh
  OtherLauncher,  // --launcher pdsh, openmpi, mpich, slurm
};

Way way_of(const LaunchFlags& flags, const std::vector<HostRanks>& hosts) {
  if (kOtherLaunchers.contains(flags.launcher)) return Way::OtherLauncher;
  if (flags.request.starts_one_host) return Way::OneOfMany;
  return hosts.size() == 1 && is_this_host(hosts[0].host.name) && !flags.force_multi ? Way::Here : Way::Agents;
}

// Checks the program as the ranks of this host would when they start.
void check_program_here(const LaunchFlags& flags, const std::vector<HostRanks>& hosts, const comm::Environment& environment) {
  const bool runs_here = flags.request.starts_one_host ||
                         std::ranges::any_of(hosts, [](const HostRanks& on) { return is_this_host(on.host.name); });
  if (!runs_here) return;
  find_program(flags.request.program[0], path_of(environment));
  check_config_of(flags.request.program);
}

// Hosts whose agents have commands that differ by the name of the host only.
struct AgentsAlike {
  Host first;
  bool is_here;
  int others = 0;
};

std::vector<AgentsAlike> agents_of(const std::vector<HostRanks>& hosts) {
  std::vector<AgentsAlike> agents;
  for (const HostRanks& on : hosts) {
    const bool is_here = is_this_host(on.host.name);
    const auto same = std::ranges::find_if(
        agents, [&](const AgentsAlike& one) { return one.is_here == is_here && one.first.user == on.host.user; });
    if (same == agents.end())
      agents.push_back({on.host, is_here});
    else
      ++same->others;
  }
  return agents;
}

void print_agents(const LaunchRequest& request, const std::vector<HostRanks>& hosts) {
  for (const AgentsAlike& agents : agents_of(hosts)) {
    const std::string more = agents.others == 0 ? ""
                                                : fmt::format(" (and on {} more host{}, with the name of each)", agents.others,
                                                              agents.others == 1 ? "" : "s");
    std::printf("agent on %s%s: %s\n", agents.first.name.c_str(), more.c_str(),
                quoted(agent_command(request, agents.first)).c_str());
  }
}

void print_dry_run(const LaunchFlags& flags, Way way, const std::vector<LaunchRequest>& jobs,
                   const std::vector<HostRanks>& hosts, const comm::Environment& environment) {
  if (way == Way::OtherLauncher) {
    for (const LaunchRequest& job : jobs)
      std::printf("%s\n", quoted(other_command(kOtherLaunchers.at(flags.launcher), job, hosts, environment).words).c_str());
    return;
  }
  check_program_here(flags, hosts, environment);
  const LaunchRequest& first = jobs[0];
  const comm::Environment exported = way == Way::Agents ? exported_environment(environment) : comm::Environment();
  std::vector<RankLayout> ranks;
  if (way == Way::OneOfMany) {
    ranks = lay_out_here(first, host_of_this_launcher(first, hosts), environment);
  } else {
    for (const HostRanks& on : hosts) {
      // Only the host itself knows its cores, and which GPUs its environment shows.
      comm::Environment there_set = environment;
      if (!is_this_host(on.host.name)) there_set.erase("CUDA_VISIBLE_DEVICES");
      for (const auto& [name, value] : exported) there_set[name] = value;
      const auto there = way == Way::Here ? lay_out_here(first, on, environment) : lay_out(first, on, {}, there_set);
      ranks.insert(ranks.end(), there.begin(), there.end());
    }
  }
  if (first.json) std::fputs(layout_as_json(ranks).c_str(), stdout);
  if (first.json) return;
  for (const LaunchRequest& job : jobs) std::fputs(layout_as_text(ranks, job).c_str(), stdout);
  if (way != Way::Agents) return;
  print_agents(first, hosts);
  std::vector<std::string> names;  // their values may be secrets
  for (const auto& [name, value] : exported) names.push_back(name);
  if (!names.empty())
    std::printf("variables that ranks get from here: %s\n", fmt::format("{}", fmt::join(names, ", ")).c_str());
}

JobOutcome run(const LaunchFlags& flags, Way way, const LaunchRequest& job, const std::vector<HostRanks>& hosts,
               const comm::Environment& environment) {
  switch (way) {
    case Way::Here: return run_here(job, hosts[0], environment);
    case Way::OneOfMany: return run_one_of_many(job, host_of_this_launcher(job, hosts), environment);
    case Way::Agents: return run_on_hosts(job, hosts, environment);
    case Way::OtherLauncher: break;
  }
  become(other_command(kOtherLaunchers.at(flags.launcher), job, hosts, environment));
}

// In the end `start` is the last one.
JobOutcome run_with_restarts(const LaunchFlags& flags, Way way, JobStart& start, const comm::Environment& environment) {
  std::optional<SignalsBetweenJobs> signals;
  if (start.request.max_restarts > 0) signals.emplace();
  for (int quick_failures = 0;;) {
    const auto began = std::chrono::steady_clock::now();
    JobOutcome outcome = run(flags, way, start.request, start.hosts, environment);
    if (outcome.exit_code == 0 || start.request.max_restarts == 0) return outcome;
    const NextStart next = start_again(start, outcome);
    if (!next.start) {
      if (!outcome.ended_by_signal) outcome.text += "; no restart: " + next.why_not;
      return outcome;
    }
    if (!start.request.quiet) print_error_in_time(fmt::format("trivet {}; {}\n", outcome.text, describe(*next.start, outcome)));
    quick_failures = quick_failures_after(quick_failures, outcome, std::chrono::steady_clock::now() - began);
    if (const auto signal = signals->pause(pause_before_start(quick_failures), [&](int warning) {
          if (!start.request.quiet)
            print_error_in_time(
                fmt::format("trivet launch: signal {} came between two starts, when there was no rank to pass it on to\n",
                            name_of_signal(warning)));
        }))
      return {.exit_code = 128 + *signal,
              .text = fmt::format("launch: ended by signal {} before the job started again", name_of_signal(*signal)),
              .ended_by_signal = true};
    start = *next.start;
  }
}

// Lists files that this launcher reads, which the outputs of its ranks must not replace.
std::string files_that_are_read(const LaunchRequest& request, const comm::Environment& environment) {
  std::vector<NamedFile> files;
  if (const auto outer = environment.find(kLauncherInputs); outer != environment.end()) files = named_files(outer->second);
  if (!request.hostfile.empty()) files.push_back({"--hostfile", request.hostfile});
  for (const std::string& path : places_of_environment_files(environment)) files.push_back({"the environment file", path});
  if (request.program[0].find('/') != std::string::npos) files.push_back({"the program", request.program[0]});
  std::erase_if(files, [](const NamedFile& file) {
    std::error_code absent;
    return !std::filesystem::is_regular_file(file.path, absent);
  });
  return list_of_named_files(files);
}

void print_job_file(const LaunchFlags& flags, const std::vector<HostRanks>& hosts) {
  JobFileRequest file = flags.job_file;
  file.kind = kJobFiles.at(flags.emit);
  file.distribution = kDistributions.at(flags.distribution);
  file.tunes = flags.autotuning == "tune";
  std::fputs(job_file(file, flags.request, hosts).c_str(), stdout);
}

void note_flags_of_other_hosts(const CLI::App& launch) {
  std::vector<std::string> given;
  for (const char* flag : {"--launcher", "--launcher_args", "--ssh_port", "--copy_program", "--host-timeout"})
    if (launch.count(flag) > 0) given.emplace_back(flag);
  if (!given.empty()) Log().info(fmt::format("no effect, because all ranks are on this host: {}", fmt::join(given, ", ")));
}

// Such a file gives variables to ranks that an agent or another launcher starts. One in the home directory is meant for those
// jobs; one in the working directory, or one that a variable names, is meant for this job.
void note_unread_environment_files(const comm::Environment& environment, Way way) {
  const auto named = environment.find("DS_ENV_FILE");
  const bool is_named = named != environment.end() && !named->second.empty();
  std::vector<std::string> places = places_of_environment_files(environment);
  std::error_code ignored;
  if (places.size() > 1 && (!is_named || std::filesystem::equivalent(places.front(), places.back(), ignored)))
    places.erase(places.begin());
  for (const std::string& path : places) {
    if (!std::filesystem::exists(path, ignored)) continue;
    Log().info(fmt::format("{}: is not read {}; the ranks have the variables of this command{}", printable(path, 400),
                           way == Way::Here ? "because all ranks are on this host" : "with --no_ssh",
                           way == Way::Here ? " (--force_multi reads the file)" : ""));
  }
}

void launch_job(const CLI::App& launch, LaunchFlags& flags) {
  check(launch, flags);
  check_flags_of_job_file(launch, flags);
  LaunchRequest& request = flags.request;
  if (flags.log_level == "error" || flags.log_level == "critical") request.quiet = true;
  if (!request.core_list.empty()) request.bind_cores = true;
  comm::Environment environment = comm::current_environment();
  if (const std::string read = files_that_are_read(request, environment); !read.empty()) environment[kLauncherInputs] = read;
  request.launch_id = comm::hexadecimal(comm::random_bytes(8));
  request.takes_allocation = (flags.launcher == "slurm" || !flags.emit.empty()) && request.hostfile.empty();
  const std::vector<Host> candidates = candidate_hosts(request);
  const std::vector<HostRanks> hosts = choose_hosts(candidates, request.nodes, request);
  if (!flags.emit.empty()) return print_job_file(flags, hosts);
  check_min_nodes(request, static_cast<int>(hosts.size()));
  const Way way = way_of(flags, hosts);
  if (way == Way::Here && !request.quiet) note_flags_of_other_hosts(launch);
  const bool is_last_launcher = way == Way::Here || (way == Way::OneOfMany && request.world.empty());
  if (is_last_launcher && !request.quiet) note_unread_environment_files(environment, way);
  if (request.master_address.empty() && hosts.size() == 1 && (way == Way::Here || way == Way::OneOfMany))
    request.master_address = kLoopback;
  const std::vector<LaunchRequest> jobs = flags.autotuning.empty() ? std::vector{request} : tuning_jobs(flags);
  if (way == Way::OtherLauncher && jobs.size() > 1)
    throw ConfigError(fmt::format("--autotuning run and --launcher {}: tune first (--autotuning tune), then start the training",
                                  flags.launcher));
  if (request.dry_run) return print_dry_run(flags, way, jobs, hosts, environment);
  std::vector<std::string> absent;
  for (const LaunchRequest& job : jobs) {
    JobStart start = first_start(job, candidates, absent);
    const JobOutcome outcome = run_with_restarts(flags, way, start, environment);
    absent = start.absent;
    if (outcome.exit_code != 0) throw Error(static_cast<ExitCode>(outcome.exit_code), outcome.text);
  }
}

}  // namespace

void add_launch(CLI::App& program) {
  auto* launch = program.add_subcommand("launch", "Start the ranks of a job: trivet launch [flags] PROGRAM ARGS...");
  launch->footer(kFooter);
  launch->prefix_command();
  auto flags = std::make_shared<LaunchFlags>();
  add_flags(*launch, *flags);
  add_unsupported(*launch);
  launch->callback([launch, flags] {
    flags->request.program = program_of(*launch);
    launch_job(*launch, *flags);
  });
}

void add_launch_agent(CLI::App& program) {
  auto* agent = program.add_subcommand("launch-agent", "Start and watch the ranks of one host, for trivet launch on another");
  agent->group("");  // not for people
  agent->callback(run_agent);
}

}  // namespace trivet::cli
