#include "data/bpe.h"

#include <fmt/format.h>

#include <unordered_map>

#include "core/printable.h"
#include "data/byte_alphabet.h"
#include "data/data_error.h"
#include "data/word_split.h"

namespace trivet::data {
namespace {

AddedTokens special_tokens(const BpeVocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  for (int32_t id : vocabulary.special) tokens.push_back({.id = id, .content = vocabulary.tokens[id], .special = true});
  return AddedTokens(std::move(tokens));
}

std::unordered_map<std::string_view, int32_t> ids_of(const BpeVocabulary& vocabulary) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) ids.emplace(vocabulary.tokens[id], static_cast<int32_t>(id));
  for (int32_t id : vocabulary.special) ids.erase(vocabulary.tokens[id]);
  return ids;
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary, const std::string& source)
    : vocabulary_(std::move(vocabulary)),
      merges_(vocabulary_.merges.size()),
      words_(split_by_pattern(vocabulary_.pattern, SplitBehavior::Isolated, false, source)),
      special_(special_tokens(vocabulary_)) {
  auto ids = ids_of(vocabulary_);
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const auto found = ids.find(std::string_view(&text, 1));
    if (found == ids.end()) bad_file(source, fmt::format("byte {} has no token, so this is not a byte-level vocabulary", byte));
    id_of_byte_[byte] = found->second;
  }
  for (size_t rank = 0; rank < vocabulary_.merges.size(); ++rank) {
    const auto [left, right] = vocabulary_.merges[rank];
    const std::string whole = vocabulary_.tokens[left] + vocabulary_.tokens[right];
    const auto found = ids.find(whole);
    if (found == ids.end())
      bad_file(source, fmt::format("merge {} produces \"{}\", which is not in the vocabulary", rank,
                                   printable(to_byte_alphabet(whole))));
    merges_.add(left, right, static_cast<int32_t>(rank), found->second);
  }
  if (vocabulary_.whole_words_first) whole_words_ = std::move(ids);
}

std::vector<int32_t> BpeTokenizer::encode_word(std::string_view word) const {
  if (const auto whole = whole_words_.find(word); whole != whole_words_.end()) return {whole->second};
  std::vector<int32_t> ids;
  ids.reserve(word.size());
  for (char byte : word) ids.push_back(id_of_byte_[static_cast<uint8_t>(byte)]);
  merges_.apply(ids);
  return ids;
}

void BpeTokenizer::append(std::string_view text, std::vector<int32_t>& ids) const {
  WordCaches::Borrowed known(caches_);
  words_->split({text}, [&](TextPiece word) {
    if (const WordCache::Found found = (*known).find(word.text); found.known) {
      ids.insert(ids.end(), found.ids.begin(), found.ids.end());
      return;
    }
    const auto encoded = encode_word(word.text);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    (*known).add(word.text, encoded);
  });
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  append(text, ids);
  return ids;
}

std::vector<int32_t> BpeTokenizer::encode_with_special(std::string_view text) const {
  std::vector<int32_t> ids;
  special_.split(
      text, SpecialTokens::Recognized, [&](std::string_view rest) { append(rest, ids); },
      [&](int32_t id) { ids.push_back(id); });
  return ids;
}

int32_t BpeTokenizer::special_id(std::string_view name) const {
  for (int32_t id : vocabulary_.special)
    if (vocabulary_.tokens[id] == name) return id;
  return -1;
}

size_t BpeTokenizer::piece_bytes(std::string_view text, size_t limit) const {
  return special_.can_cut_at_space() ? words_->piece_bytes(text, limit) : text.size();
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (int32_t id : ids) {
    if (id < 0 || id >= vocabulary_size())
      throw DataError(ExitCode::Usage, fmt::format("token {} is outside the vocabulary of {}", id, vocabulary_size()));
    text += vocabulary_.tokens[id];
  }
  return text;
}

BpeVocabulary vocabulary_of_merges(const std::vector<std::pair<std::string, std::string>>& merges, const std::string& source) {
  BpeVocabulary vocabulary;
  std::unordered_map<std::string, int32_t> ids;
  const auto add = [&](const std::string& token) {
    ids.emplace(token, static_cast<int32_t>(vocabulary.tokens.size()));
    vocabulary.tokens.push_back(token);
  };
  const auto id_of = [&](const std::string& token, size_t rank) {
    const auto found = ids.find(token);
    if (found == ids.end())
      bad_file(source,
               fmt::format("merge {} joins \"{}\", which no earlier merge produces", rank, printable(to_byte_alphabet(token))));
    return found->second;
  };
  for (uint8_t byte : bytes_by_id()) add(std::string(1, static_cast<char>(byte)));
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    vocabulary.merges.emplace_back(id_of(left, rank), id_of(right, rank));
    if (!ids.contains(left + right)) add(left + right);
  }
  vocabulary.special.push_back(static_cast<int32_t>(vocabulary.tokens.size()));
  vocabulary.tokens.emplace_back(kEndOfText);
  return vocabulary;
}

}  // namespace trivet::data
