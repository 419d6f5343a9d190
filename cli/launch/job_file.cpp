#include "cli/launch/job_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/launch/autotuning.h"
#include "cli/launch/restarts.h"
#include "cli/launch/train_command.h"
#include "comm/secret.h"
#include "core/error.h"
#include "core/log.h"
#include "core/printable.h"
#include "core/shell_words.h"
#include "engine/config/load.h"
#include "engine/config/parallel_config.h"
#include "engine/mesh.h"
#include "engine/sharing.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 50;                      // Kubernetes adds to it and allows 63
constexpr std::string_view kEndingOfTuning = "-tuning";  // ends the name of a job that tunes
// A launcher waits for its ranks, and they for the file system.
constexpr int kMoreSecondsToEnd = 10;
constexpr double kMostSecondsToSave = 60000;  // Slurm takes at most 65535

// Facts from which all kinds of files are filled in.
struct Job {
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

std::string name_of(const std::string& config) {
  std::string name;
  for (const char c : fs::path(config).stem().string()) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_letter_or_digit = byte < 0x80 && std::isalnum(byte) != 0;
    if (is_letter_or_digit) name += static_cast<char>(std::tolower(byte));
    if (!is_letter_or_digit && !name.empty() && name.back() != '-') name += '-';
  }
  name.resize(std::min(name.size(), kLongestName));
  while (!name.empty() && name.back() == '-') name.pop_back();
  if (name.empty()) return "trivet";
  for (const char* word : {"null", "true", "false", "yes", "no", "on", "off", "y", "n"})  // mean something else in YAML
    if (name == word) return "job-" + name;
  return std::isdigit(static_cast<unsigned char>(name[0])) ? "job-" + name : name;
}

size_t ranks_of_each(const std::vector<HostRanks>& hosts) {
  for (const HostRanks& on : hosts)
    if (*std::max_element(on.host.slots.begin(), on.host.slots.end()) + 1 != static_cast<int>(on.host.slots.size()))
      throw ConfigError(fmt::format(
          "--emit: host \"{}\": a job file cannot choose the slots {}; it only has a number of ranks for each host, so "
          "give --include and --exclude hosts without slots, and the number with --num_gpus",
          on.host.name, fmt::join(on.host.slots, ",")));
  for (const HostRanks& on : hosts)
    if (on.host.slots.size() != hosts[0].host.slots.size())
      throw ConfigError(
          fmt::format("--emit: host \"{}\" has {} slots and \"{}\" has {}; a job file needs the same number for all hosts",
                      hosts[0].host.name, hosts[0].host.slots.size(), on.host.name, on.host.slots.size()));
  return hosts[0].host.slots.size();
}

// A job that the cluster has ended and starts again goes on where it was.
void resume_if_it_saves(Job& job, const std::vector<std::string>& flags) {
  for (size_t i = 0; i < flags.size(); ++i) {
    const std::string& word = flags[i];
    const bool has_value = i + 1 < flags.size() && !flags[i + 1].starts_with("-");
    if (word.starts_with("--resume=") || (word == "--resume" && has_value))
      throw ConfigError(
          "--emit: --resume with a directory: the cluster could not start this job again, because it would go back to that "
          "directory; leave it out");
  }
  const auto is_resume = [](const std::string& word) { return word.starts_with("--resume"); };
  if (!job.checkpoints.empty() && std::none_of(flags.begin(), flags.end(), is_resume)) job.program.emplace_back("--resume");
}

// The same ranks tune, which saves no checkpoints. A job that the cluster starts again keeps the trials that had ended.
void tune_instead(Job& job) {
  job.tunes = true;
  job.name.resize(std::min(job.name.size(), kLongestName - kEndingOfTuning.size()));
  job.name += kEndingOfTuning;
  std::erase(job.program, "--resume");
  job.program = autotuned(job.program, AfterTuning::End).tune;
  job.program.emplace_back("--resume");
  job.checkpoints.clear();
}

// The job would end at its start if its ranks could not share the work; then it would have waited in a queue for nothing.
void check_ranks(const Config& config, size_t ranks) {
  const Mesh mesh(config.parallel, static_cast<int>(ranks));
  resolve_batch(config.batch, mesh.size(batch_axes()), config.source);
  sharding_of(config, mesh);
}

