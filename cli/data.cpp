// trivet data prepare | show
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/standard_streams.h"
#include "cli/usage.h"
#include "core/error.h"
#include "core/log.h"
#include "core/printable.h"
#include "data/foreign_tokens.h"
#include "data/prepare.h"
#include "data/token_file.h"
#include "report/monitor/number_text.h"

namespace trivet::cli {
namespace {

using Json = nlohmann::ordered_json;
using monitor::with_commas;

// "12.3 MB/s"
std::string as_json(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string rate(int64_t bytes, double seconds) {
  return fmt::format("{:.1f} MB/s", static_cast<double>(bytes) / 1e6 / seconds);
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::max(1e-6, std::chrono::duration<double>(Clock::now() - start).count());
}

// Shows progress on stderr, so that stdout holds only the result. On a terminal it updates one line in place; elsewhere it
// prints a line when a phase begins and, if it takes long, every 30 seconds.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (terminal_ && !phase_.empty()) std::fputs("\r\x1b[K", stderr);
  }
  void operator()(const data::PrepareStatus& status) {
    const int percent = static_cast<int>(status.done * 100);
    const bool new_phase = status.phase != phase_;
    if (new_phase) begin_ = shown_ = Clock::now();
    if (!new_phase && percent == percent_ && seconds_since(shown_) < 1) return;
    phase_ = status.phase;
    percent_ = percent;
    std::string text = fmt::format("{} {:3} %", phase_, percent);
    if (const double seconds = seconds_since(begin_); status.bytes > 0 && seconds > 0.5)
      text += ", " + rate(status.bytes, seconds);
    if (terminal_)
      fmt::print(stderr, "\r\x1b[K{}", text);
    else if (new_phase)
      fmt::print(stderr, "{}\n", phase_);
    else if (seconds_since(shown_) >= kQuietSeconds)
      fmt::print(stderr, "{}\n", text);
    else
      return;
    shown_ = Clock::now();
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  static constexpr double kQuietSeconds = 30;
  std::string phase_;
  int percent_ = -1;
  Clock::time_point begin_, shown_;  // start of the phase; when the last line was shown
};

struct PrepareArguments {
  data::PrepareOptions options;
  std::string chat_template = "none", read_as = "auto";
  bool json = false;
};

data::PrepareResult prepare_with_progress(const data::PrepareOptions& options) {
  ProgressLine line;
  return data::prepare(options, [&](const data::PrepareStatus& status) { line(status); });
}

std::string tokenizer_in_words(const data::PrepareOptions& options) {
  if (options.train_bpe > 0)
    return fmt::format("a BPE vocabulary of {} tokens, learned from them", with_commas(options.train_bpe));
  return "vocabulary \"" + options.vocabulary + "\"";
}

constexpr int64_t kLeastBpe = 257, kMostBpe = int64_t{1} << 24;

// --vocabulary bpe:1024 is --train-bpe 1024.
void take_bpe_size(data::PrepareOptions& options) {
  const std::string prefix = "bpe:";
  if (!options.vocabulary.starts_with(prefix)) return;
  const std::string size = options.vocabulary.substr(prefix.size());
  int64_t value = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), value);
  if (error != std::errc{} || end != size.data() + size.size() || value < kLeastBpe || value > kMostBpe)
    throw ConfigError(fmt::format("--vocabulary {}: bpe: needs a size from {} to {}, such as bpe:1024",
                                  printable(options.vocabulary), kLeastBpe, kMostBpe));
  options.train_bpe = value;
  options.vocabulary = data::PrepareOptions{}.vocabulary;
}

