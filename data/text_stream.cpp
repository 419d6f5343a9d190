#include "data/text_stream.h"

#include <algorithm>

namespace trivet::data {
namespace {

constexpr size_t kContext = 8;  // tokens; enough for a character and a space in front of it

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<int32_t> tokens)
    : tokenizer_(tokenizer), tokens_(std::move(tokens)) {
  if (tokens_.size() > kContext) tokens_.erase(tokens_.begin(), tokens_.end() - kContext);
  known_ = tokens_.size();
}

std::string TextStream::added() const {
  const std::string before = tokenizer_.decode(std::span(tokens_).first(known_)), all = tokenizer_.decode(tokens_);
  return all.size() > before.size() ? all.substr(before.size()) : "";
}

std::string TextStream::next(int32_t token) {
  tokens_.push_back(token);
  const std::string text = added();
  if (text.empty() || text.ends_with("\uFFFD")) return "";
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(known_));
  known_ = tokens_.size();
  return text;
}

std::string TextStream::rest() {
  const std::string text = added();
  known_ = tokens_.size();
  return text;
}

}  // namespace trivet::data
