// trivet report RUN...: makes a page of one run, or of several drawn over each other.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "autotune/replace_file.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/file_system.h"
#include "core/printable.h"
#include "engine/report/read_run.h"
#include "engine/report/run_page.h"

namespace trivet::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string output;
};

void run(const ReportArguments& arguments) {
  std::vector<report::RunData> runs;
  for (const std::string& path : arguments.runs) runs.push_back(report::read_run(path));
  try {
    autotune::replace_file(real_file_system(), arguments.output, report::to_page(runs));
  } catch (const FileError& error) {
    throw ConfigError(fmt::format("--output: {}; give a file in a folder that can be written to", error.what()));
  }
  std::printf("%s\n", printable(arguments.output).c_str());
}

}  // namespace

void add_report(CLI::App& program) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = program.add_subcommand("report", "Make a page with curves and figures of runs, for a browser");
  command->footer(
      "Examples:\n"
      "  trivet report runs/first                                of one run, also one that is going or was killed\n"
      "  trivet report runs/first runs/second -o compare.html    of several, drawn over each other");
  command->add_option("runs", arguments->runs, "folders that run.directory named, or files that trivet train --metrics wrote")
      ->required();
  command->add_option("-o,--output", arguments->output, "the page to write (report.html)");
  arguments->output = "report.html";
  command->callback([arguments] { run(*arguments); });
}

}  // namespace trivet::cli
