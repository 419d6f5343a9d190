#include "data/tokenizers/normalizers.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base64.h"
#include "data/data_error.h"
#include "data/tokenizers/charsmap.h"
#include "data/tokenizers/code_points.h"
#include "data/tokenizers/pattern.h"
#include "data/tokenizers/read_json.h"
#include "data/tokenizers/rewritten_size.h"
#include "data/tokenizers/unicode.h"

namespace trivet::data {
namespace {

using Json = nlohmann::json;

// A rule. `size`: the bound of what all rules together make of the text.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  virtual std::string apply(std::string text, const RewrittenSize& size) const = 0;
};
using Steps = std::vector<std::unique_ptr<NormalizerStep>>;

class InSequence final : public Normalizer {
 public:
  InSequence(Steps steps, std::string source) : steps_(std::move(steps)), source_(std::move(source)) {}
  std::string normalize(std::string text) const override {
    const RewrittenSize size(text.size(), source_);
    for (const auto& step : steps_) {
      text = step->apply(std::move(text), size);
      size.check(text.size());
    }
    return text;
  }

 private:
  Steps steps_;
  std::string source_;
};

class ToNormalForm final : public NormalizerStep {
 public:
  explicit ToNormalForm(NormalForm form) : form_(form) {}
  std::string apply(std::string text, const RewrittenSize&) const override { return normal_form(text, form_); }

 private:
  NormalForm form_;
};

// Rewrites each code point by itself.
class EachCodePoint final : public NormalizerStep {
 public:
  using Rewrite = void (*)(char32_t c, std::string_view bytes, std::string& out);
  explicit EachCodePoint(Rewrite rewrite) : rewrite_(rewrite) {}
  std::string apply(std::string text, const RewrittenSize&) const override {
    std::string out;
    out.reserve(text.size());
    for_each_code_point(text, [&](char32_t c, std::string_view bytes) { rewrite_(c, bytes, out); });
    return out;
  }

 private:
  Rewrite rewrite_;
};

void lower_case(char32_t c, std::string_view bytes, std::string& out) {
  if (c == kNotUtf8)
    out += bytes;
  else if (c < 0x80)
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  else
    append_lower_case(out, c);
}

void without_mark(char32_t c, std::string_view bytes, std::string& out) {
  if (!is_mark(c)) out += bytes;
}

void without_nonspacing_mark(char32_t c, std::string_view bytes, std::string& out) {
  if (!is_nonspacing_mark(c)) out += bytes;
}

// Drops what cannot be seen, and turns every white space into a space.
void cleaned(char32_t c, std::string_view bytes, std::string& out) {
  const bool white = is_white_space(c);
  if (c == 0 || c == 0xFFFD || (is_other(c) && c != '\t' && c != '\n' && c != '\r')) return;
  if (white)
    out += ' ';
  else
    out += bytes;
}

void with_spaces_around_ideographs(char32_t c, std::string_view bytes, std::string& out) {
  const bool ideograph = is_ideograph(c);
  if (ideograph) out += ' ';
  out += bytes;
  if (ideograph) out += ' ';
}

// The rules of the machine translation of sentencepiece ("nmt").
void nmt(char32_t c, std::string_view bytes, std::string& out) {
  const auto within = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  if (within(1, 8) || c == 0xB || within(0xE, 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return;
  if (c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || within(0x200B, 0x200F) || within(0x2028, 0x2029) ||
      c == 0x2581 || c == 0xFEFF || c == 0xFFFD)
    out += ' ';
  else
    out += bytes;
}

class WithPrefix final : public NormalizerStep {
 public:
  explicit WithPrefix(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string apply(std::string text, const RewrittenSize&) const override { return text.empty() ? text : prefix_ + text; }

 private:
  std::string prefix_;
};

class StripSpaces final : public NormalizerStep {
 public:
  StripSpaces(bool left, bool right) : left_(left), right_(right) {}
  std::string apply(std::string text, const RewrittenSize&) const override {
    size_t begin = 0, end = 0, position = 0;
    bool started = false;
    for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
      const bool white = is_white_space(c);
      if (!white && !started) begin = position, started = true;
      position += bytes.size();
      if (!white) end = position;
    });
    if (!started) return left_ || right_ ? "" : text;
    const size_t from = left_ ? begin : 0, to = right_ ? end : text.size();
    return text.substr(from, to - from);
  }

 private:
  bool left_, right_;
};

class ReplaceAll final : public NormalizerStep {
 public:
  ReplaceAll(const TextOrRegex& pattern, std::string content, const std::string& source)
      : text_(pattern.text), content_(std::move(content)) {
    if (pattern.is_regex) regex_.emplace(pattern.text, source);
  }

  std::string apply(std::string text, const RewrittenSize& size) const override {
    std::string out;
    size_t done = 0;
    bool replaced = false;
    const auto replace = [&](size_t begin, size_t end) {
      out.append(text, done, begin - done);
      out += content_;
      size.check(out.size());
      done = end;
      replaced = true;
    };
    if (regex_) {
      regex_->for_each_match(text, replace);
    } else if (!text_.empty()) {
      for (size_t at = text.find(text_); at != std::string::npos; at = text.find(text_, at + text_.size()))
        replace(at, at + text_.size());
    }
    if (!replaced) return text;
    out.append(text, done);
    return out;
  }

 private:
  std::string text_, content_;
  std::optional<Pattern> regex_;
};

// The map of sentencepiece, as the library tokenizers applies it: to grapheme clusters of less than 6 bytes, of which it
// replaces the whole by what the map has for their shortest beginning, and otherwise to their code points.
class ByCharsmap final : public NormalizerStep {
 public:
  explicit ByCharsmap(Charsmap map) : map_(std::move(map)) {}

  std::string apply(std::string text, const RewrittenSize& size) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = grapheme_end(text, begin);
      append(out, std::string_view(text).substr(begin, end - begin));
      size.check(out.size());
      begin = end;
    }
    return out;
  }

