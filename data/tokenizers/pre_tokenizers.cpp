#include "data/tokenizers/pre_tokenizers.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "data/byte_alphabet.h"
#include "data/tokenizers/code_points.h"
#include "data/tokenizers/pattern.h"
#include "data/tokenizers/read_json.h"
#include "data/tokenizers/unicode.h"
#include "data/word_split.h"

namespace trivet::data {
namespace {

using Json = nlohmann::json;

// A part of a text that is a place where it is split, or not.
struct Part {
  size_t begin, end;
  bool match;
};

std::vector<Part> merged_with_previous(const std::vector<Part>& parts) {
  std::vector<Part> merged;
  bool after_match = false;
  for (const Part& part : parts) {
    if (part.match && !after_match && !merged.empty())
      merged.back().end = part.end;
    else
      merged.push_back(part);
    after_match = part.match;
  }
  return merged;
}

std::vector<Part> merged_with_next(const std::vector<Part>& parts) {
  std::vector<Part> merged;
  bool before_match = false;
  for (size_t i = parts.size(); i-- > 0;) {
    if (parts[i].match && !before_match && !merged.empty())
      merged.back().begin = parts[i].begin;
    else
      merged.push_back(parts[i]);
    before_match = parts[i].match;
  }
  return {merged.rbegin(), merged.rend()};
}

std::vector<Part> contiguous(const std::vector<Part>& parts) {
  std::vector<Part> merged;
  for (const Part& part : parts) {
    if (!merged.empty() && merged.back().match == part.match)
      merged.back().end = part.end;
    else
      merged.push_back(part);
  }
  return merged;
}

std::vector<Part> without_matches(const std::vector<Part>& parts) {
  std::vector<Part> rest;
  for (const Part& part : parts)
    if (!part.match) rest.push_back(part);
  return rest;
}

std::vector<Part> arranged(std::vector<Part> parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::Removed: return without_matches(parts);
    case SplitBehavior::Isolated: return parts;
    case SplitBehavior::MergedWithPrevious: return merged_with_previous(parts);
    case SplitBehavior::MergedWithNext: return merged_with_next(parts);
    case SplitBehavior::Contiguous: return contiguous(parts);
  }
  return parts;
}

// Splits at matches that a derived class finds.
class SplitAtMatches : public PreTokenizer {
 public:
  SplitAtMatches(SplitBehavior behavior, bool invert) : behavior_(behavior), invert_(invert) {}

  void split(TextPiece piece, const PieceVisitor& visit) const override {
    if (piece.text.empty()) return;
    std::vector<Part> parts;
    size_t done = 0;
    const auto add = [&](size_t begin, size_t end, bool match) {
      if (end > begin || match) parts.push_back({begin, end, match != invert_});  // an empty match parts what is around it
    };
    find(piece.text, [&](size_t begin, size_t end) {
      add(done, begin, false);
      add(begin, end, true);
      done = end;
    });
    add(done, piece.text.size(), false);
    for (const Part& part : arranged(std::move(parts), behavior_))
      if (part.end > part.begin) visit({piece.text.substr(part.begin, part.end - part.begin), piece.first && part.begin == 0});
  }

 private:
  virtual void find(std::string_view text, const std::function<void(size_t begin, size_t end)>& match) const = 0;

  SplitBehavior behavior_;
  bool invert_;
};

class SplitAtPattern final : public SplitAtMatches {
 public:
  SplitAtPattern(const std::string& expression, SplitBehavior behavior, bool invert, const std::string& source)
      : SplitAtMatches(behavior, invert), pattern_(expression, source) {}

 private:
  void find(std::string_view text, const std::function<void(size_t, size_t)>& match) const override {
    pattern_.for_each_match(text, match);
  }
  Pattern pattern_;
};

class SplitAtText final : public SplitAtMatches {
 public:
  SplitAtText(std::string text, SplitBehavior behavior, bool invert)
      : SplitAtMatches(behavior, invert), text_(std::move(text)) {}

 private:
  void find(std::string_view text, const std::function<void(size_t, size_t)>& match) const override {
    if (text_.empty()) return;
    for (size_t at = text.find(text_); at != std::string_view::npos; at = text.find(text_, at + text_.size()))
      match(at, at + text_.size());
  }
  std::string text_;
};

class SplitAtCharacters final : public SplitAtMatches {
 public:
  SplitAtCharacters(bool (*matches)(char32_t), SplitBehavior behavior) : SplitAtMatches(behavior, false), matches_(matches) {}

 private:
  void find(std::string_view text, const std::function<void(size_t, size_t)>& match) const override {
    for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
      const size_t begin = bytes.data() - text.data();
      if (matches_(c)) match(begin, begin + bytes.size());
    });
  }
  bool (*matches_)(char32_t);
};

