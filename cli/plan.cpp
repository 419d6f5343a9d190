// trivet plan CONFIG: prints what a run will do, without running it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "autotune/measured_prediction.h"
#include "autotune/plan_page.h"
#include "autotune/replace_file.h"
#include "cli/commands.h"
#include "cli/config_model.h"
#include "cli/usage.h"
#include "core/error.h"
#include "core/file_system.h"
#include "core/output_guard.h"
#include "engine/config/deepspeed.h"
#include "engine/config/load.h"
#include "engine/config/suggest.h"
#include "engine/make_plan.h"
#include "engine/trainer/load_with_model.h"
#include "engine/trainer/output_checks.h"

namespace trivet::cli {
namespace {

// Needed because every range of CLI11 accepts NaN.
const CLI::Validator price_of_a_device(
    [](const std::string& text) {
      double price = 0;
      const bool number = CLI::detail::lexical_cast(text, price);
      return number && std::isfinite(price) && price > 0 && price < 1e12 ? "" : fmt::format("{} is not a price above 0", text);
    },
    "PRICE", "price");

struct PlanArguments {
  std::string config, init_from;
  std::vector<std::string> overrides;
  int world_size = 1;
  bool json = false, search = false, verify = false;
  std::string cluster;
  int64_t top = 10;
  double price = 0;     // 0: the cluster's
  std::string html;     // empty: no page
  bool force = false;   // the page replaces any file
  std::string profile;  // empty: no prediction for this machine
};

autotune::Cluster cluster_of(const PlanArguments& arguments) {
  autotune::Cluster cluster = autotune::find_cluster(arguments.cluster);
  if (arguments.price > 0) cluster.price_per_device_hour = arguments.price;
  return cluster;
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void write_page(const std::string& path, const autotune::PlanPage& page) {
  try {
    autotune::replace_file(real_file_system(), path, to_html(page));
  } catch (const FileError& error) {
    throw ConfigError(fmt::format("--html: {}; give a file in a folder that can be written to", error.what()));
  }
}

// Searches all layouts of the config's model and train_batch_size; the layout that the config itself gives is ignored.
void search(const PlanArguments& arguments, const Config& config, const model::Model& model) {
  if (arguments.cluster.empty())
    throw ConfigError("--search: needs --cluster, the machines to search for: " + config::one_of(autotune::cluster_names()) +
                      " or a file (docs/planning.md)");
  const autotune::Cluster cluster = cluster_of(arguments);
  const autotune::SearchSpace space = autotune::search_space(config, arguments.world_size);
  const auto planned = [&](const autotune::ConfigKeys& keys) {
    std::vector<std::string> overrides = arguments.overrides;
    for (const auto& [key, value] : keys) overrides.push_back(key + "=" + value);
    const Config one = trainer::load_with_model({arguments.config, overrides, arguments.init_from});
    const Plan plan = make_plan(one, model, arguments.world_size);
    return autotune::heaviest_of(autotune::bytes_of_ranks(plan));
  };
  const autotune::SearchResult result =
      autotune::search(model, cluster, space, arguments.top, arguments.verify ? planned : autotune::PlannedBytes{});
  if (!arguments.html.empty()) write_page(arguments.html, page_of(result, model, cluster, space));
  print(arguments.json ? to_json(result, cluster) + "\n" : to_text(result, cluster));
  if (result.ranking.empty())
    throw OutOfMemoryError(fmt::format("--search: no layout of {} devices fits; the smallest is {}, {}; {}",
                                       arguments.world_size, to_string(result.smallest.layout),
                                       shortage(result.smallest.step.bytes, cluster), what_would_fit(result, cluster)));
}

void check_price(const PlanArguments& arguments) {
  if (arguments.price > 0 && arguments.cluster.empty() && arguments.profile.empty())
    throw ConfigError("--price: only a predicted step has a price; give --cluster or --profile, too");
}

void predict_here(const PlanArguments& arguments, const Plan& plan, const model::Model& model) {
  const autotune::HardwareProfile profile = autotune::read_profile(arguments.profile);
  autotune::MeasuredPrediction prediction = autotune::predict_plan(plan, model, profile, arguments.profile);
  prediction.price_per_device_hour = arguments.price;
  if (!arguments.html.empty()) write_page(arguments.html, page_of(plan, prediction));
  print(arguments.json ? to_json(plan, prediction) + "\n" : to_text(plan, prediction));
}

void check_page(const PlanArguments& arguments, const Config& config) {
  if (arguments.html.empty()) return;
  OutputGuard guard(arguments.force ? Force::Yes : Force::No);
  trainer::add_inputs_of_run(guard, config, config.model_from);
  guard.reads(arguments.cluster, "--cluster");
  guard.reads(arguments.profile, "--profile");
  guard.check({.path = arguments.html, .key = "--html", .what = "a page of trivet", .is_own = is_own_page});
}

void run(const PlanArguments& arguments) {
  check_price(arguments);
  const Config config = trainer::load_with_model({arguments.config, arguments.overrides, arguments.init_from});
  check_page(arguments, config);
  const model::Model model = model_of(config);
  if (arguments.search) return search(arguments, config, model);
  const Plan plan = make_plan(config, model, arguments.world_size);
  if (!arguments.profile.empty()) return predict_here(arguments, plan, model);
  if (arguments.cluster.empty()) {
    if (!arguments.html.empty()) write_page(arguments.html, autotune::page_of(plan));
    if (arguments.json) return print(to_json(plan) + "\n");
    const std::string note = note_on_adapters(config);
    return print(to_text(plan) + (note.empty() ? "" : "\nnote: " + note + "\n"));
  }
  const autotune::Cluster cluster = cluster_of(arguments);
  const autotune::PlanPrediction prediction = autotune::predict_plan(plan, model, cluster);
  if (!arguments.html.empty()) write_page(arguments.html, page_of(plan, prediction, model, cluster));
  print(arguments.json ? to_json(plan, prediction, cluster) + "\n" : to_text(plan, prediction, cluster));
}

}  // namespace

void add_plan(CLI::App& program) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command =
      program.add_subcommand("plan", "Print the mesh, memory per rank, communication and program of a run, without running it");
  command->footer(
      "Examples:\n  trivet plan gpt.json --world-size 8 --set zero_optimization.stage=3\n"
      "  trivet plan gpt.json --world-size 8 --cluster h100 --price 2.5\n"
      "  trivet plan llama.json --world-size 1024 --cluster h100 --search\n"
      "  trivet plan gpt.json --world-size 2 --profile trivet_profile.json");
  command->add_option("config", arguments->config, "JSON file (docs/config.md)")->required();
  command->add_option("--world-size", arguments->world_size, "number of ranks (1)")->check(from_to(1, 1000000));
  command->add_option("--set", arguments->overrides, "key=value: replaces a key of the config; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option(
      "--init-from", arguments->init_from,
      "take keys of the section \"model\" that the config leaves out from this model or checkpoint, as trivet train does");
  command->add_flag("--json", arguments->json, "print JSON");
  CLI::Option* cluster = command->add_option("--cluster", arguments->cluster,
                                             "predict the time on other machines: a100, a100-40, h100, h200 or a JSON file");
  CLI::Option* search =
      command->add_flag("--search", arguments->search, "rank all layouts on --cluster and say why the others lose");
  command->add_option("--top", arguments->top, "how many layouts --search prints (10)")->check(from_to(1, 1000))->needs(search);
  command
      ->add_flag("--verify", arguments->verify,
                 "plan the fastest layouts of --search until one fits by its plan (seconds to minutes)")
      ->needs(search);
  command
      ->add_option("--price", arguments->price,
                   "price of one device for one hour in any currency, to print the cost of a token (the cluster's)")
      ->check(price_of_a_device);
  command
      ->add_option("--profile", arguments->profile, "predict the time on this machine from this file, which trivet bench wrote")
      ->check(CLI::ExistingFile)
      ->excludes(cluster)
      ->excludes(search);
  command->add_option("--html", arguments->html, "also write a page with drawings, for a browser, to this file");
  command->add_flag("--force", arguments->force, "let --html replace a file that Trivet did not write, unless it is an input");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace trivet::cli
