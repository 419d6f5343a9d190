#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/launch/job_files/job_facts.h"
#include "cli/launch/restarts.h"
#include "comm/secret.h"
#include "core/log.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

// Where pods see the claim of --volume, and start.
constexpr const char* kFolderOfPods = "/work";

bool is_outside_volume(const std::string& path) {
  const fs::path seen = (fs::path(kFolderOfPods) / path).lexically_normal();
  return !path.empty() && !(seen.string() + "/").starts_with(std::string(kFolderOfPods) + "/");
}

// They may be in the image, but what is saved there is gone with the pod.
void warn_of_paths_outside_volume(const JobFacts& job) {
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
std::vector<std::string> command_of_pod(const JobFacts& job) {
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

}  // namespace

std::string kubernetes_file(const JobFileRequest& file, const JobFacts& job) {
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

}  // namespace trivet::cli
