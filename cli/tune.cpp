// trivet tune CONFIG: finds the fastest config for the available ranks by short measured trials.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autotune/tune/tune.h"
#include "cli/commands.h"
#include "cli/config_model.h"
#include "cli/number_range.h"
#include "cli/run_job.h"
#include "cli/standard_streams.h"
#include "cli/usage.h"
#include "core/bounded_file.h"
#include "core/error.h"
#include "core/output_guard.h"
#include "core/shell_words.h"
#include "engine/config/deepspeed.h"
#include "engine/config/json_reader.h"
#include "engine/config/load.h"
#include "trainer/initial_weights.h"
#include "trainer/load_with_model.h"
#include "trainer/output_checks.h"

namespace trivet::cli {
namespace {

struct TuneArguments {
  std::string config, cluster, profile, init_from;
  std::vector<std::string> overrides;
  int ranks = 0;
  std::optional<double> seconds;  // none: the default of TuneOptions
  bool resume = false;
};

// --set, and the keys of the model that only --init-from gives. The best config then has them, too.
std::vector<std::string> all_overrides(const TuneArguments& arguments) {
  std::vector<std::string> overrides = arguments.overrides;
  std::string from = arguments.init_from, key_of_it = "--init-from";
  if (from.empty()) {
    from = model_from_in(read_config_text(arguments.config), arguments.config, overrides);
    key_of_it = "model.from";
  }
  if (from.empty()) return overrides;
  const Config given = load_config(arguments.config, arguments.overrides);
  for (const std::string& key : trainer::model_keys_of(from, key_of_it))
    if (!is_given(given, key.substr(0, key.find('=')))) overrides.push_back(key);
  return overrides;
}

autotune::ConfigDocument read_document(const TuneArguments& arguments) {
  const std::vector<std::string> overrides = all_overrides(arguments);
  const Config config = trainer::load_with_model({arguments.config, arguments.overrides, arguments.init_from});
  if (comm::place_from_environment(comm::current_environment()).rank == 0) tell_keys_not_given(config);
  if (config.elasticity.enabled)
    throw ConfigError(
        arguments.config +
        ": elasticity.enabled: true is not accepted by trivet tune, which chooses the batch itself; set it to false");
  const BoundedText read = read_bounded(arguments.config, config::kMaxConfigBytes, "a config");
  return {read.text, arguments.config, overrides};
}

// Checks files that trivet tune replaces or removes in its folders: the results, and the trials of an earlier tuning.
void check_results(const TuneArguments& arguments, const Config& config) {
  OutputGuard guard;
  trainer::add_inputs_of_run(guard, config, arguments.init_from.empty() ? config.model_from : arguments.init_from);
  guard.reads(arguments.cluster, "--cluster");
  guard.reads(arguments.profile, "--profile");
  const std::string& results = config.autotuning.results_dir;
  const auto check = [&](const char* key, const std::string& folder, const std::vector<std::string>& names,
                         bool (*is_own)(std::string_view)) {
    const std::string whole_key = fmt::format("{}: autotuning.{}", arguments.config, key);
    guard.check_not_input_folder(folder, whole_key);
    guard.check_files_in(
        folder, names,
        {.path = "", .key = whole_key, .what = "a result of trivet tune", .is_own = is_own, .group = "autotuning"});
  };
  const auto any = [](std::string_view) { return true; };
  const auto is_report = [](std::string_view beginning) {
    return is_own_page(beginning) || beginning.find("<title>trivet tune</title>") != std::string_view::npos;
  };
  // Results have no beginning of their own, but a page or trials next to them.
  std::error_code absent;
  bool has_results = std::filesystem::exists(results + "/report.html", absent);
  for (const auto& trial : std::filesystem::directory_iterator(results, absent)) {
    if (!std::filesystem::exists(trial.path() / "exp.json", absent)) continue;
    has_results = true;  // trials of other programs are refused when tuning begins
    check("results_dir", trial.path().string(), {"exp.json", "ds_config.json", "metrics.json", "stderr.log"}, any);
  }
  check("results_dir", results, {"report.html"}, is_report);
  check("results_dir", results, {"summary.txt", "ds_config_optimal.json", "cmd_optimal.txt"}, has_results ? +any : nullptr);
  check("exps_dir", config.autotuning.exps_dir, {"*.json"}, any);
}

// The command that trains with `config` on the same number of ranks.
std::string train_command(const std::string& config, int ranks, int world_size) {
  if (ranks > 0) return fmt::format("trivet train {} --ranks {}", config, ranks);
  return world_size == 1 ? "trivet train " + config
                         : fmt::format("trivet launch --num_gpus {} trivet train {}", world_size, config);
}

void run(const TuneArguments& arguments) {
  if (is_idle_task()) return;
  const autotune::ConfigDocument document = read_document(arguments);
  const Config config = document.config();
  if (arguments.seconds && config.autotuning.tuner_type != TunerType::ModelBased)
    throw ConfigError(fmt::format(
        "--seconds: sets how long autotuning.tuner_type \"model_based\" measures, but this config has \"{}\"; leave it out",
        name_of(config.autotuning.tuner_type)));
  if (comm::place_from_environment(comm::current_environment()).rank == 0) check_results(arguments, config);
  const model::Model model = model_of(config);
  const std::string& from = arguments.init_from.empty() ? config.model_from : arguments.init_from;
  if (!from.empty()) trainer::check_initial_weights(from, config, *model.description);
  run_job(arguments.ranks, config.communication, [&](RankBody rank) {
    const std::string optimal = autotune::optimal_config(config.autotuning);
    autotune::TuneOptions options{.threads = rank.threads,
                                  .local_rank = rank.local_rank,
                                  .cluster = arguments.cluster,
                                  .profile = arguments.profile,
                                  .resume = arguments.resume};
    if (arguments.seconds) options.measuring_seconds = *arguments.seconds;
    options.command = train_command(quoted(optimal), arguments.ranks, rank.world.size());
    if (!arguments.init_from.empty()) options.command += " --init-from " + quoted(arguments.init_from);
    options.report = [](const std::string& line) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    };
    const autotune::TuneResult result = autotune::tune(document, *model.description, rank.world, options);
    if (rank.world.rank() == 0)
      fmt::print("best  {}, {:.2f} ms a step{}, of {} trials; ended: {}\n{}      {}\n", result.best, result.seconds * 1e3,
                 result.spread.empty() ? "" : " (" + result.spread + ")", result.trials, result.ended,
                 result.ties.empty() ? "" : "as good: " + result.ties + "\n", options.command);
  });
}

}  // namespace

