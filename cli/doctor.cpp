// trivet doctor: reports what this machine offers for training, and what is missing.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autotune/doctor.h"
#include "cli/commands.h"
#include "cli/run_job.h"
#include "core/error.h"

namespace trivet::cli {
namespace {

struct DoctorArguments {
  autotune::DoctorOptions options;
  bool quick = false, json = false;
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

void run(DoctorArguments arguments) {
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
  command->footer("Example:\n  trivet doctor --directory /scratch\nExit code 2: something is missing.");
  command->add_option("--directory", arguments->options.directory, "where checkpoints and offloaded states would go (.)");
  command->add_flag("--gpu", arguments->options.needs_gpu, "require a GPU that works");
  command->add_flag("--quick", arguments->quick, "measure nothing");
  command->add_flag("--json", arguments->json, "print JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace trivet::cli
