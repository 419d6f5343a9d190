// trivet generate MODEL: samples text from a trained model, or holds a conversation with it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/run_job.h"
#include "cli/usage.h"
#include "core/enum_names.h"
#include "core/error.h"
#include "core/file_system.h"
#include "core/log.h"
#include "data/chat_template.h"
#include "data/document_encoder.h"
#include "data/encoded_text.h"
#include "data/sampling.h"
#include "data/text_stream.h"
#include "data/tokenizer.h"
#include "engine/backend/cuda_module.h"
#include "engine/plan.h"
#include "interchange/hugging_face/text_files.h"
#include "model/family.h"
#include "trainer/generation.h"
#include "trainer/saved_model.h"

namespace trivet::cli {
namespace {

struct GenerateArguments {
  std::string directory, prompt = "\n", device = "cpu";
  int64_t tokens = 300, seed = 1234, context = 4096;
  data::SamplingOptions sampling{.temperature = 0.8, .top_k = 200};
  bool prompt_is_given = false, chat = false;
  std::string chat_template, system;  // empty: the template of the config, no system message
};

Device device_of(const std::string& choice) {
  if (choice != "auto") return choice == "cuda" ? Device::Cuda : Device::Cpu;
  std::string reason;
  const Device device = find_device(reason);
  if (device == Device::Cpu) fmt::print(stderr, "trivet: device: auto selected cpu ({})\n", reason);
  return device;
}

void write(const std::string& text) {  // may contain zeros
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// The model that was saved, and what it needs to write text.
class Writer {
 public:
  explicit Writer(const GenerateArguments& arguments) : arguments_(arguments), saved_(arguments.directory, "generate") {
    for (const std::string& note : saved_.notes()) Log().warning(note);
    if (model::family_of(config().model.type).reads_images)
      throw ConfigError(fmt::format("{}: its model of type \"{}\" reads images; only models of text generate",
                                    arguments.directory, name_of(config().model.type)));
    tokenizer_ = saved_.tokenizer();
    if (!tokenizer_)
      throw ConfigError(saved_.step() ? arguments.directory +
                                            ": the checkpoint holds no tokenizer (it was trained on a token file without one, "
                                            "or a program saved it without: Engine::save)"
                                      : fmt::format("{}: the folder has no tokenizer; put the tokenizer.json or "
                                                    "tokenizer.model of the model there",
                                                    saved_.folder()));
    for (int32_t id = 0; id < tokenizer_->vocabulary_size(); ++id)
      if (!tokenizer_->has_token(id)) without_token_.push_back(id);
    const checkpoint::TensorInfo* const embedding = saved_.weights().find("embedding.tokens.weight");
    rows_ = embedding && embedding->shape.dims() == 2 ? embedding->shape[0] : tokenizer_->vocabulary_size();
  }

  const Config& config() const { return saved_.config(); }
  bool is_of_run() const { return saved_.step() != nullptr; }
  // Reads the weights. `most_tokens`: that a text may have.
  void load(int64_t most_tokens) {
    generator_ = std::make_unique<Generator>(model::build(model::with_vocabulary(config().model, rows_)), saved_.weights(),
                                             device_of(arguments_.device), threads_per_rank(1),
                                             std::min(most_tokens, arguments_.context));
  }
  std::shared_ptr<const data::Tokenizer> tokenizer() const { return tokenizer_; }

  // Prints the text that follows `tokens`, up to the first token of `ends`, and returns it.
  std::string continue_text(std::vector<int32_t> tokens, std::span<const int32_t> ends) {
    data::TextStream text(*tokenizer_, tokens);
    std::string all;
    const auto add = [&](const std::string& piece) {
      write(piece);
      all += piece;
    };
    for (int64_t i = 0; i < arguments_.tokens; ++i) {
      auto logits = generator_->next_logits(tokens);
      keep_tokens(logits);
      const int64_t position = static_cast<int64_t>(tokens.size());
      tokens.push_back(data::sample_token(logits, arguments_.sampling, static_cast<uint64_t>(arguments_.seed), 0, position));
      if (std::ranges::find(ends, tokens.back()) != ends.end()) break;
      add(text.next(tokens.back()));
    }
    add(text.rest());
    write("\n");
    return all;
  }

 private:
  // An embedding may have rows without a token, and a tokenizer ids without one: these are not drawn.
  void keep_tokens(std::vector<float>& logits) const {
    logits.resize(std::min(rows_, tokenizer_->vocabulary_size()));
    for (const int32_t id : without_token_)
      if (id < static_cast<int64_t>(logits.size())) logits[static_cast<size_t>(id)] = -INFINITY;
  }

  const GenerateArguments& arguments_;
  trainer::SavedModel saved_;
  std::shared_ptr<data::Tokenizer> tokenizer_;
  std::vector<int32_t> without_token_;
  int64_t rows_ = 0;
  std::unique_ptr<Generator> generator_;
};

// The tokens after which a text has ended: <|endoftext|> or what the vocabulary has in its place, and the end of an answer.
std::vector<int32_t> ends_of_text(const data::Tokenizer& tokenizer, ChatTemplate chat_template) {
  std::vector<int32_t> ends;
  const auto add = [&](const std::string& name) {
    if (const int32_t id = tokenizer.special_id(name); id >= 0) ends.push_back(id);
  };
  add(data::end_of_text_of(tokenizer));
  if (chat_template != ChatTemplate::None) add(data::end_of_answer(chat_template));
  return ends;
}

void generate(const GenerateArguments& arguments, Writer& writer) {
  const data::Tokenizer& tokenizer = *writer.tokenizer();
  std::vector<int32_t> tokens = tokenizer.frame().before;
  const std::vector<int32_t> prompt = tokenizer.encode_with_special(arguments.prompt);
  tokens.insert(tokens.end(), prompt.begin(), prompt.end());
  if (tokens.empty()) throw ConfigError("--prompt: the prompt is empty; give at least one character");
  writer.load(static_cast<int64_t>(tokens.size()) + arguments.tokens);
  std::fputs(arguments.prompt.c_str(), stdout);
  writer.continue_text(std::move(tokens), ends_of_text(tokenizer, writer.config().data.chat_template));
}

ChatTemplate chat_template_of(const GenerateArguments& arguments, const Writer& writer) {
  const ChatTemplate chosen =
      arguments.chat_template.empty() ? writer.config().data.chat_template : *from_name<ChatTemplate>(arguments.chat_template);
  if (chosen != ChatTemplate::None) return chosen;
  const ChatTemplate likely =
      writer.is_of_run() ? ChatTemplate::None : hugging_face::likely_template_in(real_file_system(), arguments.directory);
  if (likely == ChatTemplate::None)
    throw ConfigError(
        fmt::format("{}: the template of its conversations is not known ({}); name with --chat-template the one that its "
                    "training data was prepared with: \"chatml\", \"llama-2\" or \"llama-3\"",
                    arguments.directory,
                    writer.is_of_run() ? "the config of its run has no data.chat_template"
                                       : "a template in Jinja is only recognised if Trivet wrote it"));
  Log().info(
      fmt::format("{}: its template is a program in Jinja, which is not run: conversations are written as {}, whose "
                  "tokens it has (--chat-template)",
                  arguments.directory, name_of(likely)));
  return likely;
}

// The tokens that end an answer: that of the template, and <|endoftext|> or what the vocabulary has in its place.
std::vector<int32_t> ends_of_answer(const GenerateArguments& arguments, const data::Tokenizer& tokenizer,
                                    ChatTemplate chat_template) {
  const std::string end = data::end_of_answer(chat_template);
  if (tokenizer.special_id(end) < 0)
    throw ConfigError(
        fmt::format("{}: its vocabulary has no token {}, with which an answer of the template \"{}\" ends; train with a "
                    "vocabulary that has it: trivet data prepare --chat-template {} --train-bpe N",
                    arguments.directory, end, name_of(chat_template), name_of(chat_template)));
  return ends_of_text(tokenizer, chat_template);
}

// The next question that is not empty; false: there is none.
bool read_question(std::string& question) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  do {
    if (terminal) write("> ");
    if (!std::getline(std::cin, question)) return false;
    if (question.ends_with('\r')) question.pop_back();
  } while (question.empty());
  return true;
}

// The whole conversation is rendered and encoded anew before each answer, so that the model reads the tokens that it would be
// trained on.
void chat(const GenerateArguments& arguments, Writer& writer) {
  const ChatTemplate chat_template = chat_template_of(arguments, writer);
  const std::vector<int32_t> ends = ends_of_answer(arguments, *writer.tokenizer(), chat_template);
  writer.load(arguments.context);
  const data::DocumentEncoder encoder(writer.tokenizer(), {});
  std::vector<data::Message> messages;
  if (!arguments.system.empty()) messages.push_back({"system", arguments.system});
  const auto answer = [&](const std::string& question) {
    messages.push_back({"user", question});
    data::EncodedText encoded;
    encoder.add(data::render_for_answer(chat_template, messages), encoded);
    messages.push_back({"assistant", writer.continue_text(std::move(encoded.ids), ends)});
  };
  if (arguments.prompt_is_given) return answer(arguments.prompt);
  for (std::string question; read_question(question);) answer(question);
}

void run(const GenerateArguments& arguments) {
  data::check(arguments.sampling);
  if (!arguments.chat && !(arguments.chat_template.empty() && arguments.system.empty()))
    throw ConfigError("--chat-template and --system are for conversations; add --chat");
  Writer writer(arguments);
  arguments.chat ? chat(arguments, writer) : generate(arguments, writer);
}

}  // namespace

void add_generate(CLI::App& program) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = program.add_subcommand("generate", "Sample text from a checkpoint or a model of Hugging Face");
  command->footer(
      "Examples:\n"
      "  trivet generate checkpoints --prompt \"In the beginning\" --tokens 200 --temperature 0.8\n"
      "  trivet generate checkpoints/best         from the step with the lowest validation loss (checkpoint.keep_best)\n"
      "  trivet generate ./SmolLM2-135M           from a model of Hugging Face\n"
      "  trivet generate checkpoints --chat       answers the questions that you type, one a line");
  command
      ->add_option(
          "model", arguments->directory,
          "directory of checkpoints, whose newest one is used, or one of them: DIR/step-00000200, DIR/best; or a folder "
          "in Hugging Face's format")
      ->required();
  CLI::Option* prompt = command->add_option(
      "--prompt", arguments->prompt, "what the text begins with (a line break); with --chat: the only question to answer");
  command->add_flag("--chat", arguments->chat,
                    "answer as the assistant: each line of the standard input is what the user says next");
  command
      ->add_option("--chat-template", arguments->chat_template,
                   "with --chat: the template of the training data, chatml, llama-2 or llama-3 (data.chat_template)")
      ->check(CLI::IsMember({"chatml", "llama-2", "llama-3"}));
  command->add_option("--system", arguments->system, "with --chat: a system message in front of the conversation (none)");
  command->add_option("--tokens", arguments->tokens, "how many tokens to add (300); with --chat: at most so many in an answer")
      ->check(from_to(0, 1000000));
  command->add_option("--temperature", arguments->sampling.temperature,
                      "logits are divided by this number; 0 always takes the likeliest token (0.8)");
  command->add_option("--top-k", arguments->sampling.top_k, "keep the k likeliest tokens; 0 keeps all (200)");
  command->add_option("--top-p", arguments->sampling.top_p, "keep the fewest tokens whose probabilities add up to this (1)");
  command->add_option("--context", arguments->context, "read at most so many tokens before the next one (4096)")
      ->check(from_to(1, 10000000));
  command->add_option("--seed", arguments->seed, "seed of the random draws (1234)")
      ->check(from_to(0, std::numeric_limits<int64_t>::max()));
  command->add_option("--device", arguments->device, "cpu, cuda, or auto: cuda where a GPU is found (cpu)")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  command->callback([arguments, prompt] {
    arguments->prompt_is_given = prompt->count() > 0;
    run(*arguments);
  });
}

}  // namespace trivet::cli
