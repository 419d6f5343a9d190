#include "engine/data/tokenizers/decoders.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/utf8.h"
#include "engine/data/byte_alphabet.h"
#include "engine/data/tokenizers/pattern.h"
#include "engine/data/tokenizers/read_json.h"

namespace trivet::data {
namespace {

using Json = nlohmann::json;
using Decoders = std::vector<std::unique_ptr<Decoder>>;

void join(std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens.assign(1, all);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos && !from.empty(); at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

class DecodeInSequence final : public Decoder {
 public:
  explicit DecodeInSequence(Decoders steps) : steps_(std::move(steps)) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (const auto& step : steps_) step->decode(tokens);
  }

 private:
  Decoders steps_;
};

class DecodeByteLevel final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) token = bytes_of_byte_level(token);
    join(tokens);
  }
};

class DecodeMetaspace final : public Decoder {
 public:
  DecodeMetaspace(std::string replacement, bool prepended) : replacement_(std::move(replacement)), prepended_(prepended) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], replacement_, i == 0 && prepended_ ? "" : " ");
  }

 private:
  std::string replacement_;
  bool prepended_;
};

// Names of bytes become the bytes. A run of them that is not UTF-8 becomes as many replacement characters.
class DecodeByteFallback final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
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

class DecodeFuse final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override { join(tokens); }
};

class DecodeReplace final : public Decoder {
 public:
  DecodeReplace(const TextOrRegex& pattern, std::string content, const std::string& source)
      : text_(pattern.text), content_(std::move(content)) {
    if (pattern.is_regex) regex_.emplace(pattern.text, source);
  }
  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      if (!regex_) {
        replace_all(token, text_, content_);
        continue;
      }
      std::string out;
      size_t done = 0;
      regex_->for_each_match(token, [&](size_t begin, size_t end) {
        out.append(token, done, begin - done);
        out += content_;
        done = end;
      });
      out.append(token, done);
      token = std::move(out);
    }
  }

 private:
  std::string text_, content_;
  std::optional<Pattern> regex_;
};

// Takes `content` away from the start and the end of each token, at most so many times.
class DecodeStrip final : public Decoder {
 public:
  DecodeStrip(std::string content, int64_t start, int64_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      for (int64_t i = 0; i < start_ && token.starts_with(content_); ++i) token.erase(0, content_.size());
      for (int64_t i = 0; i < stop_ && token.ends_with(content_); ++i) token.erase(token.size() - content_.size());
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

class DecodeWordPiece final : public Decoder {
 public:
  DecodeWordPiece(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void decode(std::vector<std::string>& tokens) const override {
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

class DecodeSuffix final : public Decoder {
 public:
  explicit DecodeSuffix(std::string suffix) : suffix_(std::move(suffix)) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

bool prepends(const JsonPart& part) {
  if (part.has("prepend_scheme")) return part.text("prepend_scheme", "") != "never";
  return part.flag("add_prefix_space", true);
}

std::unique_ptr<Decoder> read_one(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "Sequence") {
    Decoders steps;
    for (const JsonPart& inner : part.list("decoders")) steps.push_back(read_one(inner));
    return std::make_unique<DecodeInSequence>(std::move(steps));
  }
  if (type == "ByteLevel") return std::make_unique<DecodeByteLevel>();
  if (type == "Metaspace") return std::make_unique<DecodeMetaspace>(part.text("replacement", "\u2581"), prepends(part));
  if (type == "ByteFallback") return std::make_unique<DecodeByteFallback>();
  if (type == "Fuse") return std::make_unique<DecodeFuse>();
  if (type == "Replace")
    return std::make_unique<DecodeReplace>(read_text_or_regex(part, "pattern"), part.text("content", ""), part.source());
  if (type == "Strip") {
    const std::string content = part.text("content", " ");
    if (content.empty()) part.refuse("content", "a character");
    return std::make_unique<DecodeStrip>(content, part.number("start", 0), part.number("stop", 0));
  }
  if (type == "WordPiece") return std::make_unique<DecodeWordPiece>(part.text("prefix", "##"), part.flag("cleanup", true));
  if (type == "BPEDecoder") return std::make_unique<DecodeSuffix>(part.text("suffix", "</w>"));
  part.refuse_type("BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip or WordPiece");
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
  return read_one(JsonPart(json, "decoder", source));
}

}  // namespace trivet::data
