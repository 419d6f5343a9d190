// trivet report RUN...: makes a page of one run, or of several drawn over each other. trivet report scaling RUN...: compares
// runs on different numbers of ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/usage.h"
#include "core/error.h"
#include "core/file_system.h"
#include "core/output_guard.h"
#include "core/printable.h"
#include "core/replace_file.h"
#include "report/chart_options.h"
#include "report/monitor/jsonl.h"
#include "report/read_run.h"
#include "report/run_files.h"
#include "report/run_page.h"
#include "report/scaling.h"

namespace trivet::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string output;
  bool json = false, force = false;
  std::string steps;  // empty: all
  report::ChartOptions charts;
};

// The files of a run that the page shows; a run is a folder, or the file of its metrics.
void add_run(OutputGuard& guard, const std::string& run) {
  const std::filesystem::path folder(run);
  std::error_code absent;
  if (!std::filesystem::is_directory(folder, absent)) {
    guard.reads(run, "a run");
    return guard.reads(monitor::evaluation_path(run), "a run");
  }
  for (const std::string& name :
       {std::string(report::kMetricsFile), monitor::evaluation_path(report::kMetricsFile), std::string(report::kConfigFile),
        std::string(report::kPlanTextFile), std::string(report::kPlanFile), std::string(report::kStartsFile),
        std::string(report::kEventsFile), std::string(report::kPredictionsFile), std::string(report::kTimelineDrawing),
        std::string(report::kRankTimesFile)})
    guard.reads((folder / name).string(), "a file of a run");
}

void check_report_page(const ReportArguments& arguments) {
  if (arguments.output.empty()) return;
  OutputGuard guard(arguments.force ? Force::Yes : Force::No);
  for (const std::string& run : arguments.runs) add_run(guard, run);
  guard.check({.path = arguments.output, .key = "--output", .what = "a page of trivet", .is_own = is_own_page});
}

// Returns the usual path of a page: for one run, next to its files, where the run writes it when it ends.
std::string usual_page(const std::vector<std::string>& runs) {
  if (runs.size() > 1) return report::kReportFile;
  std::error_code absent;
  const std::filesystem::path run(runs[0]);
  return ((std::filesystem::is_directory(run, absent) ? run : run.parent_path()) / report::kReportFile).string();
}

std::vector<report::RunData> read_runs(const ReportArguments& arguments) {
  std::vector<report::RunData> runs;
  for (const std::string& path : arguments.runs) runs.push_back(report::read_run(path));
  return runs;
}

void write_report_page(const std::string& path, const std::string& page) {
  try {
    replace_file(real_file_system(), path, page);
  } catch (const FileError& error) {
    throw ConfigError(fmt::format("--output: {}; give a file in a folder that can be written to", error.what()));
  }
}

void run(const ReportArguments& arguments) {
  check_report_page(arguments);
  const auto runs = read_runs(arguments);
  report::ChartOptions charts = arguments.charts;
  if (!arguments.steps.empty()) charts.steps = report::parse_step_range(arguments.steps, runs);
  write_report_page(arguments.output, report::to_page(runs, charts));
  std::printf("%s\n", printable(arguments.output).c_str());
}

void run_scaling(const ReportArguments& arguments) {
  check_report_page(arguments);
  const auto runs = read_runs(arguments);
  const auto rows = report::scaling_of(runs);
  if (!arguments.output.empty()) write_report_page(arguments.output, report::to_scaling_page(runs));
  std::printf("%s%s", arguments.json ? report::to_json(rows).c_str() : report::to_text(rows).c_str(),
              arguments.json ? "\n" : "");
}

// They would be ignored.
void refuse_words_before_scaling(const CLI::App& report) {
  for (const CLI::Option* option : report.get_options())
    if (option->count() > 0)
      throw ConfigError(fmt::format("{} is given before \"scaling\"; write it after that word", option->get_name()));
}

void add_scaling(CLI::App& report) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = report.add_subcommand("scaling", "Compare runs on different numbers of ranks: speedup and efficiency");
  command->footer(
      "Examples:\n"
      "  trivet report scaling runs/ranks1 runs/ranks2 runs/ranks4\n"
      "  trivet report scaling runs/ranks* -o scaling.html          and a page with a drawing and all curves");
  command->add_option("runs", arguments->runs, "folders that run.directory named, at least two")->required();
  command->add_option("-o,--output", arguments->output, "also write a page to this file");
  command->add_flag("--force", arguments->force,
                    "let the page replace a file that Trivet did not write, unless it is an input");
  command->add_flag("--json", arguments->json, "print JSON");
  command->callback([arguments, &report] {
    refuse_words_before_scaling(report);
    run_scaling(*arguments);
  });
}

}  // namespace

void add_report(CLI::App& program) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = program.add_subcommand("report", "Make a page with curves and figures of runs, for a browser");
  command->footer(
      "Examples:\n"
      "  trivet report runs/first                                of one run, also one that is going or was killed\n"
      "  trivet report runs/first runs/second -o compare.html    of several, drawn over each other\n"
      "  trivet report runs/first --smooth 50 --steps 1000:      means of 50 steps, from step 1000 on\n"
      "  trivet report scaling runs/ranks1 runs/ranks4           speedup and efficiency");
  command->add_option("runs", arguments->runs, "folders that run.directory named, or files that trivet train --metrics wrote");
  command->add_option("-o,--output", arguments->output,
                      "the page to write (report.html next to the files of the run, or here for several runs)");
  command->add_flag("--force", arguments->force,
                    "let the page replace a file that Trivet did not write, unless it is an input");
  command
      ->add_option("--smooth", arguments->charts.mean_of,
                   "draw loss, gradient norm and speeds as the mean of this many steps, and each step as a pale line (1)")
      ->check(from_to(1, 1'000'000'000));
  command->add_option("--steps", arguments->steps, "draw only the steps FROM:TO; either may be left out (all)");
  command->add_flag("--log", arguments->charts.logarithmic_loss, "draw the loss on a logarithmic axis");
  add_scaling(*command);
  command->callback([arguments, command] {
    if (command->got_subcommand("scaling")) return;
    if (arguments->runs.empty()) throw CLI::RequiredError("runs");
    if (arguments->output.empty()) arguments->output = usual_page(arguments->runs);
    run(*arguments);
  });
}

}  // namespace trivet::cli
