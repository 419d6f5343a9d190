#include "data/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "core/output_guard.h"
#include "data/bpe_train.h"
#include "data/characters.h"
#include "data/chat_template.h"
#include "data/counted_targets.h"
#include "data/data_error.h"
#include "data/document_encoder.h"
#include "data/encoded_parts.h"
#include "data/file_pattern.h"
#include "data/token_file.h"
#include "data/work_threads.h"

namespace trivet::data {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_tokens(const std::string& path) {
  bad_file(path, "is already a token file; `trivet data show` prints what is in it");
}

void check_input(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return;
  if (!token_format_of(path)) return;
  open_token_file(path);  // says what is wrong with a file that only has the name of one
  refuse_tokens(path);
}

std::string name_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory: return "directory";
    case fs::file_type::fifo: return "FIFO";
    case fs::file_type::socket: return "socket";
    case fs::file_type::block:
    case fs::file_type::character: return "device";
    default: return "special file";
  }
}

// The inputs, and the files that match those with a "*", as in data.train.
MatchingFiles named_files(const std::vector<std::string>& inputs) {
  MatchingFiles all;
  for (const std::string& input : inputs) {
    MatchingFiles matching = matching_files(input);
    all.paths.insert(all.paths.end(), matching.paths.begin(), matching.paths.end());
    if (!matching.note.empty()) all.note += (all.note.empty() ? "" : "; ") + matching.note;
  }
  return all;
}

// A file of tokens in a folder of texts would be left out of it the next time, so none is put there.
void check_not_input(const PrepareOptions& options, const InputFiles& inputs) {
  OutputGuard guard;
  for (const InputFile& text : inputs.texts) guard.reads(text.path, "a text");
  for (const std::string& input : options.inputs) name_inputs(guard, input, "an input");
  const bool built_in = options.train_bpe > 0 || options.vocabulary == "bytes" || options.vocabulary == "characters";
  if (!built_in) guard.reads(options.vocabulary, "--vocabulary");
  guard.check_not_input({.path = options.output, .key = "--output", .what = "tokens"});
}

// The output is put in place by a rename, which would replace a device or a FIFO with a file.
void check_output(const PrepareOptions& options) {
  const fs::path folder = fs::path(options.output).parent_path();
  if (!folder.empty() && !fs::is_directory(folder))
    bad_file(options.output, fmt::format("{} {}", folder.string(), fs::exists(folder) ? "is no folder" : "does not exist"));
  const fs::file_status status = fs::status(options.output);
  if (!fs::exists(status)) return;
  if (!fs::is_regular_file(status)) bad_file(options.output, "is a " + name_of(status.type()) + "; name a file");
  if (!options.replace) bad_file(options.output, "exists; give --force to replace it");
}

void check_vocabulary(const PrepareOptions& options) {
  const std::string& name = options.vocabulary;
  if (options.train_bpe > 0 || name == "bytes" || name == "characters" || fs::exists(name)) return;
  throw DataError(ExitCode::Usage, fmt::format("--vocabulary {}: no such file; use bytes, characters or a tokenizer file; "
                                               "--train-bpe N learns a BPE vocabulary of N tokens instead",
                                               name));
}

class Preparation {
 public:
  Preparation(const PrepareOptions& options, InputFiles inputs, const PrepareProgress& progress)
      : options_(options), progress_(progress), inputs_(std::move(inputs)) {}

  PrepareResult run() {
    const std::shared_ptr<Tokenizer> tokenizer = make_tokenizer();
    if (options_.end_of_text) check_end_of_text(*tokenizer);
    const EncodedParts parts(
        options_.output + ".parts", *tokenizer,
        fmt::format("{} {} {}{}", name_of(options_.chat_template), options_.end_of_text,
                    options_.special_tokens ? "with ends of documents" : "false", options_.pairs ? " pairs" : ""),
        options_.pairs);
    check_output(options_);  // again: another preparation may have made it before this one had the parts
    PrepareResult result{.vocabulary_size = tokenizer->vocabulary_size(), .tokenizer = tokenizer->name()};
    const std::vector<Part> encoded = encode(tokenizer, parts, result);
    if (options_.pairs) note_equal_pairs(encoded, result);
    TokenFileWriter writer(options_.output, *tokenizer, options_.pairs);
    for (size_t i = 0; i < encoded.size(); ++i) {
      parts.copy(encoded[i].file, encoded[i].goes_on, writer);
      report("writing tokens", static_cast<double>(i + 1) / static_cast<double>(encoded.size()));
    }
    refuse_without_targets(writer);
    writer.finish();
    parts.remove();
    const auto output = open_token_file(options_.output);
    result.tokens = output->tokens();
    result.documents = output->info().documents;
    result.ignored_tokens = writer.ignored_tokens();
    result.file_bytes = static_cast<int64_t>(fs::file_size(options_.output));
    result.digest = output->digest();
    add_notes(*tokenizer, result);
    return result;
  }

