// trivet plan CONFIG: prints what a run will do, without running it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autotune/measured_prediction.h"
#include "autotune/plan_page.h"
#include "cli/commands.h"
#include "cli/config_model.h"
#include "cli/usage.h"
#include "core/bounded_file.h"
#include "core/error.h"
#include "core/file_system.h"
#include "core/log.h"
#include "core/output_guard.h"
#include "core/printable.h"
#include "core/replace_file.h"
#include "engine/config/deepspeed.h"
#include "engine/config/json_reader.h"
#include "engine/config/load.h"
#include "engine/config/other_programs.h"
#include "engine/config/suggest.h"
#include "engine/make_plan.h"
#include "trainer/load_with_model.h"
#include "trainer/output_checks.h"

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

const CLI::Validator imbalance_of_experts(
    [](const std::string& text) {
      double imbalance = 0;
      return CLI::detail::lexical_cast(text, imbalance) ? autotune::expert_imbalance_problem(imbalance)
                                                        : fmt::format("{} is not a number from 1", text);
    },
    "FACTOR", "imbalance");

// "15T" is 15e12.
std::optional<double> number_of_tokens(const std::string& text) {
  constexpr std::string_view kUnits = "kMBT";
  const size_t unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
  const bool has_unit = unit != std::string_view::npos;
  double tokens = 0;
  if (!CLI::detail::lexical_cast(text.substr(0, text.size() - (has_unit ? 1 : 0)), tokens)) return std::nullopt;
  tokens *= has_unit ? std::pow(1000, static_cast<double>(unit + 1)) : 1;
  if (!std::isfinite(tokens) || tokens < 1 || tokens > 1e18) return std::nullopt;
  return tokens;
}

const CLI::Validator tokens_of_a_run(
    [](const std::string& text) {
      return number_of_tokens(text) ? "" : fmt::format("{} is not a number of tokens, such as 15T, 300B, 20M or 1e12", text);
    },
    "TOKENS", "tokens");

struct PlanArguments {
  std::string config, init_from;
  std::string text;  // text of the config; empty: the file `config` has it
  std::vector<std::string> overrides;
  int world_size = 1;
  bool json = false, search = false, verify = false;
  std::string cluster;
  int64_t top = 10;
  double price = 0;             // 0: the cluster's
  double expert_imbalance = 0;  // 0: the cluster's
  std::string tokens;           // empty: those of the config's steps
  std::string html;             // empty: no page
  bool force = false;           // the page replaces any file
  std::string profile;          // empty: no prediction for this machine
};

// A model in Hugging Face's format, by its folder or its config.json, stands in the place of the config.
bool names_a_model(const std::string& path) {
  std::error_code absent;
  const std::string file = std::filesystem::is_directory(path, absent) ? path + "/config.json" : path;
  const BoundedText read = read_bounded(file, config::kMaxConfigBytes, "a config");
  try {
    return read.problem.empty() && config::describes_model_of_hugging_face(config::read_json(read.text, file));
  } catch (const ConfigError&) {  // is no JSON; whoever loads it says so
    return false;
  }
}

bool gives_a_batch(const std::vector<std::string>& overrides) {
  return std::ranges::any_of(overrides, [](const std::string& one) {
    return one.starts_with("train_batch_size=") || one.starts_with("train_micro_batch_size_per_gpu=");
  });
}

// Plans a model that is named in the place of a config as --init-from with the least config that can be planned.
void take_model_for_config(PlanArguments& arguments) {
  if (!arguments.init_from.empty() || !names_a_model(arguments.config)) return;
  arguments.init_from = arguments.config;
  arguments.text = gives_a_batch(arguments.overrides) ? "{}" : R"({"train_micro_batch_size_per_gpu": 1})";
  std::fputs(fmt::format("plan: {} is a model, planned as with --init-from and the config {}; --set gives other keys\n",
                         printable(arguments.config), arguments.text)
                 .c_str(),
             stderr);
}

Config load(const PlanArguments& arguments, const std::vector<std::string>& overrides) {
  return trainer::load_with_model({.path = arguments.config,
                                   .overrides = overrides,
                                   .init_from = arguments.init_from,
                                   .for_plan = true,
                                   .text = arguments.text});
}

autotune::Cluster cluster_of(const PlanArguments& arguments) {
  autotune::Cluster cluster = autotune::find_cluster(arguments.cluster);
  if (arguments.price > 0) cluster.price_per_device_hour = arguments.price;
  if (arguments.expert_imbalance > 0) cluster.expert_imbalance = arguments.expert_imbalance;
  return cluster;
}

