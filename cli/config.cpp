// trivet config check|explain|diff|schema|reference
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "cli/commands.h"
#include "core/error.h"
#include "core/printable.h"
#include "data/file_pattern.h"
#include "data/input_files.h"
#include "data/tokenizer.h"
#include "engine/config/deepspeed.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "engine/config/load_for_run.h"
#include "engine/config/reference.h"
#include "engine/config/schema.h"
#include "engine/optimizer/lr_schedule.h"
#include "trainer/load_with_model.h"

namespace trivet::cli {
namespace {

struct ConfigOptions {
  std::string file, other_file, init_from;
  std::vector<std::string> overrides;
  bool long_form = false, json = false;
};
using Options = std::shared_ptr<ConfigOptions>;

void add_file(CLI::App& command, const Options& options) {
  command.add_option("CONFIG", options->file, "JSON config")->required();
  command
      .add_option("--set", options->overrides,
                  "key=value: replaces a key of the config, or with an object of JSON a section; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
}

void add_init_from(CLI::App& command, const Options& options) {
  command.add_option("--init-from", options->init_from,
                     "take keys of the section \"model\" that the config leaves out from this model or checkpoint");
}

void print_list(const char* title, const std::vector<std::string>& lines) {
  if (!lines.empty()) fmt::print("{}\n", title);
  for (const std::string& line : lines) fmt::print("  {}\n", line);
}

// Data may be on another machine, so that absent data is told; what is there must be of a kind that is read.
void add_absent_data(const Config& config, std::vector<std::string>& needed) {
  std::vector<std::pair<std::string, std::string>> named{{"data.train", config.data.train},
                                                         {"data.validation", config.data.validation}};
  for (const DataSource& source : config.data.sources) named.emplace_back("data.sources", source.path);
  for (const auto& [key, path] : named) {
    if (path.empty()) continue;
    if (data::is_absent(path))
      needed.push_back(fmt::format("{}: there is no {} here, relative to this folder", key, printable(path, 4096)));
    else if (config.model.type != model::Type::Sequential && !config.data.grows)
      data::find_inputs(data::matching_files(path).paths, config.data.read_as, data::FolderUse::Train);
  }
}

// A tokenizer that is there must be one that training can read.
void add_absent_tokenizer(const Config& config, std::vector<std::string>& needed) {
  if (config.vocabulary.kind != VocabularyKind::Tokenizer) return;
  const std::string& file = config.vocabulary.tokenizer_file;
  if (data::is_absent(file))
    needed.push_back(fmt::format("model.vocabulary: there is no {} here, relative to this folder", printable(file)));
  else
    data::load_tokenizer(file);
}

// Folders for offloaded files may be on another machine, too.
void add_absent_folders(const Config& config, std::vector<std::string>& needed) {
  const auto add = [&](const char* section, OffloadDevice device, const std::string& path) {
    std::error_code ignored;
    if (device != OffloadDevice::Nvme || std::filesystem::is_directory(path, ignored)) return;
    needed.push_back(fmt::format("zero_optimization.{}.nvme_path: there is no folder {} here, relative to this folder", section,
                                 printable(path, 4096)));
  };
  add("offload_param", config.zero.offload_param.device, config.zero.offload_param.nvme_path);
  add("offload_optimizer", config.zero.offload_optimizer.device, config.zero.offload_optimizer.nvme_path);
}

// Lists the keys that `trivet train` will ask for, although the config may go without.
std::vector<std::string> needed_for_training(const Config& config) {
  std::vector<std::string> needed;
  add_absent_tokenizer(config, needed);
  if (!config.data.is_given()) needed.push_back("data.train: the data to train on (docs/data.md)");
  add_absent_data(config, needed);
  add_absent_folders(config, needed);
  if (config.training.steps == 0 && config.training.epochs == 0)
    needed.push_back("training.steps: how long to train (steps or epochs)");
  return needed;
}

// A config without a model is refused, but what there is to say of its keys is printed all the same.
// `mistake`: how the first line ends if the config is refused; null: it is accepted.
void print_check(const Config& config, const ConfigOptions& options, const char* mistake = nullptr) {
  const std::vector<std::string> automatic = auto_lines(config), without_effect = accepted_without_effect(config),
                                 differences = differences_from_deepspeed(config), needed = needed_for_training(config);
  std::vector<std::string> warnings = warnings_of(config);
  for (std::string& line : warnings_of_rates(config)) warnings.push_back(std::move(line));
  if (std::string note = note_on_adapters(config); !note.empty()) warnings.push_back(std::move(note));
  if (options.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"config", options.file},
                                              {"ok", !mistake},
                                              {"differences", differences},
                                              {"warnings", warnings},
                                              {"auto", automatic},
                                              {"without_effect", without_effect},
                                              {"needed", needed}}
                           .dump(2));
    return;
  }
  fmt::print("{}: {}\n", options.file, mistake ? mistake : "OK");
  print_list("different from DeepSpeed:", differences);
  print_list("probably not meant:", warnings);
  print_list("taken for \"auto\" (--set KEY=VALUE takes another value):", automatic);
  print_list("accepted without effect in this run:", without_effect);
  print_list("not given, but needed by `trivet train`:", needed);
}