 private:
  LineKind line_kind() const { return options_.pairs ? LineKind::Pair : LineKind::Text; }

  int threads() const {
    return options_.threads > 0 ? options_.threads : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
  }

  struct Part {
    std::string file;
    bool goes_on = false;  // the next part goes on with its text
  };

  // Returns all parts in their order.
  std::vector<Part> encode(const std::shared_ptr<Tokenizer>& tokenizer, const EncodedParts& parts, PrepareResult& result) {
    const DocumentEncoder encoder(tokenizer, {.lines = line_kind(),
                                              .chat_template = options_.chat_template,
                                              .end_of_each_text = options_.end_of_text,
                                              .special_tokens = options_.special_tokens});
    TextPieces pieces(inputs_.texts, options_.piece_bytes,
                      [&](std::string_view text, size_t limit) { return tokenizer->piece_bytes(text, limit); });
    std::vector<Part> all;
    WorkThreads workers(threads());
    const auto read_all = [&] {
      for (InputPiece piece; !workers.has_failed() && pieces.next(piece);) {
        const std::string file = parts.file_of(static_cast<int64_t>(all.size()), piece);
        all.push_back({file, !piece.lines && !piece.ends_document});
        if (EncodedParts::holds(file))
          ++result.pieces_done_before;
        else
          workers.add([this, &encoder, &parts, file, text = std::move(piece)] {
            const EncodedText encoded = encoder.encode(text);
            parts.write(file, encoded);
            add_facts(encoded.facts);
          });
        report(kEncoding, pieces.share_read(), pieces.bytes());
      }
    };
    try {
      read_all();
    } catch (...) {
      workers.finish();  // an error in an earlier piece comes first
      throw;
    }
    workers.finish();
    report(kEncoding, 1, pieces.bytes());
    result.text_bytes = pieces.bytes();
    result.pieces = static_cast<int64_t>(all.size());
    return all;
  }

  std::shared_ptr<Tokenizer> make_tokenizer() {
    if (options_.train_bpe > 0) return trained();
    if (options_.vocabulary == "bytes") return bytes_tokenizer();
    if (options_.vocabulary != "characters") return load_tokenizer(options_.vocabulary);
    std::set<char32_t> all;
    over_texts("collecting characters", [&](std::string_view text, bool) {
      const auto some = distinct_characters(text);
      all.insert(some.begin(), some.end());
    });
    return std::make_shared<CharactersTokenizer>(std::vector<char32_t>(all.begin(), all.end()));
  }

  // The special tokens of the chat template come last.
  std::shared_ptr<Tokenizer> trained() {
    WordCounts words;
    over_texts("counting words", [&](std::string_view text, bool special) {
      if (!special) words.add(text);
    });
    const std::vector<std::string> special = special_tokens_of(options_.chat_template);
    const int64_t size = options_.train_bpe - static_cast<int64_t>(special.size());
    const auto learned = train_bpe(words, size, [&](int64_t tokens, int64_t of) {
      report("learning merges", static_cast<double>(tokens) / static_cast<double>(of));
    });
    if (learned->vocabulary_size() < size)
      learned_fewer_ = fmt::format("{} tokens were learned, not {}: the texts have no more pairs of tokens to join",
                                   learned->vocabulary_size() + static_cast<int64_t>(special.size()), options_.train_bpe);
    if (special.empty()) return learned;
    BpeVocabulary vocabulary = learned->vocabulary();
    for (const std::string& token : special) {
      vocabulary.special.push_back(static_cast<int32_t>(vocabulary.tokens.size()));
      vocabulary.tokens.push_back(token);
    }
    return std::make_shared<BpeTokenizer>(std::move(vocabulary), "the learned vocabulary");
  }

  void add_facts(const LineFacts& facts) {
    const std::lock_guard lock(facts_mutex_);
    facts_.add(facts);
  }

