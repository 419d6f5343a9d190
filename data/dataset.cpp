#include "data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <span>

#include "core/printable.h"
#include "core/shell_words.h"
#include "data/characters.h"
#include "data/chat_template.h"
#include "data/counted_targets.h"
#include "data/data_error.h"
#include "data/document_encoder.h"
#include "data/file_pattern.h"
#include "data/folder_walk.h"
#include "data/foreign_tokens.h"
#include "data/input_files.h"
#include "data/text_file.h"
#include "data/token_array.h"
#include "data/token_file.h"
#include "data/unpacked_file.h"

namespace trivet::data {
namespace {

constexpr size_t kTextPieceBytes = size_t{1} << 24;

[[noreturn]] void bad_key(const DataOptions& options, const std::string& key, const std::string& message) {
  throw DataError(ExitCode::Usage, (options.source.empty() ? "" : options.source + ": ") + key + ": " + message);
}

std::string vocabulary_in_words(const DataOptions& options) {
  switch (options.vocabulary) {
    case VocabularyKind::Bytes: return "\"bytes\"";
    case VocabularyKind::Characters: return "\"characters\"";
    case VocabularyKind::Tokenizer: return "\"" + options.tokenizer_file + "\"";
    case VocabularyKind::Size: return std::to_string(options.vocabulary_size);
  }
  return "?";
}

struct Opened {
  std::shared_ptr<TokenSequence> tokens;
  std::shared_ptr<Tokenizer> tokenizer;
  std::vector<std::string> notes = {};
  LineFacts facts = {};
  std::vector<std::string> files = {};
};

// Refuses a token file that was made with a different tokenizer from the one that the config names.
void check_vocabulary(const DataOptions& options, const std::string& path, const TokenFileInfo& info) {
  const auto mismatch = [&](const std::string& advice) {
    bad_key(options, "model.vocabulary",
            fmt::format("{}, but {} was made with tokenizer \"{}\" of {} tokens; use {}", vocabulary_in_words(options), path,
                        info.tokenizer_name, info.vocabulary_size, advice));
  };
  const std::string kind = info.tokenizer_name;
  const std::string own =
      kind == "bytes" || kind == "characters" ? "\"" + kind + "\"" : "\"" + path + "\" (which contains its tokenizer)";
  const auto is_other = [&] {
    return options.tokenizer_file != path &&
           !encode_alike(load_tokenizer(options.tokenizer_file)->to_text(), info.tokenizer_text);
  };
  switch (options.vocabulary) {
    case VocabularyKind::Bytes:
      if (kind != "bytes") mismatch(own);
      return;
    case VocabularyKind::Characters:
      if (kind != "characters") mismatch(own);
      return;
    case VocabularyKind::Tokenizer:
      if (is_other())
        mismatch(
            fmt::format("data that were prepared with that tokenizer (trivet data prepare --vocabulary {}), or, for a model "
                        "that is new, {}",
                        quoted(options.tokenizer_file), own));
      return;
    case VocabularyKind::Size:
      if (options.vocabulary_size < info.vocabulary_size) mismatch(fmt::format("at least {}", info.vocabulary_size));
      if (!options.tokenizer_file.empty() && is_other())
        bad_key(
            options, "model.vocabulary",
            fmt::format("the tokenizer of the weights is {}, but {} was made with tokenizer \"{}\" of {} tokens; use data that "
                        "were prepared with that of the weights (trivet data prepare --vocabulary {}), or, if the weights are "
                        "to learn another one, {}",
                        printable(options.tokenizer_file), path, info.tokenizer_name, info.vocabulary_size,
                        quoted(options.tokenizer_file), own));
      return;
  }
}

FolderUse use_of(const DataOptions& options) { return options.data.only_evaluated ? FolderUse::Validate : FolderUse::Train; }

bool reads_ids(const DataOptions& options) {
  return options.data.read_as == ReadAs::UInt16 || options.data.read_as == ReadAs::UInt32;
}

std::shared_ptr<StoredTokenFile> open_stored(const DataOptions& options, const std::string& path) {
  if (!reads_ids(options)) return open_token_file(path);
  return open_ids(path, options.data.read_as == ReadAs::UInt16 ? TokenType::UInt16 : TokenType::Int32);
}

Opened open_token_data(const DataOptions& options, const std::string& path) {
  const auto file = open_stored(options, path);
  const TokenFileInfo& info = file->info();
  if (!info.tokenizer_text.empty()) {
    check_vocabulary(options, path, info);
    return {file, tokenizer_from_text(info.tokenizer_text, path)};
  }
  if (options.vocabulary == VocabularyKind::Tokenizer) return {file, load_tokenizer(options.tokenizer_file)};
  if (options.vocabulary == VocabularyKind::Size) return {file, nullptr};
  bad_key(options, "model.vocabulary",
          fmt::format(
              "{}, but {} is a {} file, which does not say its vocabulary; use its size (50257 for GPT-2) or a tokenizer file",
              vocabulary_in_words(options), path, info.format));
}

// Checks the ids of a file that does not state its vocabulary against the model's vocabulary as they are read.
class CheckedTokens : public TokenSequence {
 public:
  CheckedTokens(std::shared_ptr<TokenSequence> file, int64_t vocabulary_size, std::string path)
      : file_(std::move(file)), vocabulary_size_(vocabulary_size), path_(std::move(path)) {}
  int64_t tokens() const override { return file_->tokens(); }
  int64_t vocabulary_size() const override { return vocabulary_size_; }
  void read(int64_t first, std::span<int32_t> out) const override {
    file_->read(first, out);
    check_ids(first, out, vocabulary_size_, path_);
  }
  std::vector<int64_t> document_ends() const override { return file_->document_ends(); }
  bool has_pairs() const override { return file_->has_pairs(); }
  bool marks_prompts() const override { return file_->marks_prompts(); }
  void ignore(int64_t first, std::span<int32_t> targets) const override { file_->ignore(first, targets); }
  std::string digest() const override { return file_->digest(); }