// 0: not known, because neither the command nor the config says them.
double tokens_of(const PlanArguments& arguments, const Config& config, const model::Model& model, int64_t batch) {
  if (!arguments.tokens.empty()) return *number_of_tokens(arguments.tokens);
  return static_cast<double>(config.training.steps) * static_cast<double>(batch * model.sample.counted_targets());
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void write_page(const std::string& path, const autotune::PlanPage& page) {
  try {
    replace_file(real_file_system(), path, to_html(page));
    std::fputs(fmt::format("plan: the page is {}\n", printable(path)).c_str(), stderr);
  } catch (const FileError& error) {
    throw ConfigError(fmt::format("--html: {}; give a file in a folder that can be written to", error.what()));
  }
}

// Prints on stderr what a search does, at most once in two seconds and not before the first two are over.
class SearchLines {
 public:
  template <typename Doing>
  void say(Doing&& doing) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::seconds(2)) return;
    last_ = now;
    std::fputs(fmt::format("plan: {}\n", doing()).c_str(), stderr);
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Searches all layouts of the config's model and train_batch_size; the layout that the config itself gives is ignored.
void search(const PlanArguments& arguments, const Config& config, const model::Model& model) {
  if (arguments.cluster.empty())
    throw ConfigError("--search: needs --cluster, the machines to search for: " + config::one_of(autotune::cluster_names()) +
                      " or a file (docs/planning.md)");
  const autotune::Cluster cluster = cluster_of(arguments);
  const autotune::SearchSpace space = autotune::search_space(config, arguments.world_size);
  SearchLines lines;
  const auto planned = [&](const autotune::ConfigKeys& keys) {
    lines.say([] { return "plans one of the fastest layouts"; });
    std::vector<std::string> overrides = arguments.overrides;
    for (const auto& [key, value] : keys) overrides.push_back(key + "=" + value);
    const Plan plan = make_plan(load(arguments, overrides), model, arguments.world_size);
    return autotune::heaviest_of(autotune::bytes_of_ranks(plan));
  };
  const auto progress = [&](int64_t devices, int64_t tried) {
    lines.say([&] { return fmt::format("{} layouts of {} devices tried", tried, devices); });
  };
  const autotune::SearchResult result =
      autotune::search(model, cluster, space, arguments.top, arguments.verify ? planned : autotune::PlannedBytes{}, progress);
  const double tokens = tokens_of(arguments, config, model, space.train_batch_size);
  if (!arguments.html.empty()) write_page(arguments.html, page_of(result, model, cluster, space, tokens));
  print(arguments.json ? to_json(result, cluster, tokens) + "\n" : to_text(result, cluster, tokens));
  if (result.ranking.empty())
    throw OutOfMemoryError(fmt::format("--search: no layout of {} devices fits; the smallest is {}, {}; {}",
                                       arguments.world_size, to_string(result.smallest.layout),
                                       shortage(result.smallest.step.bytes, cluster), what_would_fit(result, cluster)));
}

void check_prediction(const PlanArguments& arguments) {
  if (!arguments.cluster.empty() || !arguments.profile.empty()) return;
  if (arguments.price > 0) throw ConfigError("--price: only a predicted step has a price; give --cluster or --profile, too");
  if (!arguments.tokens.empty())
    throw ConfigError("--tokens: only a predicted step says how long they take; give --cluster or --profile, too");
}

void predict_here(const PlanArguments& arguments, const Plan& plan, const model::Model& model) {
  const autotune::HardwareProfile profile = autotune::read_profile(arguments.profile);
  autotune::MeasuredPrediction prediction = autotune::predict_plan(plan, model, profile, arguments.profile);
  prediction.price_per_device_hour = arguments.price;
  const double tokens = tokens_of(arguments, plan.config, model, plan.batch.train_batch_size);
  if (!arguments.html.empty()) write_page(arguments.html, page_of(plan, prediction, tokens));
  print(arguments.json ? to_json(plan, prediction, tokens) + "\n" : to_text(plan, prediction, tokens));
}

void check_page(const PlanArguments& arguments, const Config& config) {
  if (arguments.html.empty()) return;
  OutputGuard guard(arguments.force ? Force::Yes : Force::No);
  trainer::add_inputs_of_run(guard, config, config.model_from);
  guard.reads(arguments.cluster, "--cluster");
  guard.reads(arguments.profile, "--profile");
  guard.check({.path = arguments.html, .key = "--html", .what = "a page of trivet", .is_own = is_own_page});
}

void run(PlanArguments arguments) {
  check_prediction(arguments);
  take_model_for_config(arguments);
  const Config config = load(arguments, arguments.overrides);
  check_page(arguments, config);
  tell_keys_not_given(config);
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
  const double tokens = tokens_of(arguments, config, model, plan.batch.train_batch_size);
  if (!arguments.html.empty()) write_page(arguments.html, page_of(plan, prediction, model, cluster, tokens));
  print(arguments.json ? to_json(plan, prediction, cluster, tokens) + "\n" : to_text(plan, prediction, cluster, tokens));
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
  command
      ->add_option("config", arguments->config,
                   "JSON file (docs/config.md), or a model in Hugging Face's format: its folder or its config.json")
      ->required();
  command->add_option("--world-size", arguments->world_size, "number of ranks (1)")->check(from_to(1, 1000000));
  command
      ->add_option("--set", arguments->overrides,
                   "key=value: replaces a key of the config, or with an object of JSON a section; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option(
      "--init-from", arguments->init_from,
      "take keys of the section \"model\" that the config leaves out from this model or checkpoint, as trivet train does");
  command->add_flag("--json", arguments->json, "print JSON");
  CLI::Option* cluster = command->add_option(
      "--cluster", arguments->cluster,
      fmt::format("predict the time on other machines: {} or a JSON file", fmt::join(autotune::cluster_names(), ", ")));
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
      ->add_option(
          "--expert-imbalance", arguments->expert_imbalance,
          "rows of the fullest of the ranks that share experts over their mean, for the predicted time (the cluster's)")
      ->check(imbalance_of_experts)
      ->needs(cluster);
  command
      ->add_option("--tokens", arguments->tokens,
                   "say how many days so many tokens take, and what they cost: 15T, 300B, 1e12 (those of the config's steps)")
      ->check(tokens_of_a_run);
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