 private:
  void append(std::string& out, std::string_view grapheme) const {
    if (grapheme.size() < 6)
      if (const auto entry = map_.shortest(grapheme)) {
        out += entry->replacement;
        return;
      }
    for_each_code_point(grapheme, [&](char32_t, std::string_view bytes) {
      const auto entry = map_.shortest(bytes);
      out += entry ? entry->replacement : bytes;
    });
  }

  Charsmap map_;
};

constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kNormalForms{
    {{"NFC", NormalForm::NFC}, {"NFD", NormalForm::NFD}, {"NFKC", NormalForm::NFKC}, {"NFKD", NormalForm::NFKD}}};

void read_bert(const JsonPart& part, Steps& steps) {
  const auto each = [&](EachCodePoint::Rewrite rewrite) { steps.push_back(std::make_unique<EachCodePoint>(rewrite)); };
  const bool lower = part.flag("lowercase", true);
  if (part.flag("clean_text", true)) each(cleaned);
  if (part.flag("handle_chinese_chars", true)) each(with_spaces_around_ideographs);
  if (part.flag("strip_accents", lower)) {
    steps.push_back(std::make_unique<ToNormalForm>(NormalForm::NFD));
    each(without_nonspacing_mark);
  }
  if (lower) each(lower_case);
}

void read_precompiled(const JsonPart& part, Steps& steps) {
  if (!part.has("precompiled_charsmap")) return;
  const std::string text = part.text("precompiled_charsmap", "");
  const auto bytes = from_base64(text);
  if (!bytes) bad_file(part.source(), part.place() + ".precompiled_charsmap: is not base64");
  if (!bytes->empty()) steps.push_back(std::make_unique<ByCharsmap>(Charsmap(*bytes, part.source())));
}

void read_into(const JsonPart& part, Steps& steps) {
  const std::string type = part.type();
  const auto each = [&](EachCodePoint::Rewrite rewrite) { steps.push_back(std::make_unique<EachCodePoint>(rewrite)); };
  for (const auto& [name, form] : kNormalForms)
    if (type == name) {
      steps.push_back(std::make_unique<ToNormalForm>(form));
      return;
    }
  if (type == "Sequence") {
    for (const JsonPart& inner : part.list("normalizers")) read_into(inner, steps);
  } else if (type == "Lowercase") {
    each(lower_case);
  } else if (type == "StripAccents") {
    each(without_mark);
  } else if (type == "Nmt") {
    each(nmt);
  } else if (type == "Prepend") {
    steps.push_back(std::make_unique<WithPrefix>(part.text("prepend", "")));
  } else if (type == "Strip") {
    steps.push_back(std::make_unique<StripSpaces>(part.flag("strip_left", true), part.flag("strip_right", true)));
  } else if (type == "Replace") {
    steps.push_back(std::make_unique<ReplaceAll>(read_text_or_regex(part, "pattern"), part.text("content", ""), part.source()));
  } else if (type == "BertNormalizer") {
    read_bert(part, steps);
  } else if (type == "Precompiled") {
    read_precompiled(part, steps);
  } else {
    part.refuse_type(
        "BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, Replace, Sequence, Strip or StripAccents");
  }
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const Json& json, const std::string& source) {
  if (json.is_null()) return nullptr;
  Steps steps;
  read_into(JsonPart(json, "normalizer", source), steps);
  if (steps.empty()) return nullptr;
  return std::make_unique<InSequence>(std::move(steps), source);
}

}  // namespace trivet::data