 private:
  std::shared_ptr<TokenSequence> file_;
  int64_t vocabulary_size_;
  std::string path_;
};

std::shared_ptr<TokenSequence> checked(std::shared_ptr<TokenSequence> file, int64_t vocabulary_size, const std::string& path) {
  if (file->vocabulary_size() != 0) return file;
  return std::make_shared<CheckedTokens>(std::move(file), vocabulary_size, path);
}

LineKind line_kind(const DataOptions& options) { return options.pairs ? LineKind::Pair : LineKind::Text; }

std::vector<char32_t> characters_in(const std::vector<InputFile>& files, const DataOptions& options) {
  std::set<char32_t> all;
  TextPieces pieces(files, kTextPieceBytes);
  const auto collect = [&](std::string_view text, bool) {
    const auto some = distinct_characters(text);
    all.insert(some.begin(), some.end());
  };
  for_each_text(pieces, options.data.chat_template, collect, line_kind(options));
  return {all.begin(), all.end()};
}

// The tokenizer that the config requests, for these texts.
std::shared_ptr<Tokenizer> tokenizer_for(const DataOptions& options, const std::vector<InputFile>& files) {
  switch (options.vocabulary) {
    case VocabularyKind::Bytes: return bytes_tokenizer();
    case VocabularyKind::Characters: return std::make_shared<CharactersTokenizer>(characters_in(files, options));
    case VocabularyKind::Tokenizer: return load_tokenizer(options.tokenizer_file);
    case VocabularyKind::Size: break;
  }
  bad_key(options, "model.vocabulary",
          fmt::format(
              "{} is a size, but {} is text, which needs a tokenizer; use \"bytes\", \"characters\" or a tokenizer file, or "
              "prepare a token file with `trivet data prepare`",
              options.vocabulary_size, files[0].path));
}

// Texts and objects of JSON, which become documents. If `tokenizer` is null, the tokenizer that the config requests is used.
Opened open_documents(const DataOptions& options, const std::string& name, const std::vector<InputFile>& files,
                      std::shared_ptr<Tokenizer> tokenizer) {
  if (!tokenizer) tokenizer = tokenizer_for(options, files);
  const DocumentEncoder encoder(tokenizer, {.lines = line_kind(options),
                                            .chat_template = options.data.chat_template,
                                            .special_tokens = options.data.special_tokens});
  EncodedText all;
  TextPieces pieces(files, kTextPieceBytes,
                    [&](std::string_view text, size_t limit) { return tokenizer->piece_bytes(text, limit); });
  for (InputPiece piece; pieces.next(piece);) {
    append(all, encoder.encode(piece));
    if (pieces.bytes() > kMaxTextBytes)
      bad_file(name, fmt::format("has more than {} bytes (unpacked), the maximum for texts that are tokenized in memory; "
                                 "make a token file with `trivet data prepare`",
                                 kMaxTextBytes));
  }
  if (all.ids.empty()) bad_file(name, "has no text");
  LineFacts facts = all.facts;
  if (options.data.loss_on == LossOn::All) facts.without_targets = 0;  // all of their tokens are targets
  return {.tokens = std::make_shared<TokenArray>(std::move(all), tokenizer->vocabulary_size(), options.pairs),
          .tokenizer = tokenizer,
          .facts = std::move(facts)};
}

void check_prompts(const DataOptions& options, const std::string& name, const TokenSequence& tokens) {
  if (options.needs_prompts && !tokens.marks_prompts())
    bad_file(name,
             "marks no prompts, which training.objective \"sft\" needs; use lines of JSON (.jsonl) with \"prompt\" and "
             "\"completion\", or with \"messages\", or the objective \"next_token\", which counts all tokens of a text");
}

// Files of tokens, one after the other.
Opened open_shards(const DataOptions& options, const std::vector<std::string>& paths) {
  std::vector<std::shared_ptr<TokenSequence>> parts;
  std::shared_ptr<Tokenizer> tokenizer;
  for (const std::string& path : paths) {
    if (path.ends_with(".idx") && std::ranges::find(paths, data_file_of(path)) != paths.end()) continue;  // the same tokens
    const Opened shard = open_token_data(options, path);
    const auto text_of = [](const std::shared_ptr<Tokenizer>& one) { return one ? one->to_text() : ""; };
    if (parts.empty()) tokenizer = shard.tokenizer;
    if (text_of(tokenizer) != text_of(shard.tokenizer))
      bad_file(path, fmt::format("has a different tokenizer from {}; prepare both with the same one", paths[0]));
    if (!parts.empty() && parts[0]->has_pairs() != shard.tokens->has_pairs())
      bad_file(path, fmt::format("only one of this file and {} holds pairs of answers; name files of one kind", paths[0]));
    check_prompts(options, path, *shard.tokens);
    const int64_t size = tokenizer ? tokenizer->vocabulary_size() : options.vocabulary_size;
    parts.push_back(checked(shard.tokens, size, path));
  }
  return {.tokens = std::make_shared<JoinedTokens>(std::move(parts)), .tokenizer = tokenizer};
}

// Keys that say how texts become tokens.
void note_keys_of_texts(const DataOptions& options, const std::string& pattern, const InputFiles& inputs, Opened& opened) {
  const bool are_tokens = !inputs.tokens.empty();
  const std::string made =
      are_tokens ? printable(inputs.tokens[0]) + " holds tokens, made as the command that wrote it was told" : "";
  if (options.data.special_tokens && are_tokens) opened.notes.push_back("data.special_tokens has no effect: " + made);
  if (options.data.special_tokens && opened.tokenizer && !has_special_tokens(*opened.tokenizer))
    opened.notes.push_back(fmt::format("data.special_tokens has no effect: the vocabulary \"{}\" has no special tokens",
                                       opened.tokenizer->name()));
  if (options.data.chat_template == ChatTemplate::None) return;
  if (are_tokens)
    opened.notes.push_back("data.chat_template has no effect on training: " + made);
  else if (opened.facts.conversations == 0)
    opened.notes.push_back(pattern + ": data.chat_template has no effect here, because there are no messages");
  else if (opened.tokenizer)
    for (std::string& note : notes_on_template(options.data.chat_template, *opened.tokenizer))
      opened.notes.push_back(std::move(note));
}

// If `tokenizer` is null, the tokenizer that the config requests is used.
Opened open_any(const DataOptions& options, const std::string& pattern, FolderUse use, std::shared_ptr<Tokenizer> tokenizer) {
  const MatchingFiles matching = matching_files(pattern);
  const InputFiles inputs = find_inputs(matching.paths, options.data.read_as, use);
  if (!inputs.tokens.empty() && !inputs.texts.empty())
    bad_file(inputs.texts[0].path, "is not a token file, but other files that the pattern names are; name files of one kind");
  Opened opened;
  if (inputs.tokens.size() == 1)
    opened = open_token_data(options, inputs.tokens[0]);
  else if (!inputs.tokens.empty())
    opened = open_shards(options, inputs.tokens);
  else
    opened = open_documents(options, pattern, inputs.texts, std::move(tokenizer));
  opened.notes = inputs.notes;
  note_keys_of_texts(options, pattern, inputs, opened);
  opened.files = inputs.tokens;
  for (const InputFile& file : inputs.texts) opened.files.push_back(file.path);
  if (!matching.note.empty()) opened.notes.push_back(matching.note);
  return opened;
}

// Refuses data that the objective cannot use.
void check_kind(const DataOptions& options, const std::string& pattern, const Opened& opened) {
  if (options.pairs && !opened.tokens->has_pairs())
    bad_file(pattern,
             "has no pairs of answers, which training.objective \"dpo\" needs; use lines of JSON (.jsonl) with \"prompt\", "
             "\"chosen\" and \"rejected\", or a token file that `trivet data prepare --pairs` made of them");
  check_prompts(options, pattern, *opened.tokens);
  if (!options.pairs && opened.tokens->has_pairs())
    bad_file(pattern, "holds pairs of answers; set training.objective to \"dpo\", or prepare texts without --pairs");
  if (opened.tokens->tokens() == 0) bad_file(pattern, "holds no tokens; name data that has some");
  if (options.data.loss_on == LossOn::Completions && !counts_any(*opened.tokens))
    bad_file(pattern,
             "has nothing to learn: the loss counts none of its tokens, because no conversation has an answer of the assistant "
             "whose weight is not 0, and no prompt a completion; use data with answers, or count all tokens with data.loss_on "
             "\"all\"");
}

Opened open_file(const DataOptions& options, const std::string& pattern, FolderUse use, std::shared_ptr<Tokenizer> tokenizer) {
  Opened opened = open_any(options, pattern, use, std::move(tokenizer));
  check_kind(options, pattern, opened);
  for (const std::string& sentence : opened.facts.sentences()) opened.notes.push_back(pattern + ": " + sentence);
  return opened;
}

// Where the last document, or pair of them, ends that has at most so many tokens before its end. Data without documents is not
// cut differently.
int64_t end_of_document_before(const TokenSequence& tokens, int64_t most) {
  const std::vector<int64_t> ends = tokens.document_ends();
  if (ends.empty()) return most;
  const auto together = tokens.has_pairs() ? 2 : 1;
  const auto before = (std::ranges::upper_bound(ends, most) - ends.begin()) / together * together;
  return before == 0 ? 0 : ends[before - 1];
}

void split(const DataOptions& options, Dataset& dataset) {
  const auto whole = dataset.train;
  int64_t training = training_tokens(whole->tokens(), options.data.validation_fraction);
  if (training == whole->tokens()) return;
  const bool whole_documents = options.pairs || dataset.packing != Packing::Stream;
  if (whole_documents) training = end_of_document_before(*whole, training);
  if (training == 0 && whole_documents)
    bad_key(options, "data.validation_fraction",
            fmt::format("leaves no whole {} for training; use a smaller one, 0 for none, or name other data in data.validation",
                        options.pairs ? "pair" : "document"));
  dataset.held_out_tokens = whole->tokens() - training;
  dataset.train = std::make_shared<TokenSlice>(whole, 0, training);
  dataset.validation = std::make_shared<TokenSlice>(whole, training, whole->tokens() - training);
}

void check_same_tokenizer(const DataOptions& options, const char* key, const std::string& path, const Opened& opened,
                          const std::shared_ptr<Tokenizer>& tokenizer, const std::string& from) {
  if (opened.tokenizer && tokenizer && opened.tokenizer->to_text() != tokenizer->to_text())
    bad_key(options, key,
            fmt::format("{} was made with a different tokenizer from {}; prepare both with the same one", path, from));
}

// In a stream, conversations and answers to prompts would attend to those before them.
Packing packing_of(const DataOptions& options, const Opened& train) {
  if (options.data.packing != Packing::Auto) return options.data.packing;
  return train.tokens->marks_prompts() && !train.tokens->has_pairs() ? Packing::Single : Packing::Stream;
}

Dataset training_dataset(const DataOptions& options, const Opened& train, const std::string& path) {
  Dataset dataset;
  dataset.tokenizer = train.tokenizer;
  dataset.notes = train.notes;
  if (options.vocabulary == VocabularyKind::Tokenizer)
    if (std::string note = note_on_end_of_text(options.tokenizer_file, *dataset.tokenizer); !note.empty())
      dataset.notes.push_back(std::move(note));
  dataset.files = train.files;
  dataset.packing = packing_of(options, train);
  if (options.data.packing == Packing::Auto && dataset.packing == Packing::Single)
    dataset.notes.push_back(
        path +
        ": each conversation, or answer to a prompt, is a sample of its own, then padding; with data.packing "
        "\"isolated\" several share a sample without seeing each other");
  dataset.vocabulary_size =
      options.vocabulary == VocabularyKind::Size ? options.vocabulary_size : dataset.tokenizer->vocabulary_size();
  dataset.train = checked(train.tokens, dataset.vocabulary_size, path);
  return dataset;
}

// Adds options.data.validation to the data of `path`.
void open_validation(const DataOptions& options, const std::string& path, Dataset& dataset) {
  const Opened validation = open_file(options, options.data.validation, FolderUse::Validate, dataset.tokenizer);
  check_same_tokenizer(options, "data.validation", options.data.validation, validation, dataset.tokenizer, path);
  dataset.validation = checked(validation.tokens, dataset.vocabulary_size, options.data.validation);
  dataset.notes.insert(dataset.notes.end(), validation.notes.begin(), validation.notes.end());
  dataset.validation_files = validation.files;
}

// `tokenizer`, unless it is null, is the one that texts are encoded with, and that of token files: that of the source `from`.
Dataset open_with(const DataOptions& options, const std::shared_ptr<Tokenizer>& tokenizer, const std::string& from) {
  const std::string& path = options.data.train;
  const Opened train = open_file(options, path, use_of(options), tokenizer);
  check_same_tokenizer(options, "data.sources", path, train, tokenizer, from);
  Dataset dataset = training_dataset(options, train, path);
  if (options.data.validation.empty())
    split(options, dataset);
  else
    open_validation(options, path, dataset);
  return dataset;
}

// Its documents would be drawn as often as the weights of both say.
void refuse_repeated_sources(const DataOptions& options) {
  std::set<std::string> named;
  MetFiles met;
  for (const DataSource& source : options.data.sources) {
    std::error_code none;
    const bool is_new = std::filesystem::exists(source.path, none) ? met.is_new(source.path) : named.insert(source.path).second;
    if (!is_new)
      bad_key(options, "data.sources",
              fmt::format("{} is in the list twice; name it once, with the sum of its weights", printable(source.path)));
  }
}

// A part of a source may be another one, to be drawn more often.
void note_shared_files(const DataOptions& options, std::vector<Dataset>& datasets) {
  MetFiles met;
  std::vector<std::string> shared;
  for (const Dataset& dataset : datasets)
    for (const std::string& file : dataset.files)
      if (!met.is_new(file)) shared.push_back(file);
  if (shared.empty()) return;
  datasets[0].notes.push_back(
      fmt::format("data.sources: {}{} in two of the {} sources, so what {} is drawn with the weights of both",
                  printable(shared[0]), shared.size() == 1 ? " is" : fmt::format(" and {} more files are", shared.size() - 1),
                  options.data.sources.size(), shared.size() == 1 ? "it holds" : "they hold"));
}

// It does not tell how well a model does on what it has not seen, but somebody may want to look at it.
void note_validation_that_is_trained_on(std::span<Dataset> datasets) {
  MetFiles met;
  for (const Dataset& dataset : datasets)
    for (const std::string& file : dataset.files) met.is_new(file);
  std::vector<std::string> shared;
  for (const std::string& file : datasets[0].validation_files)
    if (!met.is_new(file)) shared.push_back(file);
  if (!shared.empty())
    datasets[0].notes.push_back(fmt::format(
        "data.validation: {}{} training data, too, so the validation loss is, in part, that of what was learned by heart",
        printable(shared[0]), shared.size() == 1 ? " is" : fmt::format(" and {} more files are", shared.size() - 1)));
}

// The first text of each source that has texts.
std::vector<std::string> first_texts(const DataOptions& options) {
  std::vector<std::string> patterns{options.data.train}, texts;
  for (const DataSource& source : options.data.sources) patterns.push_back(source.path);
  for (const std::string& pattern : patterns) {
    if (pattern.empty()) continue;
    try {
      const InputFiles inputs = find_inputs(matching_files(pattern).paths, options.data.read_as, use_of(options));
      if (!inputs.texts.empty()) texts.push_back(inputs.texts.front().path);
    } catch (const DataError&) {  // whoever opens the data says what is wrong with it
    }
  }
  return texts;
}

}  // namespace

int64_t training_tokens(int64_t tokens, double validation_fraction) {
  return static_cast<int64_t>(std::floor(static_cast<double>(tokens) * (1.0 - validation_fraction)));
}

bool reads_texts(const DataOptions& options) { return !first_texts(options).empty(); }

bool has_conversations(const DataOptions& options) {
  constexpr size_t kLook = size_t{1} << 16;
  return std::ranges::any_of(first_texts(options), [](const std::string& path) {
    std::string beginning;
    try {
      UnpackedFile(path).append(beginning, kLook);
    } catch (const DataError&) {
      return false;  // whoever opens the data says what is wrong with it
    }
    return beginning.find("\"role\"") != std::string::npos;
  });
}

Dataset open_dataset(const DataOptions& options) {
  if (options.data.train.empty()) bad_key(options, "data.train", "is missing; name a text file or a token file");
  Dataset dataset = open_with(options, nullptr, "");
  note_validation_that_is_trained_on({&dataset, 1});
  return dataset;
}

std::vector<Dataset> open_sources(const DataOptions& options) {
  if (options.data.sources.empty()) return {open_dataset(options)};
  refuse_repeated_sources(options);
  std::vector<Dataset> datasets;
  DataOptions one = options;
  for (const DataSource& source : options.data.sources) {
    one.data.train = source.path;
    datasets.push_back(datasets.empty() ? open_with(one, nullptr, "")
                                        : open_with(one, datasets[0].tokenizer, options.data.sources[0].path));
    if (one.data.validation.empty()) continue;
    datasets[0].validation_file = one.data.validation;
    one.data.validation_fraction = 0;
    one.data.validation.clear();
  }
  note_shared_files(options, datasets);
  note_validation_that_is_trained_on(datasets);
  return datasets;
}

Dataset open_token_files(const DataOptions& options, const std::vector<std::string>& paths, const OpenedBefore& before) {
  const Opened train = paths.size() == 1 ? open_token_data(options, paths[0]) : open_shards(options, paths);
  check_kind(options, paths[0], train);
  check_same_tokenizer(options, "data.train", paths[0], train, before.tokenizer, before.path);
  Dataset dataset = training_dataset(options, train, paths[0]);
  if (!before.tokenizer && !options.data.validation.empty()) open_validation(options, paths[0], dataset);
  return dataset;
}

}  // namespace trivet::data