// \w+|[^\w\s]+
class WordsAndSigns final : public PreTokenizer {
 public:
  void split(TextPiece piece, const PieceVisitor& visit) const override {
    enum class Kind { None, Space, Word, Sign } run = Kind::None;
    size_t start = 0;
    const auto finish = [&](size_t end) {
      if (run == Kind::Word || run == Kind::Sign) visit({piece.text.substr(start, end - start), piece.first && start == 0});
    };
    for_each_code_point(piece.text, [&](char32_t c, std::string_view bytes) {
      const Kind kind = is_word_char(c) ? Kind::Word : is_white_space(c) ? Kind::Space : Kind::Sign;
      const size_t at = bytes.data() - piece.text.data();
      if (kind == run) return;
      finish(at);
      run = kind;
      start = at;
    });
    finish(piece.text.size());
  }
};

// The expressions for which there is code.
class FastWords final : public PreTokenizer {
 public:
  struct Code {
    size_t (*word_bytes)(std::string_view text, size_t position);
    size_t (*piece_bytes)(std::string_view text, size_t limit);
  };
  explicit FastWords(Code code) : code_(code) {}
  size_t piece_bytes(std::string_view text, size_t limit) const override { return code_.piece_bytes(text, limit); }
  void split(TextPiece piece, const PieceVisitor& visit) const override {
    for (size_t position = 0; position < piece.text.size();) {
      const size_t bytes = code_.word_bytes(piece.text, position);
      visit({piece.text.substr(position, bytes), piece.first && position == 0});
      position += bytes;
    }
  }

 private:
  Code code_;
};

size_t gpt4_bytes(std::string_view text, size_t position) { return word_bytes_as_gpt4(text, position, 3); }
size_t qwen_bytes(std::string_view text, size_t position) { return word_bytes_as_gpt4(text, position, 1); }

constexpr std::array<std::pair<std::string_view, FastWords::Code>, 5> kFastWords{{
    {kGpt2Pattern, {word_bytes, piece_bytes}},
    {kGpt4Pattern, {gpt4_bytes, piece_bytes_to_space}},
    {kQwenPattern, {qwen_bytes, piece_bytes_to_space}},
    {kGpt4oPattern, {word_bytes_as_gpt4o, piece_bytes_to_space}},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
     {gpt4_bytes, piece_bytes_to_space}},
}};

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  void split(TextPiece piece, const PieceVisitor& visit) const override {
    if (piece.text.empty()) return;
    std::string text;
    text.reserve(piece.text.size() + piece.text.size() / 2);
    const bool prefixed = piece.text.starts_with(' ') || piece.text.starts_with(replacement_);
    if (!prefixed && (prepend_ == PrependScheme::Always || (prepend_ == PrependScheme::First && piece.first)))
      text += replacement_;
    for (char c : piece.text) {
      if (c == ' ')
        text += replacement_;
      else
        text += c;
    }
    if (!split_) return visit({text, piece.first});
    for (size_t start = 0; start < text.size();) {
      const size_t next = std::min(text.find(replacement_, start + 1), text.size());
      visit({std::string_view(text).substr(start, next - start), piece.first && start == 0});
      start = next;
    }
  }

 private:
  std::string replacement_;
  PrependScheme prepend_;
  bool split_;
};

// A space in front of every piece that has none.
class PrefixSpace final : public PreTokenizer {
 public:
  void split(TextPiece piece, const PieceVisitor& visit) const override {
    if (piece.text.empty()) return;
    if (piece.text.starts_with(' ')) return visit(piece);
    visit({" " + std::string(piece.text), piece.first});
  }
};

// Writes words in the byte alphabet, for parts that look at its characters.
class ToByteAlphabet final : public PreTokenizer {
 public:
  void split(TextPiece piece, const PieceVisitor& visit) const override { visit({to_byte_alphabet(piece.text), piece.first}); }
};

class FromByteAlphabet final : public PreTokenizer {
 public:
  void split(TextPiece piece, const PieceVisitor& visit) const override {
    visit({from_byte_alphabet(piece.text).value_or(""), piece.first});
  }
};

