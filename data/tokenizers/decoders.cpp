#include "data/tokenizers/decoders.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/utf8.h"
#include "data/byte_alphabet.h"
#include "data/tokenizers/pattern.h"
#include "data/tokenizers/read_json.h"
#include "data/tokenizers/rewritten_size.h"

namespace trivet::data {
namespace {

using Json = nlohmann::json;

// A rule. `size`: the bound of what all rules together make of the tokens.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void apply(std::vector<std::string>& tokens, const RewrittenSize& size) const = 0;
};
using DecoderSteps = std::vector<std::unique_ptr<DecoderStep>>;

size_t total_bytes(const std::vector<std::string>& tokens) {
  size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  return bytes;
}

void join(std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens.assign(1, all);
}

// Replaces in one pass: text may be all that a model has written.
void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done);
    out += to;
    done = at + from.size();
  }
  if (done == 0) return;
  out.append(text, done);
  text = std::move(out);
}

class DecodeInSequence final : public Decoder {
 public:
  DecodeInSequence(DecoderSteps steps, std::string source) : steps_(std::move(steps)), source_(std::move(source)) {}
  void decode(std::vector<std::string>& tokens) const override {
    const RewrittenSize size(total_bytes(tokens), source_);
    for (const auto& step : steps_) {
      step->apply(tokens, size);
      size.check(total_bytes(tokens));
    }
  }

 private:
  DecoderSteps steps_;
  std::string source_;
};

class DecodeByteLevel final : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens, const RewrittenSize&) const override {
    for (std::string& token : tokens) token = bytes_of_byte_level(token);
    join(tokens);
  }
};

class DecodeMetaspace final : public DecoderStep {
 public:
  DecodeMetaspace(std::string replacement, bool prepended) : replacement_(std::move(replacement)), prepended_(prepended) {}
  void apply(std::vector<std::string>& tokens, const RewrittenSize&) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], replacement_, i == 0 && prepended_ ? "" : " ");
  }

 private:
  std::string replacement_;
  bool prepended_;
};

// Names of bytes become the bytes. A run of them that is not UTF-8 becomes as many replacement characters.
class DecodeByteFallback final : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens, const RewrittenSize&) const override {
    std::vector<std::string> decoded;
    std::string bytes;
    const auto finish = [&] {
      if (bytes.empty()) return;
      if (is_utf8(bytes))
        decoded.push_back(bytes);
      else
        decoded.insert(decoded.end(), bytes.size(), "\uFFFD");
      bytes.clear();
    };
    for (std::string& token : tokens) {
      const int byte = byte_of_name(token);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      finish();
      decoded.push_back(std::move(token));
    }
    finish();
    tokens = std::move(decoded);
  }
};

class DecodeFuse final : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens, const RewrittenSize&) const override { join(tokens); }
};

class DecodeReplace final : public DecoderStep {
 public:
  DecodeReplace(const TextOrRegex& pattern, std::string content, const std::string& source)
      : text_(pattern.text), content_(std::move(content)) {
    if (pattern.is_regex) regex_.emplace(pattern.text, source);
  }
  void apply(std::vector<std::string>& tokens, const RewrittenSize& size) const override {
    size_t bytes = 0;  // length of the tokens before
    for (std::string& token : tokens) {
      std::string out;
      size_t done = 0;
      const auto replace = [&](size_t begin, size_t end) {
        out.append(token, done, begin - done);
        out += content_;
        size.check(bytes + out.size());
        done = end;
      };
      if (regex_)
        regex_->for_each_match(token, replace);
      else
        for_each_occurrence(token, replace);
      if (done > 0 || !out.empty()) token = out.append(token, done);
      bytes += token.size();
    }
  }

 private:
  void for_each_occurrence(std::string_view token, const std::function<void(size_t, size_t)>& visit) const {
    for (size_t at = text_.empty() ? std::string::npos : token.find(text_); at != std::string::npos;
         at = token.find(text_, at + text_.size()))
      visit(at, at + text_.size());
  }

