// trivet launch: starts the ranks of a job on this host. It takes DeepSpeed's flags, which `trivet launch --help` explains;
// docs/exit_codes.md lists the exit codes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/launch/autotuning.h"
#include "cli/launch/cores.h"
#include "cli/launch/job.h"
#include "cli/launch/rank_layout.h"
#include "cli/usage.h"
#include "core/error.h"

namespace trivet::cli {
namespace {

constexpr const char* kFooter = R"(Everything after PROGRAM belongs to the program. "trivet" as PROGRAM means this executable.

SIGTERM, SIGINT and SIGHUP are passed on to the ranks, which then have --shutdown-timeout seconds to finish a step and save; a
second signal kills them. SIGQUIT is passed on, too, but it ends trivet train at once, without a save. SIGUSR1 and SIGUSR2 are
passed on to processes that handle them. Nothing that the ranks start outlives the job or the launcher. If the reader of the
output exits (| head), the job continues without output. docs/exit_codes.md lists the exit codes.

Example:
  trivet launch --num_gpus 4 trivet train configs/gpt_char.json
)";

// DeepSpeed's flags that this version does not support. Each is refused by name, with advice.
struct UnsupportedFlag {
  const char* flag;
  const char* why;
};
constexpr UnsupportedFlag kUnsupportedFlags[] = {
    {"--launcher",
     "starting ranks on other hosts is not implemented in this version; leave the flag out: ranks start on this host"},
    {"--launcher_args", "starting ranks on other hosts is not implemented in this version"},
    {"--ssh_port", "starting ranks on other hosts is not implemented in this version"},
    {"--venv_script", "programs are not started through a shell; activate the environment before starting the launcher"},
    {"--min_elastic_nodes", "elastic training is not implemented in this version"},
    {"--max_elastic_nodes", "elastic training is not implemented in this version"},
};
constexpr UnsupportedFlag kUnsupportedSwitches[] = {
    {"--module", "PROGRAM is an executable file, not a Python module; write: python3 -m MODULE"},
    {"--force_multi", "starting ranks on other hosts is not implemented in this version"},
    {"--elastic_training", "elastic training is not implemented in this version"},
};

struct LaunchFlags {
  LaunchRequest request;
  int nodes = 1, node_rank = 0;
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

void add_flags(CLI::App& launch, LaunchFlags& flags) {
  LaunchRequest& request = flags.request;
  launch.add_option("--num_gpus,--num_accelerators", request.ranks, "ranks to start (slots; default: one per memory node)");
  launch.add_option("-H,--hostfile", request.hostfile,
                    "file with lines \"host slots=N\"; only this host is accepted in this version");
  launch.add_option("-i,--include", request.include, "slots to use: host:0,2");
  launch.add_option("-e,--exclude", request.exclude, "slots not to use: host:1");
  launch.add_option("--num_nodes", flags.nodes, "number of hosts; must be 1 in this version");
  launch.add_option("--node_rank", flags.node_rank, "rank of this host; must be 0 in this version");
  launch.add_option("--master_addr", request.master_address, "address that rank 0 listens on")->capture_default_str();
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
  launch.add_flag("-q,--quiet", request.quiet, "print errors only");
  launch.add_option("--log_level", flags.log_level, "debug, info, warning, error or critical")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "critical"}));
  launch
      .add_option("--autotuning", flags.autotuning,
                  "for PROGRAM = trivet train CONFIG; tune: find its fastest config instead of training (docs/tuning.md); run: "
                  "find it, then train with it")
      ->check(CLI::IsMember({"tune", "run"}));
  launch.add_flag("--dry-run", request.dry_run, "print what would be started");
  launch.add_flag("--json", request.json, "print the result of --dry-run as JSON");
  launch.add_flag("--no_local_rank", flags.without_effect, "accepted without effect: arguments are never added");
  launch.add_flag("--no_python", flags.without_effect, "accepted without effect: PROGRAM is always an executable");
  launch.add_flag("--no_ssh", flags.without_effect, "accepted without effect: nothing uses ssh");
  launch.add_flag("--no_ssh_check", flags.without_effect, "accepted without effect: nothing uses ssh");
}

void check(const CLI::App& launch, const LaunchFlags& flags) {
  const LaunchRequest& request = flags.request;
  if (flags.nodes != 1) {
    throw ConfigError("--num_nodes " + std::to_string(flags.nodes) +
                      ": starting ranks on other hosts is not implemented in this version; use 1");
  }
  if (flags.node_rank != 0) {
    throw ConfigError("--node_rank " + std::to_string(flags.node_rank) +
                      ": starting ranks on other hosts is not implemented in this version; use 0");
  }
  if (request.json && !request.dry_run) throw ConfigError("--json: prints the result of --dry-run; give both");
  if (request.program.empty())
    throw ConfigError("launch: no PROGRAM given; write, for example, trivet launch --num_gpus 2 trivet train gpt.json");
  if (request.program[0].starts_with("-")) throw ConfigError(with_help(launch, unknown_flag(launch, request.program[0])));
}

// The program follows the flags; a "--" may stand between them.
std::vector<std::string> program_of(const CLI::App& launch) {
  std::vector<std::string> program = launch.remaining();
  if (!program.empty() && program[0] == "--") program.erase(program.begin());
  return program;
}

// The jobs run in sequence on the same slots. The logs of tuning go into a subfolder of the folder for the logs of training.
std::vector<LaunchRequest> tuning_jobs(const LaunchFlags& flags) {
  const AutotunedPrograms programs = autotuned(flags.request.program);
  LaunchRequest tune = flags.request, train = flags.request;
  tune.program = programs.tune;
  if (!tune.log_folder.empty()) tune.log_folder += "/tuning";
  train.program = programs.train;
  return flags.autotuning == "tune" ? std::vector{tune} : std::vector{tune, train};
}

void launch_job(const CLI::App& launch, LaunchFlags& flags) {
  check(launch, flags);
  LaunchRequest& request = flags.request;
  if (flags.log_level == "error" || flags.log_level == "critical") request.quiet = true;
  if (!request.core_list.empty()) request.bind_cores = true;
  const comm::Environment environment = comm::current_environment();
  const Host host = slots_on_this_host(request);
  const auto allowed = allowed_cores();
  const auto cores = request.core_list.empty() ? allowed : parse_core_list(request.core_list, allowed);
  const std::vector<RankLayout> ranks = lay_out(request, host, cores, environment);
  const std::vector<LaunchRequest> jobs = flags.autotuning.empty() ? std::vector{request} : tuning_jobs(flags);
  if (request.dry_run) {
    if (request.json) std::fputs(layout_as_json(ranks).c_str(), stdout);
    for (const LaunchRequest& job : jobs)
      if (!request.json) std::fputs(layout_as_text(ranks, job).c_str(), stdout);
    return;
  }
  for (const LaunchRequest& job : jobs) {
    const JobOutcome outcome = run_ranks(job, ranks, environment);
    if (outcome.exit_code != 0) throw Error(static_cast<ExitCode>(outcome.exit_code), outcome.text);
  }
}

}  // namespace

void add_launch(CLI::App& program) {
  auto* launch =
      program.add_subcommand("launch", "Start the ranks of a job on this host: trivet launch [flags] PROGRAM ARGS...");
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

}  // namespace trivet::cli