class OneAfterTheOther final : public PreTokenizer {
 public:
  explicit OneAfterTheOther(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void split(TextPiece piece, const PieceVisitor& visit) const override { split_from(0, piece, visit); }

 private:
  void split_from(size_t part, TextPiece piece, const PieceVisitor& visit) const {
    if (part + 1 == parts_.size()) return parts_[part]->split(piece, visit);
    parts_[part]->split(piece, [&](TextPiece next) { split_from(part + 1, next, visit); });
  }
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

SplitBehavior read_behavior(const JsonPart& part, const char* key, const char* otherwise) {
  const std::string name = part.text(key, otherwise);
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> names{
      {{"Removed", SplitBehavior::Removed},
       {"Isolated", SplitBehavior::Isolated},
       {"MergedWithPrevious", SplitBehavior::MergedWithPrevious},
       {"MergedWithNext", SplitBehavior::MergedWithNext},
       {"Contiguous", SplitBehavior::Contiguous}}};
  for (const auto& [accepted, behavior] : names)
    if (accepted == name) return behavior;
  part.refuse(key, "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

PrependScheme read_prepend(const JsonPart& part) {
  if (!part.has("prepend_scheme")) return part.flag("add_prefix_space", true) ? PrependScheme::Always : PrependScheme::Never;
  const std::string name = part.text("prepend_scheme", "");
  if (name == "always") return PrependScheme::Always;
  if (name == "first") return PrependScheme::First;
  if (name == "never") return PrependScheme::Never;
  part.refuse("prepend_scheme", "always, first or never");
}

std::unique_ptr<PreTokenizer> read_split(const JsonPart& part) {
  const SplitBehavior behavior = read_behavior(part, "behavior", "");
  const TextOrRegex pattern = read_text_or_regex(part, "pattern");
  const bool invert = part.flag("invert", false);
  if (!pattern.is_regex) return std::make_unique<SplitAtText>(pattern.text, behavior, invert);
  return split_by_pattern(pattern.text, behavior, invert, part.source());
}

// Collects the parts of a pre-tokenizer in order.
class PreTokenizerReader {
 public:
  void read(const JsonPart& part) {
    const std::string type = part.type();
    if (byte_level_ && !mapped_ && type != "Sequence") {  // a part after ByteLevel sees its characters
      add<ToByteAlphabet>();
      mapped_ = true;
    }
    if (type == "Sequence") {
      for (const JsonPart& inner : part.list("pretokenizers")) read(inner);
    } else if (type == "ByteLevel") {
      read_byte_level(part);
    } else if (type == "Split") {
      parts_.push_back(read_split(part));
    } else if (type == "Metaspace") {
      parts_.push_back(metaspace(part.character("replacement", "\u2581"), read_prepend(part), part.flag("split", true)));
    } else if (type == "BertPreTokenizer") {
      add<SplitAtCharacters>(is_white_space, SplitBehavior::Removed);
      add<SplitAtCharacters>(is_punctuation, SplitBehavior::Isolated);
    } else if (type == "Whitespace") {
      add<WordsAndSigns>();
    } else if (type == "WhitespaceSplit") {
      add<SplitAtCharacters>(is_white_space, SplitBehavior::Removed);
    } else if (type == "Punctuation") {
      add<SplitAtCharacters>(is_punctuation, read_behavior(part, "behavior", "Isolated"));
    } else if (type == "Digits") {
      add<SplitAtCharacters>(is_number,
                             part.flag("individual_digits", false) ? SplitBehavior::Isolated : SplitBehavior::Contiguous);
    } else {
      part.refuse_type(
          "BertPreTokenizer, ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, Whitespace or WhitespaceSplit");
    }
  }

  PreTokenization finish() {
    if (mapped_) add<FromByteAlphabet>();
    if (parts_.empty()) return {nullptr, byte_level_};
    if (parts_.size() == 1) return {std::move(parts_.front()), byte_level_};
    return {std::make_unique<OneAfterTheOther>(std::move(parts_)), byte_level_};
  }

 private:
  template <typename Type, typename... Arguments>
  void add(Arguments... arguments) {
    parts_.push_back(std::make_unique<Type>(arguments...));
  }

  void read_byte_level(const JsonPart& part) {
    if (byte_level_) part.refuse_type("one ByteLevel only");
    byte_level_ = true;
    if (part.flag("add_prefix_space", true)) add<PrefixSpace>();
    if (part.flag("use_regex", true))
      parts_.push_back(split_by_pattern(kGpt2Pattern, SplitBehavior::Isolated, false, part.source()));
  }

  std::vector<std::unique_ptr<PreTokenizer>> parts_;
  bool byte_level_ = false, mapped_ = false;
};

}  // namespace

std::unique_ptr<PreTokenizer> split_by_pattern(const std::string& expression, SplitBehavior behavior, bool invert,
                                               const std::string& source) {
  // These expressions match all of any text, so that nothing is left between the matches.
  if (behavior == SplitBehavior::Isolated || (behavior == SplitBehavior::Removed && invert))
    for (const auto& [known, bytes] : kFastWords)
      if (known == expression) return std::make_unique<FastWords>(bytes);
  return std::make_unique<SplitAtPattern>(expression, behavior, invert, source);
}

std::unique_ptr<PreTokenizer> metaspace(std::string replacement, PrependScheme prepend, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), prepend, split);
}

PreTokenization read_pre_tokenizer(const Json& json, const std::string& source) {
  PreTokenizerReader reader;
  if (!json.is_null()) reader.read(JsonPart(json, "pre_tokenizer", source));
  return reader.finish();
}

}  // namespace trivet::data
