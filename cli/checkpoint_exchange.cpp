#include "cli/checkpoint_exchange.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/number_range.h"
#include "core/enum_names.h"
#include "core/file_system.h"
#include "core/log.h"
#include "core/output_guard.h"
#include "core/shell_words.h"
#include "engine/config/explain.h"
#include "interchange/hugging_face/export.h"
#include "interchange/hugging_face/import.h"
#include "trainer/output_checks.h"

namespace trivet::cli {
namespace {

constexpr const char* kOriginalTemplate = "original";

struct ExchangeArguments {
  std::string path, config, dtype, lora, chat_template;
  hugging_face::ExportOptions options;
  double shard_gigabytes = 5;
};

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print("note: {}\n", escape_control(note));
}

// The section "model" as a config states it.
nlohmann::ordered_json model_section(const Config& config) {
  nlohmann::ordered_json whole;
  for (const ExplainedKey& key : explain(config))
    if (key.path.starts_with("model.") && key.without_effect.empty()) {
      std::string pointer = "/" + key.path;
      std::ranges::replace(pointer, '.', '/');
      whole[nlohmann::ordered_json::json_pointer(pointer)] = nlohmann::ordered_json::parse(key.value);
    }
  return whole["model"];
}

void import_from(const ExchangeArguments& arguments, std::string_view format) {
  const hugging_face::PretrainedModel model(
      hugging_face::open_model(file_system_with_links(), arguments.path, format, arguments.config));
  const std::string& output = arguments.options.output;
  OutputGuard guard;
  guard.reads(arguments.path, "the model to import");
  guard.reads(arguments.config, "--config");
  guard.check_folder(output, "--output");
  trainer::refuse_steps_among_others(output, "--output");
  const auto imported = hugging_face::import_model(real_file_system(), model, output, file_system_with_links());
  fmt::print("{} ({}) -> {}\n", escape_control(arguments.path), model.kind(), escape_control(imported.step));
  print_notes(imported.notes);
  fmt::print("next: trivet train CONFIG --init-from {}, where CONFIG needs no section \"model\"; it is\n\"model\": {}\n",
             quoted(escape_control(output)), model_section(model.config()).dump(2));
}

void export_hugging_face(const ExchangeArguments& arguments) {
  hugging_face::ExportOptions options = arguments.options;
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16})
    if (arguments.dtype == name_of(dtype)) options.dtype = dtype;
  options.lora = arguments.lora == "merged" ? hugging_face::LoraExport::Merged
                 : arguments.lora == "peft" ? hugging_face::LoraExport::Peft
                                            : hugging_face::LoraExport::None;
  options.keep_template = arguments.chat_template == kOriginalTemplate;
  if (options.keep_template && options.like.empty())
    throw ConfigError("--chat-template original keeps the template of --like; name that folder, too");
  if (!options.keep_template && !arguments.chat_template.empty())
    options.chat_template = *from_name<ChatTemplate>(arguments.chat_template);
  options.models = &file_system_with_links();
  options.shard_bytes = static_cast<int64_t>(arguments.shard_gigabytes * 1e9);
  const auto exported = hugging_face::export_model(real_file_system(), arguments.path, options);
  const bool adapters = options.lora == hugging_face::LoraExport::Peft;
  fmt::print("{} -> {}: {} of the type \"{}\", {} bytes of weights in {}\n", escape_control(arguments.path),
             escape_control(options.output), adapters ? "adapters of a model" : "a model", exported.model_type, exported.bytes,
             name_of(exported.dtype));
  for (const std::string& file : exported.files) fmt::print("  {}\n", file);
  print_notes(exported.notes);
}

void add_import(CLI::App& group) {
  CLI::App& command = *group.add_subcommand("import", "Make a checkpoint of another program's model");
  command.require_subcommand(1);
  command.footer("Example: trivet checkpoint import hf gpt2 --output imported");
  for (const hugging_face::ModelFormat& model_format : hugging_face::model_formats()) {
    auto arguments = std::make_shared<ExchangeArguments>();
    CLI::App& format = *command.add_subcommand(std::string(model_format.name), fmt::format("From {}", model_format.what));
    format.footer(
        fmt::format("Example: trivet checkpoint import {} {} --output imported", model_format.name, model_format.example));
    format.add_option("path", arguments->path, std::string(model_format.path))->required();
    format.add_option("--output", arguments->options.output, "Directory of checkpoints to make")->required();
    if (model_format.takes_config)
      format.add_option("--config", arguments->config, "The model's config.json, if the folder holds none");
    format.callback([arguments, name = model_format.name] { import_from(*arguments, name); });
  }
}

void add_export(CLI::App& group) {
  auto arguments = std::make_shared<ExchangeArguments>();
  CLI::App& command = *group.add_subcommand("export", "Write a checkpoint's weights in another program's format");
  command.footer("Example: trivet checkpoint export hf checkpoints --output my-gpt2 --like gpt2");
  command.require_subcommand(1);
  CLI::App& format = *command.add_subcommand("hf", "To a folder in Hugging Face's format");
  format.footer("Example: trivet checkpoint export hf checkpoints --output my-gpt2 --like gpt2");
  format.add_option("path", arguments->path, "Directory of checkpoints, or one of its steps; also DIR/best")->required();
  format.add_option("--output", arguments->options.output, "Folder to make")->required();
  format.add_option("--like", arguments->options.like,
                    "Folder of the model that training began with: its config.json and tokenizer files are kept");
  format.add_option("--architecture", arguments->options.model_type,
                    "model_type of the exported model (default: the first one that can store it)");
  format
      .add_option("--lora", arguments->lora,
                  "Of a model with low-rank adapters: add them to its weights (merged), or write them alone (peft)")
      ->check(CLI::IsMember({"merged", "peft"}));
  format
      .add_option(
          "--chat-template", arguments->chat_template,
          "Template of the training data: chatml, llama-2 or llama-3 (default: data.chat_template of the run); original "
          "keeps that of --like")
      ->check(CLI::IsMember({"chatml", "llama-2", "llama-3", kOriginalTemplate}));
  format
      .add_option("--dtype", arguments->dtype,
                  "Type of the exported weights (default: that of --like, bfloat16 after a run in bf16, else float32)")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  format.add_option("--shard-gb", arguments->shard_gigabytes, "Most gigabytes (1e9 bytes) in one file (default: 5)")
      ->check(number_from_to(0.001, 1e6));
  format.callback([arguments] { export_hugging_face(*arguments); });
}

}  // namespace

void add_exchange(CLI::App& checkpoint_commands) {
  add_import(checkpoint_commands);
  add_export(checkpoint_commands);
}

}  // namespace trivet::cli
