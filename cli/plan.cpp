// trivet plan CONFIG: what a run will be, before it is one.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/usage.h"
#include "engine/config/load.h"
#include "engine/data/dataset.h"
#include "engine/plan.h"

namespace trivet::cli {
namespace {

struct PlanArguments {
  std::string config;
  std::vector<std::string> overrides;
  int world_size = 1;
  bool json = false;
};

// The data decides the vocabulary's size unless the config states it or it is that of bytes.
int64_t vocabulary_size(const Config& config) {
  if (config.model.vocabulary == VocabularyKind::Size) return config.model.vocabulary_size;
  if (config.model.vocabulary == VocabularyKind::Bytes) return 256;
  return data::open_dataset(data::data_options(config)).vocabulary_size;
}

void run(const PlanArguments& arguments) {
  const Config config = load_config(arguments.config, arguments.overrides);
  const model::Model model = model::build(describe_model(config.model, vocabulary_size(config)));
  const Plan plan = make_plan(config, model, arguments.world_size);
  const std::string text = arguments.json ? to_json(plan) + "\n" : to_text(plan);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_plan(CLI::App& program) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command =
      program.add_subcommand("plan", "Print mesh, memory per rank, communication and program of a run. Runs nothing.");
  command->footer("Example:\n  trivet plan gpt.json --world-size 8 --set zero_optimization.stage=3");
  command->add_option("config", arguments->config, "JSON file (docs/config.md)")->required();
  command->add_option("--world-size", arguments->world_size, "number of ranks (1)")->check(from_to(1, 1000000));
  command->add_option("--set", arguments->overrides, "key=value: replaces a key of the config; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_flag("--json", arguments->json, "print JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace trivet::cli
