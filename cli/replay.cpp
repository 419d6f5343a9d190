// trivet replay CONFIG --step N: runs steps of an earlier run again and compares their bits.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/run_job.h"
#include "cli/standard_streams.h"
#include "cli/usage.h"
#include "core/printable.h"
#include "trainer/load_with_model.h"
#include "trainer/replay.h"

namespace trivet::cli {
namespace {

struct ReplayArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string init_from;
  int ranks = 0;
  ReplayOptions options;
};

void run(const ReplayArguments& arguments) {
  const Config config = trainer::load_with_model({.path = arguments.config,
                                                  .overrides = arguments.overrides,
                                                  .init_from = arguments.init_from,
                                                  .resumes = true,
                                                  .resume_directory = arguments.options.directory,
                                                  .resume_key = "--checkpoints"});
  run_job(arguments.ranks, config.communication, [&](RankBody rank) {
    ReplayOptions options = arguments.options;
    options.threads = rank.threads;
    options.local_rank = rank.local_rank;
    const std::string result = replay(config, rank.world, options);
    if (rank.world.rank() == 0) std::printf("%s\n", printable_lines(result).c_str());
  });
}

}  // namespace

void add_replay(CLI::App& program) {
  auto arguments = std::make_shared<ReplayArguments>();
  CLI::App* command =
      program.add_subcommand("replay", "Run a step of an earlier run again and compare every bit with what that run left");
  command->footer(
      "Examples:\n"
      "  trivet replay gpt.json --step 400                          against the checkpoint of step 400\n"
      "  trivet replay gpt.json --step 380 --metrics metrics.jsonl  against the losses of the run\n"
      "It starts from the newest checkpoint before the step and saves nothing. With reproducible \"layout\" the ranks and the\n"
      "layout may differ from those of the run; with \"run\" they must be the same. Exit code 12: something differs.");
  command->add_option("config", arguments->config, "JSON file (docs/config.md)")->required();
  command->add_option("--step", arguments->options.step, "the step to compare, counted from 1")
      ->required()
      ->check(from_to(1, 1'000'000'000'000));
  command->add_option("--metrics", arguments->options.metrics_file,
                      "file that trivet train --metrics wrote: compare losses, too");
  command->add_option("--checkpoints", arguments->options.directory,
                      "directory of the run's checkpoints (default: checkpoint.directory)");
  command->add_option("--init-from", arguments->init_from, "what the run began with, as of trivet train (default: model.from)");
  command->add_option("--ranks", arguments->ranks, "run this many ranks as threads of this process")->check(from_to(1, 1024));
  command
      ->add_option("--set", arguments->overrides,
                   "key=value: replaces a key of the config, or with an object of JSON a section; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->callback([arguments] { print_without_waiting(Printing::Result, [&] { run(*arguments); }); });
}

}  // namespace trivet::cli
