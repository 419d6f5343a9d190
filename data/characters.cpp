#include "data/characters.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/utf8.h"

namespace trivet::data {
namespace {

[[noreturn]] void not_utf8(std::string_view text, size_t position) {
  throw DataError(ExitCode::Usage,
                  fmt::format("the text is not UTF-8 at byte {} (0x{:02x}), so it has no characters; use vocabulary \"bytes\"",
                              position, static_cast<uint8_t>(text[position])));
}

template <typename Visit>
void for_each_character(std::string_view text, Visit visit) {
  for (size_t position = 0; position < text.size();) {
    const CodePoint point = decode_utf8(text, position);
    if (point.bytes == 0) not_utf8(text, position);
    visit(point.value, position);
    position += point.bytes;
  }
}

}  // namespace

std::vector<char32_t> distinct_characters(std::string_view text) {
  std::vector<bool> seen;  // up to the highest code point of the text
  for_each_character(text, [&](char32_t c, size_t) {
    if (c >= seen.size()) seen.resize(c + 1);
    seen[c] = true;
  });
  std::vector<char32_t> distinct;
  for (char32_t c = 0; c < seen.size(); ++c)
    if (seen[c]) distinct.push_back(c);
  return distinct;
}

CharactersTokenizer::CharactersTokenizer(std::vector<char32_t> characters)
    : characters_(std::move(characters)), ascii_(128, -1) {
  for (size_t id = 0; id < characters_.size(); ++id) {
    if (characters_[id] < 128)
      ascii_[characters_[id]] = static_cast<int32_t>(id);
    else
      other_[characters_[id]] = static_cast<int32_t>(id);
  }
}

int32_t CharactersTokenizer::id_of(char32_t character) const {
  if (character < 128) return ascii_[character];
  const auto found = other_.find(character);
  return found == other_.end() ? -1 : found->second;
}

std::vector<int32_t> CharactersTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for_each_character(text, [&](char32_t c, size_t position) {
    const int32_t id = id_of(c);
    if (id < 0)
      throw DataError(ExitCode::Usage,
                      fmt::format("character {} at byte {} is not among the {} characters of the training text",
                                  describe_code_point(c), position, characters_.size()));
    ids.push_back(id);
  });
  return ids;
}

std::string CharactersTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (int32_t id : ids) {
    if (id < 0 || id >= vocabulary_size())
      throw DataError(ExitCode::Usage,
                      fmt::format("token {} is outside the vocabulary of {} characters", id, vocabulary_size()));
    append_utf8(text, characters_[id]);
  }
  return text;
}

std::string CharactersTokenizer::to_text() const {
  std::string all;
  for (char32_t c : characters_) append_utf8(all, c);
  return nlohmann::ordered_json{{"trivet_tokenizer", "characters"}, {"characters", all}}.dump() + "\n";
}

}  // namespace trivet::data