void run_prepare(const PrepareArguments& arguments) {
  const auto& options = arguments.options;
  if (!arguments.json)
    fmt::print("{} input{} -> {} with {}\n", options.inputs.size(), options.inputs.size() == 1 ? "" : "s", options.output,
               tokenizer_in_words(options));
  std::fflush(stdout);
  const Clock::time_point start = Clock::now();
  const auto result = prepare_with_progress(options);
  const double seconds = seconds_since(start);
  if (arguments.json) {
    const Json json{{"output", options.output},
                    {"text_bytes", result.text_bytes},
                    {"tokens", result.tokens},
                    {"vocabulary_size", result.vocabulary_size},
                    {"tokenizer", result.tokenizer},
                    {"file_bytes", result.file_bytes},
                    {"digest", result.digest},
                    {"documents", result.documents},
                    {"pairs", options.pairs},
                    {"ignored", result.ignored_tokens},
                    {"seconds", seconds},
                    {"pieces", result.pieces},
                    {"pieces_done_before", result.pieces_done_before},
                    {"notes", result.notes}};
    fmt::print("{}\n", json.dump(2));
    return;
  }
  fmt::print("{} bytes of text, {} tokens ({:.2f} bytes a token), vocabulary {}, file {}\n", with_commas(result.text_bytes),
             with_commas(result.tokens), static_cast<double>(result.text_bytes) / static_cast<double>(result.tokens),
             with_commas(result.vocabulary_size), monitor::memory_size(result.file_bytes));
  if (options.pairs)
    fmt::print("{} pair{} of answers", with_commas(result.documents / 2), result.documents == 2 ? "" : "s");
  else
    fmt::print("{} document{}", with_commas(result.documents), result.documents == 1 ? "" : "s");
  if (result.ignored_tokens > 0) fmt::print(", {} tokens that the loss ignores", with_commas(result.ignored_tokens));
  fmt::print("; {:.1f} s, {}\n", seconds, rate(result.text_bytes, seconds));
  if (result.pieces_done_before > 0)
    fmt::print("{} of {} pieces were encoded before, by a preparation that did not end\n",
               with_commas(result.pieces_done_before), with_commas(result.pieces));
  for (const std::string& note : result.notes) fmt::print("note: {}\n", note);
  const bool is_built_in = result.tokenizer == "bytes" || result.tokenizer == "characters";
  fmt::print("next: \"data\": {{\"train\": {0}}}, \"model\": {{\"vocabulary\": {1}, ...}}{2}\n", as_json(options.output),
             as_json(is_built_in ? result.tokenizer : options.output),
             options.pairs ? ", \"training\": {\"objective\": \"dpo\", ...}" : "");
}

const auto kTokenNumber = from_to(0, int64_t{1} << 62);

struct ShowArguments {
  std::string file;
  std::string read_as = "auto";
  int64_t first = 0, count = 64;
  bool verify = false, json = false;
};

std::vector<int32_t> some_tokens(const data::TokenSequence& file, int64_t first, int64_t count) {
  first = std::clamp<int64_t>(first, 0, file.tokens());
  std::vector<int32_t> ids(std::clamp<int64_t>(count, 0, file.tokens() - first));
  file.read(first, ids);
  return ids;
}

