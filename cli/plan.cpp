// trivet plan CONFIG: what a run will be, before it is one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "autotune/search.h"
#include "cli/commands.h"
#include "cli/config_model.h"
#include "cli/usage.h"
#include "core/error.h"
#include "engine/config/load.h"
#include "engine/config/suggest.h"
#include "engine/plan.h"

namespace trivet::cli {
namespace {

struct PlanArguments {
  std::string config;
  std::vector<std::string> overrides;
  int world_size = 1;
  bool json = false, search = false;
  std::string cluster;
  int64_t top = 10;
};

// All layouts of the config's model and train_batch_size; what else it says of the layout is left open.
void search(const PlanArguments& arguments, const Config& config, const model::Model& model) {
  if (arguments.cluster.empty())
    throw ConfigError("--search: needs --cluster, the machines to search for: " + config::one_of(autotune::cluster_names()) +
                      " or a file (docs/planning.md)");
  const autotune::Cluster cluster = autotune::find_cluster(arguments.cluster);
  const autotune::SearchResult result = autotune::search(model, cluster, autotune::search_space(config, arguments.world_size),
                                                         static_cast<size_t>(arguments.top));
  const std::string text = arguments.json ? to_json(result, cluster) + "\n" : to_text(result, cluster);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (result.ranking.empty())
    throw OutOfMemoryError(fmt::format("--search: no layout of {} devices fits; the least is {}", arguments.world_size,
                                       to_string(result.smallest.layout)));
}

void run(const PlanArguments& arguments) {
  const Config config = load_config(arguments.config, arguments.overrides);
  const model::Model model = model_of(config);
  if (arguments.search) return search(arguments, config, model);
  if (!arguments.cluster.empty()) throw ConfigError("--cluster: is for --search; give both");
  const Plan plan = make_plan(config, model, arguments.world_size);
  const std::string text = arguments.json ? to_json(plan) + "\n" : to_text(plan);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_plan(CLI::App& program) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command =
      program.add_subcommand("plan", "Print mesh, memory per rank, communication and program of a run. Runs nothing.");
  command->footer(
      "Examples:\n  trivet plan gpt.json --world-size 8 --set zero_optimization.stage=3\n"
      "  trivet plan llama.json --world-size 1024 --cluster h100 --search");
  command->add_option("config", arguments->config, "JSON file (docs/config.md)")->required();
  command->add_option("--world-size", arguments->world_size, "number of ranks (1)")->check(from_to(1, 1000000));
  command->add_option("--set", arguments->overrides, "key=value: replaces a key of the config; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_flag("--json", arguments->json, "print JSON");
  command->add_flag("--search", arguments->search, "rank all layouts on --cluster and say why the others lose");
  command->add_option("--cluster", arguments->cluster,
                      "machines that need not be here: a100, a100-40, h100, h200 or a JSON file");
  command->add_option("--top", arguments->top, "how many layouts --search prints (10)")->check(from_to(1, 1000));
  command->callback([arguments] { run(*arguments); });
}

}  // namespace trivet::cli