  // Refuses prepared data with nothing to learn: every training that counts completions would refuse it.
  void refuse_without_targets(const TokenFileWriter& writer) const {
    if (writer.tokens() == 0)
      bad_file(options_.inputs[0], "has no text, so there is nothing to prepare; name texts that have some");
    if (writer.ignored_tokens() < writer.tokens()) return;
    bad_file(options_.inputs[0],
             fmt::format("{}nothing to learn: the loss counts none of the {} tokens, because no conversation has an answer of "
                         "the assistant whose weight is not 0, and no prompt a completion; use data with answers, or, to learn "
                         "all of the texts, lines with \"text\"",
                         options_.inputs.size() == 1 ? "has " : "and the other inputs have ", writer.tokens()));
  }

  // Pairs with equal answers teach nothing.
  void note_equal_pairs(const std::vector<Part>& parts, PrepareResult& result) const {
    PairCounts counts;
    for (const Part& part : parts) counts.add(count_pairs(*open_tokens(part.file)));
    if (counts.all > 0 && counts.equal == counts.all) bad_file(options_.inputs[0], counts.in_words());
    if (counts.equal > 0) result.notes.push_back(counts.in_words());
  }

  static void check_end_of_text(const Tokenizer& tokenizer) {
    if (end_of_text_of(tokenizer).empty())
      throw DataError(ExitCode::Usage,
                      fmt::format("--end-of-text: the vocabulary \"{}\" has no {}; leave the flag out or use BPE",
                                  tokenizer.name(), kEndOfText));
  }

  void add_notes(const Tokenizer& tokenizer, PrepareResult& result) const {
    if (std::string note = note_on_end_of_text(options_.vocabulary, tokenizer); options_.train_bpe == 0 && !note.empty())
      result.notes.push_back(std::move(note));
    for (std::string& note : notes_on_template(options_.chat_template, tokenizer)) result.notes.push_back(std::move(note));
    result.notes.insert(result.notes.end(), inputs_.notes.begin(), inputs_.notes.end());
    if (options_.special_tokens && !has_special_tokens(tokenizer))
      result.notes.push_back(
          fmt::format("--special-tokens has no effect: the vocabulary \"{}\" has no special tokens", tokenizer.name()));
    const bool only_messages_have_it = options_.train_bpe == 0;  // a vocabulary that is learned gets its tokens in any case
    if (options_.chat_template != ChatTemplate::None && only_messages_have_it && facts_.conversations == 0 &&
        result.pieces_done_before == 0)
      result.notes.push_back("--chat-template has no effect: the data have no messages");
    if (!learned_fewer_.empty()) result.notes.push_back(learned_fewer_);
    for (std::string& sentence : facts_.sentences()) result.notes.push_back(std::move(sentence));
  }

  template <typename Work>
  void over_texts(std::string_view phase, Work work) {
    const bool counts_words = options_.train_bpe > 0;
    TextPieces pieces(inputs_.texts, options_.piece_bytes, counts_words ? cut_at_words : cut_at_characters);
    const auto report_after = [&](std::string_view text, bool special) {
      work(text, special);
      report(phase, pieces.share_read(), pieces.bytes());
    };
    for_each_text(pieces, options_.chat_template, report_after, line_kind());
    report(phase, 1, pieces.bytes());
  }

  void report(std::string_view phase, double done, int64_t bytes = 0) const {
    if (progress_) progress_({phase, done, bytes});
  }

  static constexpr std::string_view kEncoding = "encoding";

  const PrepareOptions& options_;
  const PrepareProgress& progress_;
  InputFiles inputs_;
  std::string learned_fewer_;  // a note on a vocabulary
  LineFacts facts_;            // without those of parts that were encoded before
  std::mutex facts_mutex_;
};

}  // namespace

PrepareResult prepare(const PrepareOptions& options, const PrepareProgress& progress) {
  if (options.inputs.empty()) throw DataError(ExitCode::Usage, "data prepare: no input; name one or more texts");
  const MatchingFiles named = named_files(options.inputs);
  for (const std::string& input : named.paths) check_input(input);
  check_vocabulary(options);
  InputFiles inputs = find_inputs(named.paths, options.read_as, FolderUse::Prepare);
  if (!named.note.empty()) inputs.notes.push_back(named.note);
  for (const std::string& tokens : inputs.tokens) check_input(tokens);
  if (!inputs.tokens.empty()) refuse_tokens(inputs.tokens[0]);
  check_not_input(options, inputs);
  check_output(options);
  return Preparation(options, std::move(inputs), progress).run();
}

}  // namespace trivet::data