void add_tune(CLI::App& program) {
  auto arguments = std::make_shared<TuneArguments>();
  CLI::App* command =
      program.add_subcommand("tune", "Find the fastest config for these ranks by short trials (docs/tuning.md)");
  command->footer(
      "Examples:\n"
      "  trivet tune gpt.json --ranks 4                     4 ranks as threads of this process\n"
      "  trivet launch --num_gpus 4 trivet tune gpt.json    4 ranks as processes\n"
      "  trivet launch --autotuning run --num_gpus 4 trivet train gpt.json\n"
      "  trivet tune gpt.json --set autotuning.tuner_type=model_based --set autotuning.fast=false --resume");
  command->add_option("config", arguments->config, "JSON file; its section autotuning sets the options (docs/config.md)")
      ->required();
  command->add_option("--ranks", arguments->ranks, "run this many ranks as threads of this process")->check(from_to(1, 1024));
  command
      ->add_option("--set", arguments->overrides,
                   "key=value: replaces a key of the config, or with an object of JSON a section; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option(
      "--init-from", arguments->init_from,
      "take the keys of the section \"model\" that the config leaves out from this model or checkpoint, as trivet "
      "train does; the trials do not read its weights");
  CLI::Option* cluster = command->add_option("--cluster", arguments->cluster,
                                             fmt::format("machines to predict for: {} or a JSON file (these ranks, measured)",
                                                         fmt::join(autotune::cluster_names(), ", ")));
  CLI::Option* profile =
      command->add_option("--profile", arguments->profile, "predict for these ranks from this file, which trivet bench wrote")
          ->excludes(cluster);
  command
      ->add_option("--seconds", arguments->seconds,
                   "approximate time for which model_based measures kernels and communication if neither is given (10)")
      ->check(number_from_to(0, 86400))
      ->excludes(cluster)
      ->excludes(profile);
  command->add_flag("--resume", arguments->resume, "continue after the finished trials, as with autotuning.overwrite false");
  command->callback([arguments] { print_without_waiting(Printing::Result, [&] { run(*arguments); }); });
}

}  // namespace trivet::cli
