#include "data/tokenizers/added_tokens.h"

#include <algorithm>

#include "data/tokenizers/code_points.h"
#include "data/tokenizers/unicode.h"

namespace trivet::data {
namespace {

// The last code point of a text that is not empty.
CodePoint last_code_point(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  const CodePoint point = code_point_at(text, at);
  return at + static_cast<size_t>(point.bytes) == text.size() ? point : CodePoint{kNotUtf8, 1};
}

bool begins_with_word(std::string_view text) { return !text.empty() && is_word_char(code_point_at(text, 0).value); }
bool ends_with_word(std::string_view text) { return !text.empty() && is_word_char(last_code_point(text).value); }

size_t without_spaces_at_end(std::string_view text, size_t end) {
  while (end > 0) {
    const CodePoint last = last_code_point(text.substr(0, end));
    if (!is_white_space(last.value)) break;
    end -= static_cast<size_t>(last.bytes);
  }
  return end;
}

size_t after_spaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint next = code_point_at(text, at);
    if (!is_white_space(next.value)) break;
    at += static_cast<size_t>(next.bytes);
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) trie_.add(tokens_[i].content, static_cast<int32_t>(i));
}

bool AddedTokens::can_cut_at_space() const {
  return std::ranges::none_of(
      tokens_, [](const AddedToken& token) { return token.rstrip || token.content.find_first_of(" \n") != std::string::npos; });
}

void AddedTokens::split(std::string_view text, SpecialTokens special, const std::function<void(std::string_view)>& rest,
                        const std::function<void(int32_t)>& token) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const ByteTrie::Match match = trie_.may_begin(text[at]) ? trie_.longest_prefix(text.substr(at)) : ByteTrie::Match{};
    if (match.bytes == 0) {
      ++at;
      continue;
    }
    const AddedToken& found = tokens_[match.value];
    size_t begin = at, end = at + match.bytes;
    at = end;
    if (found.special && special == SpecialTokens::AsText) continue;
    if (found.single_word && (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end)))) continue;
    if (found.lstrip) begin = without_spaces_at_end(text, begin);
    begin = std::max(begin, done);
    if (found.rstrip) end = after_spaces(text, end);
    if (begin > done) rest(text.substr(done, begin - done));
    // A token of white space that an earlier one took with it: the library tokenizers drops it only if it has lstrip.
    if (begin < end || !found.lstrip) token(found.id);
    done = end;
  }
  if (done < text.size()) rest(text.substr(done));
}

}  // namespace trivet::data
