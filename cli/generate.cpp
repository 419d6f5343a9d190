// trivet generate CHECKPOINTS: samples text from a trained model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/run_job.h"
#include "cli/usage.h"
#include "core/error.h"
#include "core/file_system.h"
#include "engine/backend/cuda_module.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/config/load.h"
#include "engine/data/sampling.h"
#include "engine/data/text_stream.h"
#include "engine/data/tokenizer.h"
#include "engine/generation.h"
#include "engine/plan.h"
#include "model/family.h"

namespace trivet::cli {
namespace {

struct GenerateArguments {
  std::string directory, prompt = "\n", device = "cpu";
  int64_t tokens = 300, seed = 1234;
  data::SamplingOptions sampling{.temperature = 0.8, .top_k = 200};
};

Device device_of(const std::string& choice) {
  if (choice != "auto") return choice == "cuda" ? Device::Cuda : Device::Cpu;
  std::string reason;
  const Device device = find_device(reason);
  if (device == Device::Cpu) fmt::print(stderr, "trivet: device: auto selected cpu ({})\n", reason);
  return device;
}

void write(const std::string& text) {  // which may contain zeros
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void run(const GenerateArguments& arguments) {
  data::check(arguments.sampling);
  const auto step = checkpoint::open_path(real_file_system(), arguments.directory);
  const Config config = parse_config(step.config(), step.directory() + "/manifest.json");
  if (model::family_of(config.model.type).reads_images)
    throw ConfigError(fmt::format("{}: its model of type \"{}\" reads images; only models of text generate",
                                  arguments.directory, name_of(config.model.type)));
  const auto tokenizer = tokenizer_of(step);
  if (!tokenizer)
    throw ConfigError(arguments.directory + ": the checkpoint holds no tokenizer (it was trained on a token file without one)");
  // A vocabulary stated as a number may be padded, so only tokens that the tokenizer knows are drawn.
  const bool stated = config.vocabulary.kind == VocabularyKind::Size;
  const int64_t vocabulary = stated ? config.model.vocabulary_size : tokenizer->vocabulary_size();
  Generator generator(model::build(model::with_vocabulary(config.model, vocabulary)), step, device_of(arguments.device),
                      threads_per_rank(1));

  std::vector<int32_t> tokens = tokenizer->frame().before;
  const std::vector<int32_t> prompt = tokenizer->encode_with_special(arguments.prompt);
  tokens.insert(tokens.end(), prompt.begin(), prompt.end());
  if (tokens.empty()) throw ConfigError("--prompt: the prompt is empty; give at least one character");
  std::fputs(arguments.prompt.c_str(), stdout);
  data::TextStream text(*tokenizer, tokens);
  for (int64_t i = 0; i < arguments.tokens; ++i) {
    auto logits = generator.next_logits(tokens);
    logits.resize(std::min(vocabulary, tokenizer->vocabulary_size()));
    const int64_t position = static_cast<int64_t>(tokens.size());
    tokens.push_back(data::sample_token(logits, arguments.sampling, static_cast<uint64_t>(arguments.seed), 0, position));
    write(text.next(tokens.back()));
  }
  write(text.rest() + "\n");
}

}  // namespace

void add_generate(CLI::App& program) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = program.add_subcommand("generate", "Sample text from a checkpoint");
  command->footer(
      "Examples:\n"
      "  trivet generate checkpoints --prompt \"In the beginning\" --tokens 200 --temperature 0.8\n"
      "  trivet generate checkpoints/best         from the step with the lowest validation loss (checkpoint.keep_best)");
  command
      ->add_option("checkpoints", arguments->directory,
                   "directory of checkpoints, whose newest one is used, or one of them: DIR/step-00000200, DIR/best")
      ->required();
  command->add_option("--prompt", arguments->prompt, "what the text begins with (a line break)");
  command->add_option("--tokens", arguments->tokens, "how many tokens to add (300)")->check(from_to(0, 1000000));
  command->add_option("--temperature", arguments->sampling.temperature,
                      "logits are divided by this number; 0 always takes the likeliest token (0.8)");
  command->add_option("--top-k", arguments->sampling.top_k, "keep the k likeliest tokens; 0 keeps all (200)");
  command->add_option("--top-p", arguments->sampling.top_p, "keep the fewest tokens whose probabilities add up to this (1)");
  command->add_option("--seed", arguments->seed, "seed of the random draws (1234)");
  command->add_option("--device", arguments->device, "cpu, cuda, or auto: cuda where a GPU is found (cpu)")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  command->callback([arguments] { run(*arguments); });
}

}  // namespace trivet::cli
