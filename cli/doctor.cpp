// trivet doctor: reports what this machine, or every host of a hostfile, offers for training, and what is missing.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autotune/doctor.h"
#include "autotune/doctor_hosts.h"
#include "autotune/measured_cluster.h"
#include "cli/commands.h"
#include "cli/launch/hostfile.h"
#include "cli/run_job.h"
#include "comm/host_name.h"
#include "core/error.h"

namespace trivet::cli {
namespace {

struct DoctorArguments {
  autotune::DoctorOptions options;
  bool quick = false, json = false;
  bool cluster = false;  // print a cluster for trivet plan
  int slots = 0;         // per host, for the cluster
  std::string hostfile, launcher_arguments;
  int ssh_port = 0;
  bool copy_program = false;
  bool in_job = false;             // this is the rank of one of the hosts
  std::vector<std::string> names;  // then those of all hosts, as in the hostfile
};

std::string to_text(const std::vector<autotune::Finding>& findings) {
  std::string text;
  for (const autotune::Finding& finding : findings) {
    text += fmt::format("{:9} {:8} {}\n", finding.subject, name_of(finding.health), finding.text);
    if (!finding.advice.empty()) text += fmt::format("{:18} {}\n", "", finding.advice);
  }
  return text;
}

std::string to_json(const std::vector<autotune::Finding>& findings) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const autotune::Finding& finding : findings) {
    nlohmann::ordered_json entry{
        {"subject", finding.subject}, {"health", name_of(finding.health)}, {"text", finding.text}, {"advice", finding.advice}};
    for (const auto& [name, value] : finding.figures) entry[name] = value;
    json.push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

// The number of slots that all hosts of the file have.
int slots_of_each(const std::string& hostfile, const std::vector<Host>& hosts) {
  for (const Host& host : hosts)
    if (host.slots.size() != hosts[0].slots.size())
      throw ConfigError(
          fmt::format("doctor: --cluster: {}: {} has {} slots and {} has {}; a cluster has the same number on every host, so "
                      "examine such hosts separately",
                      hostfile, hosts[0].name, hosts[0].slots.size(), host.name, host.slots.size()));
  return static_cast<int>(hosts[0].slots.size());
}

// Starts one rank of this command on each host. The launcher takes the place of this process.
[[noreturn]] void start_on_hosts(const DoctorArguments& arguments) {
  std::vector<std::string> words{"trivet", "launch", "--hostfile", arguments.hostfile, "--num_gpus", "1"};
  if (!arguments.launcher_arguments.empty()) words.insert(words.end(), {"--launcher_args", arguments.launcher_arguments});
  if (arguments.ssh_port > 0) words.insert(words.end(), {"--ssh_port", std::to_string(arguments.ssh_port)});
  if (arguments.copy_program) words.emplace_back("--copy_program");
  words.insert(words.end(), {"trivet", "doctor", "--in-job", "--directory", arguments.options.directory});
  if (arguments.options.needs_gpu) words.emplace_back("--gpu");
  if (arguments.quick) words.emplace_back("--quick");
  if (arguments.json) words.emplace_back("--json");
  const std::vector<Host> hosts = parse_hostfile(arguments.hostfile);
  if (arguments.cluster) {
    words.emplace_back("--cluster");
    words.insert(words.end(), {"--slots", std::to_string(slots_of_each(arguments.hostfile, hosts))});
  }
  words.emplace_back("--names");
  for (const Host& host : hosts) words.push_back(host.name);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv("/proc/self/exe", pointers.data());
  throw ConfigError(fmt::format("doctor: the launcher cannot be started: {}", std::strerror(errno)));
}

void examine_hosts(const DoctorArguments& arguments) {
  std::vector<autotune::HostExamined> hosts;
  std::string text;
  run_job(0, CommunicationConfig{}, [&](RankBody rank) {
    autotune::DoctorOptions options = arguments.options;
    options.threads = rank.threads;
    options.measures = !arguments.quick;
    options.ranks = std::max(2, arguments.slots);
    comm::ProcessGroup& group = rank.world.group();
    const auto texts = autotune::gather_texts(group, autotune::encode({comm::host_name(), autotune::examine(options)}));
    autotune::NetworkMeasured network;
    if (!arguments.quick) network = autotune::measure_network(group);
    if (group.rank() != 0) return;
    for (const std::string& one : texts) hosts.push_back(autotune::decode_host(one));
    for (size_t i = 0; i < std::min(hosts.size(), arguments.names.size()); ++i) hosts[i].name = arguments.names[i];
    if (arguments.cluster)
      text = autotune::cluster_of_hosts(hosts, network, arguments.slots,
                                        fmt::format("{} host{}, measured", hosts.size(), hosts.size() == 1 ? "" : "s"));
    else
      text = arguments.json ? autotune::hosts_as_json(hosts, network) : autotune::describe_hosts(hosts, network);
  });
  std::fwrite(text.data(), 1, text.size(), stdout);
  for (const autotune::HostExamined& host : hosts)
    for (const autotune::Finding& finding : host.findings)
      if (finding.health == autotune::Health::Missing)
        throw ConfigError(fmt::format("doctor: {}: {}: {}", host.name, finding.subject, finding.text));
}

void run(DoctorArguments arguments) {
  if (arguments.cluster && arguments.hostfile.empty() && !arguments.in_job)
    throw ConfigError("doctor: --cluster is only used with --hosts; trivet bench writes a profile of this machine");
  if (!arguments.hostfile.empty()) start_on_hosts(arguments);
  if (arguments.in_job) return examine_hosts(arguments);
  if (!arguments.launcher_arguments.empty() || arguments.ssh_port > 0 || arguments.copy_program)
    throw ConfigError("doctor: --launcher_args, --ssh_port and --copy_program are only used with --hosts");
  arguments.options.threads = threads_per_rank(1);
  arguments.options.measures = !arguments.quick;
  const auto findings = autotune::examine(arguments.options);
  const std::string text = arguments.json ? to_json(findings) : to_text(findings);
  std::fwrite(text.data(), 1, text.size(), stdout);
  const auto missing = std::ranges::find(findings, autotune::Health::Missing, &autotune::Finding::health);
  if (missing != findings.end()) throw ConfigError(fmt::format("doctor: {}: {}", missing->subject, missing->text));
}

}  // namespace

void add_doctor(CLI::App& program) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* command =
      program.add_subcommand("doctor", "Measure what this machine offers for training, and say what is missing");
  command->footer(
      "Examples:\n  trivet doctor --directory /scratch\n  trivet doctor --hosts hostfile\n"
      "  trivet doctor --hosts hostfile --cluster > cluster.json\nExit code 2: something is missing.");
  command->add_option("--directory", arguments->options.directory, "where checkpoints and offloaded states would go (.)");
  command->add_flag("--gpu", arguments->options.needs_gpu, "require a GPU that works");
  CLI::Option* quick = command->add_flag("--quick", arguments->quick, "measure nothing");
  CLI::Option* json = command->add_flag("--json", arguments->json, "print JSON");
  command->add_option("--hosts", arguments->hostfile,
                      "examine all hosts of this file over ssh, and the network between them (docs/many_hosts.md)");
  command->add_option("--launcher_args", arguments->launcher_arguments, "with --hosts: further arguments for ssh");
  command->add_option("--ssh_port", arguments->ssh_port, "with --hosts: port of sshd on the other hosts");
  command->add_flag("--copy_program", arguments->copy_program,
                    "with --hosts: copy this executable to hosts that lack this build");
  command
      ->add_flag("--cluster", arguments->cluster,
                 "with --hosts: print only a cluster with what was measured, a device for each slot, for trivet plan --cluster")
      ->excludes(quick)
      ->excludes(json);
  command->add_flag("--in-job", arguments->in_job)->group("");
  command->add_option("--slots", arguments->slots)->group("");
  command->add_option("--names", arguments->names)->group("");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace trivet::cli