Job job_of(const JobFileRequest& file, const LaunchRequest& request, const std::vector<HostRanks>& hosts) {
  const auto command = train_command(request.program);
  if (!command) throw ConfigError("--emit: PROGRAM must be: trivet train CONFIG, with its flags after the config");
  const Config config = load_config(command->config, command->overrides);
  if (config.device == DeviceChoice::Auto)
    throw ConfigError(
        fmt::format("{}: device: \"auto\": this host cannot tell what the cluster's hosts have; for --emit, give "
                    "\"cpu\" or \"cuda\", for example with --set device=cuda",
                    command->config));
  if (config.checkpoint.stop_seconds <= 0 || config.checkpoint.stop_seconds > kMostSecondsToSave)
    throw ConfigError(
        fmt::format("{}: checkpoint.stop_seconds {}: --emit tells the cluster how long to wait; give a number "
                    "above 0, at most {}",
                    command->config, config.checkpoint.stop_seconds, kMostSecondsToSave));
  if (!config.data.sources.empty())
    throw ConfigError(
        fmt::format("{}: data.sources: --emit knows one place of data; give data.train, for example a token file of "
                    "all sources",
                    command->config));
  Job job{.name = name_of(command->config),
          .config = command->config,
          .hosts = hosts.size(),
          .ranks_per_host = ranks_of_each(hosts),
          .uses_gpus = config.device == DeviceChoice::Cuda,
          .seconds_to_save = static_cast<int>(std::ceil(config.checkpoint.stop_seconds)) + kMoreSecondsToEnd,
          .reads_images = config.model.type == model::Type::Sequential,
          .data = config.data.train,
          .validation = config.data.validation,
          .weights = config.model_from,
          .checkpoints = config.checkpoint.directory,
          .program = request.program};
  job.program[0] = "trivet";
  if (file.tunes) {
    tune_instead(job);
  } else {
    check_ranks(config, job.hosts * job.ranks_per_host);
    resume_if_it_saves(job, command->others);
  }
  return job;
}

// Where pods see the claim of --volume, and start.
constexpr const char* kFolderOfPods = "/work";

bool is_outside_volume(const std::string& path) {
  const fs::path seen = (fs::path(kFolderOfPods) / path).lexically_normal();
  return !path.empty() && !(seen.string() + "/").starts_with(std::string(kFolderOfPods) + "/");
}

// They may be in the image, but what is saved there is gone with the pod.
void warn_of_paths_outside_volume(const Job& job) {
  const std::vector<std::pair<const char*, std::string>> paths{{"the config", job.config},
                                                               {"data.train", job.data},
                                                               {"data.validation", job.validation},
                                                               {"model.from", job.weights},
                                                               {"checkpoint.directory", job.checkpoints}};
  for (const auto& [key, path] : paths)
    if (is_outside_volume(path))
      Log().warning(
          fmt::format("--emit kubernetes: {}: {} is not in the claim of --volume, which pods see as {} and start in; "
                      "give a path in it, relative to that folder",
                      key, path, kFolderOfPods));
}