// A character that is cut in half at either end must not make the JSON invalid.
std::string text_of(const Json& text) { return text.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::shared_ptr<data::StoredTokenFile> opened(const ShowArguments& arguments) {
  if (arguments.read_as == "auto") return data::open_token_file(arguments.file);
  return data::open_ids(arguments.file, arguments.read_as == "uint16" ? data::TokenType::UInt16 : data::TokenType::Int32);
}

void run_show(const ShowArguments& arguments) {
  const auto file = opened(arguments);
  const auto& info = file->info();
  if (arguments.verify) data::verify_tokens(arguments.file);
  const auto ids = some_tokens(*file, arguments.first, arguments.count);
  const bool has_tokenizer = !info.tokenizer_text.empty();
  const std::string text = has_tokenizer ? data::tokenizer_from_text(info.tokenizer_text, arguments.file)->decode(ids) : "";
  const int64_t bits = 8 * data::bytes_of(info.type);
  const std::string type = fmt::format("{}int{}", info.type >= data::TokenType::Int32 ? "" : "u", bits);
  if (arguments.json) {
    Json json{{"format", info.format}, {"type", type}, {"tokens", info.tokens}, {"digest", file->digest()}};
    if (info.vocabulary_size > 0) json["vocabulary_size"] = info.vocabulary_size;
    if (info.documents > 0) json["documents"] = info.documents;
    if (info.pairs) json["pairs"] = true;
    if (info.ignores_some) json["ignores_some"] = true;
    if (has_tokenizer) json["tokenizer"] = info.tokenizer_name;
    if (arguments.verify) json["verified"] = true;
    json["first"] = arguments.first;
    json["ids"] = ids;
    if (has_tokenizer) json["text"] = text;
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
    return;
  }
  fmt::print("format      {}\ntokens      {} of {}\n", info.format, with_commas(info.tokens), type);
  fmt::print("vocabulary  {}\n", info.vocabulary_size > 0 ? with_commas(info.vocabulary_size) : "not stated by this format");
  if (info.pairs)
    fmt::print("pairs       {}\n", with_commas(info.documents / 2));
  else if (info.documents > 0)
    fmt::print("documents   {}\n", with_commas(info.documents));
  if (has_tokenizer) fmt::print("tokenizer   {}\n", escape_control(info.tokenizer_name));
  fmt::print("digest      {}\n", file->digest());
  if (arguments.verify) fmt::print("verified    every token read; no errors found\n");
  fmt::print("from {:<6} {}\n", arguments.first, has_tokenizer ? text_of(text) : fmt::format("{}", fmt::join(ids, " ")));
}

void add_prepare(CLI::App& data) {
  auto arguments = std::make_shared<PrepareArguments>();
  auto& options = arguments->options;
  CLI::App* prepare = data.add_subcommand(
      "prepare", "Turn texts into one token file, for training. Run again after an interruption, it goes on where it was");
  prepare
      ->add_option("inputs", options.inputs,
                   "texts, objects of JSON (on lines or in a list) with \"text\", \"prompt\" and \"completion\" or "
                   "\"messages\", folders of both, and names with a *; plain, gzip or zstd")
      ->required();
  prepare->add_option("-o,--output", options.output, "the token file to write")->required();
  auto* vocabulary = prepare->add_option("--vocabulary", options.vocabulary,
                                         "bytes (default), characters, a file (tokenizer.json, tokenizer.model, vocab.bpe, "
                                         ".tiktoken, .tokens) or a folder with one, or bpe:SIZE, "
                                         "the same as --train-bpe SIZE");
  prepare->add_option("--train-bpe,--vocabulary-size", options.train_bpe, "learn a byte-level BPE vocabulary of this size")
      ->check(from_to(kLeastBpe, kMostBpe))
      ->excludes(vocabulary);
  prepare->add_flag(
      "--end-of-text", options.end_of_text,
      "put <|endoftext|>, or what the tokenizer has in its place, after each text; completions always end with it");
  prepare->add_flag(
      "--special-tokens", options.special_tokens,
      "recognize special tokens such as <|im_start|> in the text, end a document where <|endoftext|> or the like is in a plain "
      "text, and put those of the tokenizer's template around each text; conversations have the chat template instead");
  prepare->add_option("--chat-template", arguments->chat_template, "how \"messages\" become text: chatml, llama-2 or llama-3")
      ->check(CLI::IsMember({"chatml", "llama-2", "llama-3"}));
  prepare
      ->add_option("--read-as", arguments->read_as,
                   "auto (default): as what the content of a file says; text: as text in UTF-8, also if it looks like JSON; "
                   "bytes: as text in any bytes")
      ->check(CLI::IsMember({"auto", "text", "bytes"}));
  prepare->add_flag(
      "--pairs", options.pairs,
      "for training.objective \"dpo\": each line of JSON has \"prompt\", \"chosen\" and \"rejected\", strings or lists "
      "of messages");
  prepare
      ->add_option("--threads", options.threads,
                   "threads that encode; 0: as many as there are processors, at most 16 (default)")
      ->check(from_to(0, 1024));
  prepare->add_flag("--force", options.replace, "replace the output if it exists");
  prepare->add_flag("--json", arguments->json, "print the result as JSON");
  prepare->footer("Example: trivet data prepare book1.txt book2.txt.gz --train-bpe 8192 --output books.tokens");
  prepare->callback([arguments] {
    take_bpe_size(arguments->options);
    for (const auto& [name, value] : EnumNames<ChatTemplate>::table)
      if (name == arguments->chat_template) arguments->options.chat_template = value;
    for (const auto& [name, value] : EnumNames<ReadAs>::table)
      if (name == arguments->read_as) arguments->options.read_as = value;
    print_without_waiting(arguments->json ? Printing::Result : Printing::Progress, [&] { run_prepare(*arguments); });
  });
}

void add_show(CLI::App& data) {
  auto arguments = std::make_shared<ShowArguments>();
  CLI::App* show = data.add_subcommand("show", "Describe a token file (.tokens, Megatron .bin/.idx, llm.c .bin, NumPy .npy)");
  show->add_option("file", arguments->file, "the token file")->required();
  show->add_option(
          "--read-as", arguments->read_as,
          "auto (default): as what the content of the file says; uint16, uint32: as ids of tokens without a header, such "
          "as nanoGPT's train.bin")
      ->check(CLI::IsMember({"auto", "uint16", "uint32"}));
  show->add_option("--first", arguments->first, "number of the first token to print")->check(kTokenNumber);
  show->add_option("--count", arguments->count, "how many tokens to print (default 64)")->check(kTokenNumber);
  show->add_flag("--verify", arguments->verify, "read every token, and compare the checksum if there is one");
  show->add_flag("--json", arguments->json, "print the result as JSON");
  show->footer("Example: trivet data show books.tokens --first 1000 --verify");
  show->callback([arguments] { run_show(*arguments); });
}

}  // namespace

void add_data(CLI::App& program) {
  CLI::App* data = program.add_subcommand("data", "Prepare and inspect training data");
  data->require_subcommand(1);
  add_prepare(*data);
  add_show(*data);
}

}  // namespace trivet::cli
