// trivet train CONFIG: runs one rank of a job, or the entire job with --ranks N.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/ddp.h"
#include "cli/run_job.h"
#include "cli/standard_streams.h"
#include "cli/stop_signals.h"
#include "cli/usage.h"
#include "core/error.h"
#include "core/printable.h"
#include "engine/config/explain.h"
#include "trainer/load_with_model.h"
#include "trainer/output_checks.h"
#include "trainer/trainer.h"

namespace trivet::cli {
namespace {

struct TrainArguments {
  std::string config, deepspeed_config, resume, init_from, metrics;
  std::vector<std::string> overrides;
  int ranks = 0, serve_port = 0;
  bool resume_given = false, serve_given = false, ddp = false, force = false;
};

// The command line of this process.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

// Each rank receives the signal itself, so one line about it, from rank 0, is enough.
StopSignalOptions signal_options(const Config& config) {
  StopSignalOptions options = stop_signal_options(config.checkpoint);
  const int rank = comm::place_from_environment(comm::current_environment()).rank;
  options.log = Log(rank, rank == 0 ? LogLevel::Info : LogLevel::Error);
  return options;
}

bool is_first_rank() { return comm::place_from_environment(comm::current_environment()).rank == 0; }

Config read_config(const TrainArguments& arguments) {
  const auto load = [&](const std::vector<std::string>& overrides) {
    return trainer::load_with_model({.path = arguments.config,
                                     .overrides = overrides,
                                     .init_from = arguments.init_from,
                                     .resumes = arguments.resume_given,
                                     .resume_directory = arguments.resume,
                                     .for_run = true});
  };
  Config config = load(arguments.overrides);
  if (!arguments.ddp) return config;
  const std::vector<std::string> set = ddp_overrides(config);
  std::vector<std::string> overrides = arguments.overrides;
  overrides.insert(overrides.end(), set.begin(), set.end());
  config = load(overrides);
  if (is_first_rank()) std::printf("ddp     %s\n", describe_ddp(config, set).c_str());
  return config;
}

void run(const TrainArguments& arguments) {
  if (is_idle_task()) return;
  const Config config = read_config(arguments);
  TrainOptions options;
  options.metrics_file = arguments.metrics;
  options.resume = arguments.resume_given;
  options.resume_directory = arguments.resume;
  options.init_from = config.model_from;
  options.config_text = explain_as_json(config);
  options.command = command_line();
  options.version = kVersion;
  if (arguments.serve_given) options.serve_port = arguments.serve_port;
  StopRequest stop;
  const StopSignals signals(stop, signal_options(config));
  std::atomic<int> stopped_by = 0;
  options.stop = &stop;
  run_job(arguments.ranks, config.communication, [&](RankBody rank) {
    TrainOptions mine = options;
    mine.threads = rank.threads;
    mine.local_rank = rank.local_rank;
    if (rank.world.rank() == 0) trainer::check_outputs(config, mine, arguments.force ? Force::Yes : Force::No);
    const TrainEnd end = train(config, rank.world, mine);
    if (end.signal != 0) stopped_by = end.signal;
  });
  if (stopped_by == 0) return;
  for (int signal : {SIGHUP, SIGXCPU}) std::signal(signal, SIG_IGN);  // they may come again while the last lines are written
  throw StoppedBySignal{stopped_by};
}

}  // namespace

void add_train(CLI::App& program) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = program.add_subcommand("train", "Train the model that a config describes");
  command->footer(
      "Examples:\n"
      "  trivet train gpt.json --ranks 4                     4 ranks as threads of this process\n"
      "  trivet launch --num_gpus 4 trivet train gpt.json    4 ranks as processes\n"
      "  trivet train gpt.json --ddp --ranks 4               plain data parallelism (docs/ddp.md)\n"
      "  trivet train gpt.json --resume --set training.steps=2000\n"
      "  trivet train gpt.json --init-from gpt2              with the weights of a model in Hugging Face's format\n"
      "  trivet train gpt.json --set run.directory=runs/first --serve    with a page to watch it\n"
      "SIGTERM and SIGINT end a run after its running step, which is saved (exit code 143 or 130); a second "
      "signal ends it at once.");
  command->add_option("config,--config,--deepspeed_config", arguments->config,
                      "JSON file (docs/config.md); one that was written for DeepSpeed is accepted, too (docs/deepspeed.md)");
  command->add_option("--deepspeed", arguments->deepspeed_config, "another way to name that file")->expected(0, 1)->group("");
  command->add_option("--ranks", arguments->ranks, "run this many ranks as threads of this process")->check(from_to(1, 1024));
  command
      ->add_option("--set", arguments->overrides,
                   "key=value: replaces a key of the config, or with an object of JSON a section; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_flag("--ddp", arguments->ddp,
                    "data parallelism as PyTorch's DistributedDataParallel does it: every rank has all weights, gradients are "
                    "averaged in buckets of 25 MiB while backward runs; a config that asks for more is refused");
  command->add_option("--metrics", arguments->metrics, "write one JSON object per step to this file");
  command->add_flag(
      "--force", arguments->force,
      "replace files that Trivet did not write where --metrics and the config name them; never what the run reads");
  CLI::Option* serve = command
                           ->add_option("--serve", arguments->serve_port,
                                        "show the run at this port of 127.0.0.1 (default: a free one); the address is printed")
                           ->check(from_to(1, 65535))
                           ->expected(0, 1);
  command->add_option(
      "--init-from", arguments->init_from,
      "begin with the weights of a model in Hugging Face's format (a folder with config.json) or of another program "
      "(DeepSpeed, llama2.c, llm.c, Meta), or of a checkpoint, unless --resume finds one to continue from; keys of "
      "the section \"model\" that the config leaves out are taken from there (docs/hugging_face.md)");
  CLI::Option* resume = command
                            ->add_option("--resume", arguments->resume,
                                         "continue from the newest valid checkpoint of this directory (default: "
                                         "checkpoint.directory), or from one step, DIR/step-00000200; the run then saves to "
                                         "another directory: --set checkpoint.directory=NEW")
                            ->expected(0, 1);
  command->callback([arguments, resume, serve] {
    if (arguments->config.empty())
      arguments->config = arguments->deepspeed_config;
    else if (!arguments->deepspeed_config.empty())
      throw ConfigError(fmt::format("--deepspeed {}: the config is {}; name one", printable(arguments->deepspeed_config),
                                    printable(arguments->config)));
    if (arguments->config.empty()) throw CLI::RequiredError("config");
    arguments->serve_given = serve->count() > 0;
    arguments->resume_given = resume->count() > 0;
    print_without_waiting(Printing::Progress, [&] { run(*arguments); });
  });
}

}  // namespace trivet::cli