std::string count_of(size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string comment(const Job& job, const std::string& how_to_start) {
  return fmt::format("# {}: {} with {} each.\n# {}\n", printable(job.config), count_of(job.hosts, "host"),
                     count_of(job.ranks_per_host, "rank"), how_to_start);
}

// Returns a string of YAML, which takes those of JSON.
std::string yaml(const std::string& text) { return nlohmann::json(text).dump(); }

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

std::string slurm(const JobFileRequest& file, const Job& job) {
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

// Pods are started again, and the job continues from its checkpoint, unless the failure would only happen again.
constexpr const char* kKubernetes = R"(apiVersion: v1
kind: Secret
metadata: {{name: {name}}}
stringData: {{secret: "{secret}"}}
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{job-name: {name}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  completionMode: Indexed
  completions: {hosts}
  parallelism: {hosts}
  backoffLimit: {retries}
{limit}  podFailurePolicy:
    rules:
    - action: Ignore
      onPodConditions: [{{type: DisruptionTarget, status: "True"}}]
    - action: FailJob
      onExitCodes: {{operator: In, values: [{codes}]}}
  template:
    spec:
      subdomain: {name}
      restartPolicy: Never
      terminationGracePeriodSeconds: {seconds}
      containers:
      - name: trivet
        image: {image}
        workingDir: {folder}
        command: {command}
        env:
        - name: HOST_OF_JOB
          valueFrom: {{fieldRef: {{fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}}}
        - {{name: TRIVET_SECRET_FILE, value: /etc/trivet/secret}}
{resources}        volumeMounts:
        - {{name: work, mountPath: {folder}}}
        - {{name: secret, mountPath: /etc/trivet, readOnly: true}}
        - {{name: memory, mountPath: /dev/shm}}
      volumes:
      - name: work
        persistentVolumeClaim: {{claimName: {volume}}}
      - name: secret
        secret: {{secretName: {name}, defaultMode: 0400}}
      - name: memory
        emptyDir: {{medium: Memory}}
)";
constexpr size_t kRetriesOfAHost = 10;

// The command of each pod: what starts the ranks of its host.
std::vector<std::string> command_of_pod(const Job& job) {
  const auto number = [](size_t value) { return std::to_string(value); };
  std::vector<std::string> command{"trivet", "launch", "--no_ssh"};
  command.insert(command.end(), {"--num_nodes", number(job.hosts), "--num_gpus", number(job.ranks_per_host)});
  command.insert(command.end(), {"--node_rank", "$(HOST_OF_JOB)"});
  command.insert(command.end(), {"--master_addr", job.name + "-0." + job.name, "--master_port", "29500"});
  command.insert(command.end(), {"--shutdown-timeout", std::to_string(job.seconds_to_save)});
  for (std::string word : job.program) {
    for (size_t at = 0; (at = word.find('$', at)) != std::string::npos; at += 2) word.insert(at, "$");  // $$ becomes $
    command.push_back(word);
  }
  return command;
}

std::string kubernetes(const JobFileRequest& file, const Job& job) {
  using fmt::arg;
  warn_of_paths_outside_volume(job);
  std::vector<int> codes;
  for (const ExitCode code : kWouldFailAgain) codes.push_back(static_cast<int>(code));
  std::string limit, resources;
  if (file.time_limit_minutes > 0) limit = fmt::format("  activeDeadlineSeconds: {}\n", file.time_limit_minutes * 60);
  if (job.uses_gpus) resources = fmt::format("        resources: {{limits: {{nvidia.com/gpu: {}}}}}\n", job.ranks_per_host);
  return comment(job, "Start it with kubectl apply -f. Who can read this file can join the job.") +
         fmt::format(kKubernetes, arg("name", job.name), arg("hosts", job.hosts),
                     arg("secret", comm::hexadecimal(comm::random_bytes(32))), arg("retries", kRetriesOfAHost * job.hosts),
                     arg("codes", fmt::join(codes, ", ")), arg("limit", limit),
                     arg("seconds", job.seconds_to_save + kMoreSecondsToEnd), arg("image", yaml(file.image)),
                     arg("command", nlohmann::json(command_of_pod(job)).dump()), arg("resources", resources),
                     arg("folder", kFolderOfPods), arg("volume", yaml(file.volume)));
}

// The variable by which Azure's ways to start ranks tell those of a host apart; TensorFlow's starts one on each host.
std::string secret_file(AzureDistribution distribution) {
  switch (distribution) {
    case AzureDistribution::Pytorch: return "/tmp/trivet-secret-$RANK";
    case AzureDistribution::Mpi: return "/tmp/trivet-secret-$OMPI_COMM_WORLD_RANK";
    case AzureDistribution::TensorFlow: break;
  }
  return "/tmp/trivet-secret";
}

// Azure replaces ${{...}}; everything else goes through a shell.
std::string azure_command(const JobFileRequest& file, const Job& job) {
  const std::string secret = secret_file(file.distribution);
  std::string command =
      fmt::format("install -m 600 ${{{{inputs.secret}}}} {0} && TRIVET_SECRET_FILE={0} exec {1}", secret, quoted(job.program)) +
      " --set data.train=${{inputs.data}}";
  if (!job.validation.empty()) command += " --set data.validation=${{inputs.validation}}";
  if (!job.checkpoints.empty()) command += " --set checkpoint.directory=${{outputs.checkpoints}}";
  if (job.tunes) command += " --set autotuning.results_dir=${{outputs.results}}";
  return command;
}

// The lines that say how many ranks start where.
std::string azure_ranks(const JobFileRequest& file, const Job& job) {
  std::string variables, distribution;
  switch (file.distribution) {
    case AzureDistribution::Pytorch:
      variables = "environment_variables: {LOCAL_WORLD_SIZE: " + yaml(fmt::format("{}", job.ranks_per_host)) + "}\n";
      distribution = fmt::format("{{type: pytorch, process_count_per_instance: {}}}", job.ranks_per_host);
      break;
    case AzureDistribution::Mpi:
      distribution = fmt::format("{{type: mpi, process_count_per_instance: {}}}", job.ranks_per_host);
      break;
    case AzureDistribution::TensorFlow:
      if (job.ranks_per_host != 1)
        throw ConfigError(
            fmt::format("--distribution tensorflow: Azure ML starts one worker on each host, not {}; give --num_gpus 1, or "
                        "--distribution pytorch",
                        job.ranks_per_host));
      distribution = fmt::format("{{type: tensorflow, worker_count: {}}}", job.hosts);
      break;
  }
  return fmt::format("{}compute: {}\ndistribution: {}\nresources: {{instance_count: {}}}\n", variables,
                     yaml("azureml:" + file.compute), distribution, job.hosts);
}

void check_azure_data(const Job& job, const std::string& key, const std::string& path) {
  const fs::path other = fs::path(path).replace_extension(path.ends_with(".bin") ? ".idx" : ".bin");
  const bool is_half = (path.ends_with(".bin") || path.ends_with(".idx")) && fs::exists(other);
  if (is_half || path.find('*') != std::string::npos)
    throw ConfigError(
        fmt::format("{}: {}: \"{}\" is {}, but an input of Azure ML is one file or one folder; name a folder that "
                    "has nothing else",
                    job.config, key, printable(path), is_half ? "half of a pair of files" : "a pattern"));
}

// Returns the type of a path; if it does not exist yet, the type that the config's model would read.
std::string azure_type(const Job& job, const std::string& path) {
  const bool is_folder = fs::exists(path) ? fs::is_directory(path) : job.reads_images;
  return is_folder ? "uri_folder" : "uri_file";
}

std::string azure_ml(const JobFileRequest& file, const Job& job) {
  std::string out = comment(job,
                            "First make the job's secret: head -c 32 /dev/urandom > trivet.secret. Then start it with "
                            "az ml job create --file.") +
                    "$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\ntype: command\n";
  const auto line = [&](const std::string& text) { out += text + "\n"; };
  line("display_name: " + job.name);
  line("experiment_name: trivet");
  line("code: .");
  line("command: " + yaml(azure_command(file, job)));
  line("environment: {image: " + yaml(file.image) + "}");
  out += azure_ranks(file, job);
  if (file.time_limit_minutes > 0) line(fmt::format("limits: {{timeout: {}}}", file.time_limit_minutes * 60));
  line("inputs:");
  check_azure_data(job, "data.train", job.data);
  check_azure_data(job, "data.validation", job.validation);
  const auto input = [&](const std::string& name, const std::string& path) {
    line(fmt::format("  {}: {{type: {}, path: {}, mode: ro_mount}}", name, azure_type(job, path), yaml(path)));
  };
  input("data", job.data);
  if (!job.validation.empty()) input("validation", job.validation);
  line("  secret: {type: uri_file, path: trivet.secret, mode: download}");
  const std::string output = job.tunes ? "results" : job.checkpoints.empty() ? "" : "checkpoints";
  if (!output.empty()) line(fmt::format("outputs:\n  {}: {{type: uri_folder, mode: rw_mount}}", output));
  return out;
}

// The text for starters that bring no secret to other hosts.
constexpr const char* kNeedsSecret =
    ": \"${TRIVET_SECRET_FILE:?must name a file of 32 random bytes, mode 600, the same on all hosts}\"\n";

std::string torchrun(const Job& job) {
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

std::string mpi(const LaunchRequest& request, const Job& job, const std::vector<HostRanks>& hosts) {
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

}  // namespace

std::string job_file(const JobFileRequest& file, const LaunchRequest& request, const std::vector<HostRanks>& hosts) {
  check_flags(file);
  const Job job = job_of(file, request, hosts);
  switch (file.kind) {
    case JobFileKind::Slurm: return slurm(file, job);
    case JobFileKind::Kubernetes: return kubernetes(file, job);
    case JobFileKind::AzureMl: return azure_ml(file, job);
    case JobFileKind::Torchrun: return torchrun(job);
    case JobFileKind::Mpi: break;
  }
  return mpi(request, job, hosts);
}

}  // namespace trivet::cli
