#include "engine/data/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/data/bpe_train.h"
#include "engine/data/characters.h"
#include "engine/data/data_error.h"
#include "engine/data/text_file.h"
#include "engine/data/token_file.h"
#include "engine/data/word_split.h"

namespace trivet::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = size_t{1} << 22;

void check_input(const std::string& path, const std::string& output) {
  std::error_code ignored;
  if (fs::equivalent(path, output, ignored)) bad_file(path, "is also the output; name another output");
  if (token_format_of(path)) bad_file(path, "is already a token file; `trivet data show` prints what is in it");
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

// The output is put in place by a rename, which would replace a device or a FIFO with a file.
void check_output(const PrepareOptions& options) {
  const fs::path folder = fs::path(options.output).parent_path();
  if (!folder.empty() && !fs::is_directory(folder))
    bad_file(options.output, "the folder " + folder.string() + " does not exist");
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
  Preparation(const PrepareOptions& options, const PrepareProgress& progress) : options_(options), progress_(progress) {}

  PrepareResult run() {
    const auto tokenizer = make_tokenizer();
    if (options_.end_of_text) check_end_of_text(*tokenizer);
    TokenFileWriter writer(options_.output, *tokenizer);
    const SpecialFrame frame = tokenizer->frame();
    bool at_start = true;
    for_each_piece(
        "writing tokens", [&](std::string_view rest) { return tokenizer->piece_bytes(rest, kPieceBytes); },
        [&](std::string_view piece) {
          if (options_.special_tokens && at_start) writer.add(frame.before);
          at_start = false;
          writer.add(options_.special_tokens ? tokenizer->encode_with_special(piece) : tokenizer->encode(piece));
        },
        [&] {
          at_start = true;
          if (options_.special_tokens) writer.add(frame.after);
          if (options_.end_of_text) writer.add(std::vector<int32_t>{end_of_text_of(*tokenizer)});
        });
    writer.finish();
    return {.text_bytes = text_bytes_,
            .tokens = writer.tokens(),
            .vocabulary_size = tokenizer->vocabulary_size(),
            .file_bytes = static_cast<int64_t>(fs::file_size(options_.output)),
            .tokenizer = tokenizer->name(),
            .digest = open_tokens(options_.output)->digest()};
  }

 private:
  std::shared_ptr<Tokenizer> make_tokenizer() {
    if (options_.train_bpe > 0) return trained();
    if (options_.vocabulary == "bytes") return bytes_tokenizer();
    if (options_.vocabulary != "characters") return load_tokenizer(options_.vocabulary);
    std::set<char32_t> all;
    for_each_piece("collecting characters", [&](std::string_view piece) {
      const auto some = distinct_characters(piece);
      all.insert(some.begin(), some.end());
    });
    return std::make_shared<CharactersTokenizer>(std::vector<char32_t>(all.begin(), all.end()));
  }

  std::shared_ptr<Tokenizer> trained() {
    WordCounts words;
    for_each_piece("counting words", [&](std::string_view piece) { words.add(piece); });
    return train_bpe(words, options_.train_bpe, [&](int64_t tokens, int64_t of) {
      report("learning merges", static_cast<double>(tokens) / static_cast<double>(of));
    });
  }

  static void check_end_of_text(const Tokenizer& tokenizer) {
    if (end_of_text_of(tokenizer) < 0)
      throw DataError(ExitCode::Usage,
                      fmt::format("--end-of-text: the vocabulary \"{}\" has no {}; leave the flag out or use BPE",
                                  tokenizer.name(), kEndOfText));
  }

  // Calls `work` on all texts, in pieces of as many bytes as `piece_bytes` says of the rest, and `end` after each text. Adds
  // the name of the file to errors of `work`.
  template <typename PieceBytes, typename Work, typename End>
  void for_each_piece(std::string_view phase, PieceBytes piece_bytes, Work work, End end) {
    text_bytes_ = 0;
    for (size_t i = 0; i < options_.inputs.size(); ++i) {
      const std::string text = read_text(options_.inputs[i]);
      text_bytes_ += static_cast<int64_t>(text.size());
      for (std::string_view rest = text; !rest.empty();) {
        const double within = 1 - static_cast<double>(rest.size()) / static_cast<double>(text.size());
        report(phase, (static_cast<double>(i) + within) / static_cast<double>(options_.inputs.size()));
        const size_t bytes = piece_bytes(rest);
        name_errors(options_.inputs[i], text.size() - rest.size(), [&] { work(rest.substr(0, bytes)); });
        rest.remove_prefix(bytes);
      }
      end();
    }
    report(phase, 1);
  }

  template <typename Work>
  void for_each_piece(std::string_view phase, Work work) {
    for_each_piece(
        phase, [](std::string_view rest) { return piece_bytes(rest, kPieceBytes); }, work, [] {});
  }

  template <typename Work>
  static void name_errors(const std::string& path, size_t offset, Work work) {
    try {
      work();
    } catch (const DataError& error) {
      const std::string from = offset == 0 ? "" : fmt::format("in the piece that starts at byte {}: ", offset);
      throw DataError(error.exit_code(), path + ": " + from + error.what());
    }
  }

  void report(std::string_view phase, double done) const {
    if (progress_) progress_(phase, done);
  }

  const PrepareOptions& options_;
  const PrepareProgress& progress_;
  int64_t text_bytes_ = 0;
};

}  // namespace

PrepareResult prepare(const PrepareOptions& options, const PrepareProgress& progress) {
  if (options.inputs.empty()) throw DataError(ExitCode::Usage, "data prepare: no input; name one or more texts");
  for (const auto& input : options.inputs) check_input(input, options.output);
  check_output(options);
  check_vocabulary(options);
  return Preparation(options, progress).run();
}

}  // namespace trivet::data