void check(const ConfigOptions& options) {
  std::optional<ConfigError> without_model;
  try {
    print_check(trainer::load_with_model(
                    {.path = options.file, .overrides = options.overrides, .init_from = options.init_from, .for_run = true}),
                options);
    return;
  } catch (const ConfigError& mistakes) {
    without_model = mistakes;
  }
  try {
    const std::string text = read_config_text(options.file);
    const bool is_elsewhere = !options.init_from.empty() || !model_from_in(text, options.file, options.overrides).empty();
    print_check(parse_config_for_run(text, options.file, options.overrides, {}, AskForModel::No), options,
                is_elsewhere ? "its model cannot be used, as said below" : "no model section");
  } catch (const ConfigError&) {  // has other mistakes, which are among the first ones, too
  }
  throw *without_model;
}

// Loads the config with the keys of the model that it names, if it names one.
Config with_its_model(const std::string& path, const std::vector<std::string>& overrides = {},
                      const std::string& init_from = "") {
  const std::string text = read_config_text(path);
  const bool is_elsewhere = !init_from.empty() || !model_from_in(text, path, overrides).empty();
  return is_elsewhere
             ? trainer::load_with_model({.path = path, .overrides = overrides, .init_from = init_from, .for_plan = true})
             : parse_config(text, path, overrides);
}

void explain_command(const ConfigOptions& options) {
  const Config config = with_its_model(options.file, options.overrides, options.init_from);
  if (!options.long_form) {
    fmt::print("{}\n", explain_as_json(config));
    return;
  }
  for (const ExplainedKey& key : explain(config)) {
    fmt::print("{} = {}  [{}]\n    {}\n", key.path, key.value, key.origin, key.meaning);
    if (!key.without_effect.empty()) fmt::print("    without effect: {}\n", key.without_effect);
  }
}

void diff_command(const ConfigOptions& options) {
  const auto differences = diff(with_its_model(options.file), with_its_model(options.other_file));
  if (options.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto& [path, before, after] : differences) list.push_back({{"key", path}, {"before", before}, {"after", after}});
    fmt::print("{}\n", list.dump(2));
    return;
  }
  if (differences.empty()) fmt::print("no difference\n");
  for (const auto& [path, before, after] : differences) fmt::print("{}: {} -> {}\n", path, before, after);
}

void add_check(CLI::App& group, const Options& options) {
  CLI::App* command = group.add_subcommand("check", "Check a config; print OK and the keys without effect, or the mistakes");
  command->footer("Example: trivet config check configs/gpt_char.json --set zero_optimization.stage=3");
  add_file(*command, options);
  add_init_from(*command, options);
  command->add_flag("--json", options->json, "print the result as JSON");
  command->callback([options] { check(*options); });
}

void add_explain(CLI::App& group, const Options& options) {
  CLI::App* command = group.add_subcommand("explain", "Print the config with every default, as JSON that can be read back");
  command->footer("Example: trivet config explain configs/gpt_char.json --long");
  add_file(*command, options);
  add_init_from(*command, options);
  command->add_flag("--long", options->long_form,
                    "print each key with its meaning and the origin of its value, instead of JSON");
  command->add_flag("--json", options->json, "print JSON, which is the default")->excludes("--long");
  command->callback([options] { explain_command(*options); });
}

void add_diff(CLI::App& group, const Options& options) {
  CLI::App* command = group.add_subcommand("diff", "Print what differs between two configs, defaults included");
  command->footer("Example: trivet config diff configs/gpt_char.json configs/llama_char.json");
  command->add_option("CONFIG", options->file, "JSON config")->required();
  command->add_option("OTHER", options->other_file, "JSON config")->required();
  command->add_flag("--json", options->json, "print the differences as JSON");
  command->callback([options] { diff_command(*options); });
}

void add_documents(CLI::App& group) {
  CLI::App* schema = group.add_subcommand("schema", "Print the JSON Schema of configs, for editors");
  schema->footer("Example: trivet config schema > trivet.schema.json");
  schema->callback([] { fmt::print("{}\n", config_schema()); });
  CLI::App* reference = group.add_subcommand("reference", "Print all keys as Markdown");
  reference->footer("Example: trivet config reference > docs/config.md");
  const auto deepspeed = std::make_shared<bool>(false);
  reference->add_flag("--deepspeed", *deepspeed, "print what becomes of each key of DeepSpeed (docs/deepspeed.md)");
  reference->callback([deepspeed] { fmt::print("{}", *deepspeed ? deepspeed_reference() : config_reference()); });
}

}  // namespace

void add_config(CLI::App& program) {
  CLI::App* group = program.add_subcommand("config", "Check, explain and compare configs; print their schema and reference");
  group->require_subcommand(1);
  group->footer("Example: trivet config check configs/gpt_char.json");
  const auto options = std::make_shared<ConfigOptions>();
  add_check(*group, options);
  add_explain(*group, options);
  add_diff(*group, options);
  add_documents(*group);
}

}  // namespace trivet::cli
