// trivet estimate: the memory that a model's states need with ZeRO-2 and ZeRO-3, according to DeepSpeed's estimators.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autotune/model_states.h"
#include "autotune/units.h"
#include "cli/commands.h"
#include "cli/config_model.h"
#include "cli/number_range.h"
#include "cli/usage.h"
#include "core/error.h"
#include "engine/config/deepspeed.h"
#include "report/monitor/number_text.h"
#include "trainer/load_with_model.h"

namespace trivet::cli {
namespace {

struct EstimateArguments {
  std::string config, init_from;
  double parameters = 0, largest_layer = 0;
  int64_t gpus_per_node = 8, nodes = 1;
  bool json = false;
};

struct Row {
  int stage;
  std::string options;
  autotune::MemoryEstimate estimate;
};

std::vector<Row> rows_of(autotune::EstimatorOptions options) {
  std::vector<Row> rows;
  for (const bool optimizer : {true, false}) {
    options.offload_optimizer = optimizer;
    rows.push_back({2, optimizer ? "offload_optimizer=cpu" : "offload_optimizer=none", autotune::estimate_zero2(options)});
  }
  for (const auto& [parameters, optimizer] : {std::pair{true, true}, {false, true}, {false, false}})
    for (const bool zero_init : {true, false}) {
      options.offload_parameters = parameters, options.offload_optimizer = optimizer, options.zero_init = zero_init;
      rows.push_back({3,
                      fmt::format("offload_param={}, offload_optimizer={}, zero_init={}", parameters ? "cpu" : "none",
                                  optimizer ? "cpu" : "none", zero_init ? 1 : 0),
                      autotune::estimate_zero3(options)});
    }
  return rows;
}

double most_bytes(const std::vector<Row>& rows) {
  double most = 0;
  for (const Row& row : rows) most = std::max({most, row.estimate.host_bytes, row.estimate.gpu_bytes});
  return most;
}

std::string whole(double number) { return monitor::with_commas(std::llround(number)); }

std::string to_text(const autotune::EstimatorOptions& options) {
  const std::vector<Row> rows = rows_of(options);
  const autotune::Unit unit = autotune::unit_of_memory(most_bytes(rows));
  std::string text = fmt::format(
      "weights, gradients and optimizer states of {} parameters, {} in the largest layer,\n"
      "on {} node{} of {} GPUs, according to DeepSpeed's estimators; activations and buffers are not included\n\n"
      "stage     host {}      GPU {}\n          per node      per GPU\n",
      whole(options.parameters), whole(options.largest_layer_parameters), options.nodes, options.nodes == 1 ? "" : "s",
      options.gpus_per_node, unit.name, unit.name);
  for (const Row& row : rows)
    text += fmt::format("{:5} {:13.2f} {:12.2f}   {}\n", row.stage, row.estimate.host_bytes / unit.size,
                        row.estimate.gpu_bytes / unit.size, row.options);
  return text;
}

std::string to_json(const autotune::EstimatorOptions& options) {
  nlohmann::ordered_json json;
  json["parameters"] = options.parameters;
  json["largest_layer_parameters"] = options.largest_layer_parameters;
  json["gpus_per_node"] = options.gpus_per_node;
  json["nodes"] = options.nodes;
  json["estimates"] = nlohmann::ordered_json::array();
  for (const Row& row : rows_of(options))
    json["estimates"].push_back({{"stage", row.stage},
                                 {"options", row.options},
                                 {"host_bytes_per_node", row.estimate.host_bytes},
                                 {"bytes_per_gpu", row.estimate.gpu_bytes}});
  return json.dump(2) + "\n";
}

// Counts as DeepSpeed does: the module with the most parameters of its own. Here a module is a weight and its bias.
double largest_module(const model::Model& model) {
  std::map<std::string, int64_t> modules;
  int64_t largest = 0;
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (const ParameterSpec& spec : model.layers[layer]->parameters()) {
      const std::string name = model.names[layer] + "." + spec.name.substr(0, spec.name.rfind('.'));
      if (spec.tied_to.empty()) largest = std::max(largest, modules[name] += spec.shape.elements());
    }
  return static_cast<double>(largest);
}

void run(const EstimateArguments& arguments) {
  autotune::EstimatorOptions options{.parameters = arguments.parameters,
                                     .largest_layer_parameters = arguments.largest_layer,
                                     .gpus_per_node = arguments.gpus_per_node,
                                     .nodes = arguments.nodes};
  const bool has_model = !arguments.config.empty() || !arguments.init_from.empty();
  if (has_model == (arguments.parameters > 0))
    throw ConfigError("estimate: give a config, a model with --init-from, or --parameters and --largest-layer");
  if (has_model) {
    const bool alone = arguments.config.empty();
    const Config config = trainer::load_with_model({.path = alone ? "estimate" : arguments.config,
                                                    .overrides = {},
                                                    .init_from = arguments.init_from,
                                                    .for_plan = true,
                                                    .text = alone ? "{}" : ""});
    tell_keys_not_given(config);
    const model::Model model = model_of(config);
    options.parameters = static_cast<double>(model::parameter_count(model));
    options.largest_layer_parameters = largest_module(model);
  }
  const std::string text = arguments.json ? to_json(options) : to_text(options);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_estimate(CLI::App& program) {
  auto arguments = std::make_shared<EstimateArguments>();
  CLI::App* command = program.add_subcommand(
      "estimate",
      "Estimate the memory of a model's states with ZeRO-2 and 3 as DeepSpeed does; `trivet plan` says what a run needs");
  command->footer("Example:\n  trivet estimate --parameters 2851e6 --largest-layer 32e6 --gpus-per-node 8");
  command->add_option("config", arguments->config, "JSON config of the model (docs/config.md)");
  command->add_option("--init-from", arguments->init_from, "take the model, or what a config leaves out of it, from here");
  command->add_option("--parameters", arguments->parameters, "number of parameters of a model without a config")
      ->check(number_from_to(1, 1e18));
  command->add_option("--largest-layer", arguments->largest_layer, "parameters of its largest layer (0)")
      ->check(number_from_to(0, 1e18));
  command->add_option("--gpus-per-node", arguments->gpus_per_node, "GPUs per node (8)")->check(from_to(1, 1024));
  command->add_option("--nodes", arguments->nodes, "number of nodes (1)")->check(from_to(1, 1000000));
  command->add_flag("--json", arguments->json, "print JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace trivet::cli