  std::string text_, content_;
  std::optional<Pattern> regex_;
};

// Takes `content` away from the start and the end of each token, at most so many times.
class DecodeStrip final : public DecoderStep {
 public:
  DecodeStrip(std::string content, int64_t start, int64_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& tokens, const RewrittenSize&) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (int64_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      if (rest.size() < token.size()) token = std::string(rest);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

// Undoes what BERT's tokenizer does to English: "do n ' t ." becomes "don't."
void clean_up(std::string& text) {
  constexpr std::array<std::array<std::string_view, 2>, 11> kRules{{{" .", "."},
                                                                    {" ?", "?"},
                                                                    {" !", "!"},
                                                                    {" ,", ","},
                                                                    {" ' ", "'"},
                                                                    {" n't", "n't"},
                                                                    {" 'm", "'m"},
                                                                    {" do not", " don't"},
                                                                    {" 's", "'s"},
                                                                    {" 've", "'ve"},
                                                                    {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

class DecodeWordPiece final : public DecoderStep {
 public:
  DecodeWordPiece(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(std::vector<std::string>& tokens, const RewrittenSize&) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].starts_with(prefix_))
        tokens[i].erase(0, prefix_.size());
      else if (i > 0)
        tokens[i].insert(0, " ");
      if (cleanup_) clean_up(tokens[i]);
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class DecodeSuffix final : public DecoderStep {
 public:
  explicit DecodeSuffix(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& tokens, const RewrittenSize&) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

bool prepends(const JsonPart& part) {
  if (part.has("prepend_scheme")) return part.text("prepend_scheme", "") != "never";
  return part.flag("add_prefix_space", true);
}

void read_decoder_steps(const JsonPart& part, DecoderSteps& steps) {
  const std::string type = part.type();
  if (type == "Sequence") {
    for (const JsonPart& inner : part.list("decoders")) read_decoder_steps(inner, steps);
  } else if (type == "ByteLevel") {
    steps.push_back(std::make_unique<DecodeByteLevel>());
  } else if (type == "Metaspace") {
    steps.push_back(std::make_unique<DecodeMetaspace>(part.character("replacement", "\u2581"), prepends(part)));
  } else if (type == "ByteFallback") {
    steps.push_back(std::make_unique<DecodeByteFallback>());
  } else if (type == "Fuse") {
    steps.push_back(std::make_unique<DecodeFuse>());
  } else if (type == "Replace") {
    steps.push_back(
        std::make_unique<DecodeReplace>(read_text_or_regex(part, "pattern"), part.text("content", ""), part.source()));
  } else if (type == "Strip") {
    steps.push_back(
        std::make_unique<DecodeStrip>(part.character("content", " "), part.number("start", 0), part.number("stop", 0)));
  } else if (type == "WordPiece") {
    steps.push_back(std::make_unique<DecodeWordPiece>(part.text("prefix", "##"), part.flag("cleanup", true)));
  } else if (type == "BPEDecoder") {
    steps.push_back(std::make_unique<DecodeSuffix>(part.text("suffix", "</w>")));
  } else {
    part.refuse_type("BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip or WordPiece");
  }
}

}  // namespace

std::string bytes_of_byte_level(std::string_view token) {
  if (auto bytes = from_byte_alphabet(token)) return *bytes;
  return std::string(token);
}

int byte_of_name(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (char c : token.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9', upper = c >= 'A' && c <= 'F', lower = c >= 'a' && c <= 'f';
    if (!digit && !upper && !lower) return -1;
    value = value * 16 + (digit ? c - '0' : upper ? c - 'A' + 10 : c - 'a' + 10);
  }
  return value;
}

std::unique_ptr<Decoder> read_decoder(const Json& json, const std::string& source) {
  if (json.is_null()) return nullptr;
  DecoderSteps steps;
  read_decoder_steps(JsonPart(json, "decoder", source), steps);
  return std::make_unique<DecodeInSequence>(std::move(steps), source);
}

}  // namespace trivet::data
