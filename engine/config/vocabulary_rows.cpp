#include "engine/config/vocabulary_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"

namespace trivet {

std::string vocabulary_in_words(const Config& config) {
  switch (config.vocabulary.kind) {
    case VocabularyKind::Bytes: return "\"bytes\"";
    case VocabularyKind::Characters: return "\"characters\"";
    case VocabularyKind::Tokenizer: return fmt::format("\"{}\"", printable(config.vocabulary.tokenizer_file));
    case VocabularyKind::Size: return std::to_string(config.model.vocabulary_size);
  }
  return "";
}

int64_t vocabulary_rows(const Config& config, int64_t tokens) {
  const int64_t rows = config.model.vocabulary_size;  // 0: not stated
  if (rows > 0 && rows < tokens)
    throw ConfigError(
        fmt::format("{}: model.vocabulary_rows: the embedding has {} rows, but the vocabulary {} has {} tokens; use at least "
                    "{} rows, or, if "
                    "they are those of a model, the tokenizer that belongs to it, or \"vocabulary\": {} with files of tokens",
                    config.source, rows, vocabulary_in_words(config), tokens, tokens, rows));
  return std::max(rows, tokens);
}

}  // namespace trivet
