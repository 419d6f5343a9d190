#include "data/encoded_piece.h"

#include <algorithm>
#include <optional>

namespace trivet::data {
namespace {

constexpr std::string_view kSpace = "\u2581";

// Bytes of the text that a token stands for, in vocabularies that write each byte as one character.
size_t bytes_as_characters(std::string_view token) {
  return static_cast<size_t>(
      std::ranges::count_if(token, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Bytes of the text that a token stands for, in vocabularies that write a space as U+2581 and a byte as <0x0A>.
size_t bytes_with_spaces(std::string_view token) {
  if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) return 1;
  size_t bytes = token.size();
  for (size_t at = token.find(kSpace); at != std::string_view::npos; at = token.find(kSpace, at + kSpace.size()))
    bytes -= kSpace.size() - 1;
  return bytes;
}

// Places where tokens end in the text, by a rule for the bytes that a token stands for. nullopt if the sizes do not add up to
// the text, with at most a space in front of it.
std::optional<std::vector<size_t>> ends_of_tokens(const Tokenizer& tokenizer, std::span<const int32_t> ids, size_t text_bytes,
                                                  size_t (*bytes_of)(std::string_view token)) {
  std::vector<size_t> ends;
  ends.reserve(ids.size());
  size_t end = 0;
  for (const int32_t id : ids) ends.push_back(end += bytes_of(tokenizer.token_name(id)));
  if (end == text_bytes) return ends;
  if (end != text_bytes + 1) return {};
  for (size_t& place : ends) place -= std::min<size_t>(place, 1);
  return ends;
}

// The end of a part, in tokens. `is_shared`: a part of the next token belongs to it as well.
struct Cut {
  size_t tokens;
  bool is_shared;
};

Cut cut_at(size_t place, const std::vector<size_t>& ends) {
  const auto token = std::ranges::upper_bound(ends, place);
  const auto index = static_cast<size_t>(token - ends.begin());
  return {index, index < ends.size() && (index == 0 ? 0 : ends[index - 1]) < place};
}

// For tokens that do not say which bytes they stand for: those of the beginning alone are those of the whole, up to the token
// that the rest changes.
Cut cut_after(std::span<const int32_t> beginning, std::span<const int32_t> all) {
  const auto differ = std::ranges::mismatch(beginning, all);
  return {static_cast<size_t>(differ.in2 - all.begin()), differ.in1 != beginning.end() && differ.in2 != all.end()};
}

// With more parts, encoding all their beginnings would take too long.
constexpr size_t kMostBeginnings = 64;

EncodedPiece joined(EncodedPiece left, const EncodedPiece& right) {
  for (const size_t end : right.ends) left.ends.push_back(left.ids.size() + end);
  left.ids.insert(left.ids.end(), right.ids.begin(), right.ids.end());
  return left;
}

}  // namespace

EncodedPiece encode_parts(const Tokenizer& tokenizer, std::span<const TextPart> parts, const TextToEncode& how) {
  std::string text;
  for (const TextPart& part : parts) text += part.text;
  EncodedPiece piece{tokenizer.encode_part(text, how), {}};
  std::optional<std::vector<size_t>> token_ends;
  if (parts.size() > 1)
    token_ends = ends_of_tokens(tokenizer, piece.ids, text.size(),
                                tokenizer.names_in_byte_alphabet() ? bytes_as_characters : bytes_with_spaces);
  if (!token_ends && parts.size() > kMostBeginnings) {
    const size_t half = parts.size() / 2;
    return joined(encode_parts(tokenizer, parts.first(half), how), encode_parts(tokenizer, parts.subspan(half), how));
  }
  size_t place = 0;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    place += parts[i].text.size();
    const Cut cut =
        token_ends ? cut_at(place, *token_ends) : cut_after(tokenizer.encode_part(text.substr(0, place), how), piece.ids);
    if (cut.is_shared && parts[i + 1].apart)
      return joined(encode_parts(tokenizer, parts.first(i + 1), how), encode_parts(tokenizer, parts.subspan(i + 1), how));
    const size_t end = cut.tokens + (cut.is_shared && !parts[i].ignored ? 1 : 0);
    piece.ends.push_back(std::max(end, piece.ends.empty() ? 0 : piece.ends.back()));
  }
  piece.ends.push_back(piece.ids.size());
  return piece;
}

}  // namespace trivet::data
