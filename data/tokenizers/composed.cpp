#include "data/tokenizers/composed.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/utf8.h"
#include "data/tokenizers/code_points.h"

namespace trivet::data {
namespace {

void check_utf8(std::string_view text) {
  for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    if (c == kNotUtf8)
      throw DataError(
          ExitCode::Usage,
          fmt::format("the text is not UTF-8 at byte {} (0x{:02x}), and this tokenizer has tokens for characters; use a "
                      "text in UTF-8, or a tokenizer that works on bytes",
                      bytes.data() - text.data(), static_cast<uint8_t>(bytes[0])));
  });
}

// Checks whether nothing of the first character is left, so that the first word no longer begins where the text begins. Looks
// at the first 64 to 256 characters alone.
bool drops_beginning(const Normalizer& normalizer, std::string_view text) {
  size_t bytes = std::min<size_t>(text.size(), 256);
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  if (bytes == 0) return false;
  const std::string beginning(text.substr(0, bytes));
  const size_t first = static_cast<size_t>(code_point_at(beginning, 0).bytes);
  return normalizer.normalize(beginning) == normalizer.normalize(beginning.substr(first));
}

}  // namespace

ComposedTokenizer::ComposedTokenizer(Composition parts) : parts_(std::move(parts)) {
  for (size_t id = 0; id < parts_.special.size(); ++id)
    if (parts_.special[id]) special_ids_.emplace(parts_.tokens[id], static_cast<int32_t>(id));
}

std::vector<int32_t> ComposedTokenizer::encode_part(std::string_view text, const TextToEncode& how) const {
  const SpecialTokens special = how.special ? SpecialTokens::Recognized : SpecialTokens::AsText;
  if (!parts_.byte_level) check_utf8(text);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  WordCaches::Borrowed cache(caches_);
  const auto rest = [&](std::string_view part) {
    encode_rest({part, how.begins && part.data() == text.data()}, special, *cache, ids);
  };
  if (parts_.added_before.empty()) {
    if (!text.empty()) rest(text);
  } else {
    parts_.added_before.split(text, special, rest, [&](int32_t id) { ids.push_back(id); });
  }
  return ids;
}

void ComposedTokenizer::encode_rest(TextPiece rest, SpecialTokens special, WordCache& cache, std::vector<int32_t>& ids) const {
  std::string normalized;
  std::string_view text = rest.text;
  if (parts_.normalizer) {
    normalized = parts_.normalizer->normalize(std::string(rest.text));
    if (rest.first) rest.first = !drops_beginning(*parts_.normalizer, rest.text);
    text = normalized;
  }
  if (parts_.added_after.empty()) return encode_normalized({text, rest.first}, cache, ids);
  parts_.added_after.split(
      text, special,
      [&](std::string_view part) {
        encode_normalized({part, rest.first && part.data() == text.data()}, cache, ids);
      },
      [&](int32_t id) { ids.push_back(id); });
}

void ComposedTokenizer::encode_normalized(TextPiece piece, WordCache& cache, std::vector<int32_t>& ids) const {
  if (!parts_.splitter) return encode_word(piece.text, cache, ids);
  parts_.splitter->split(piece, [&](TextPiece word) { encode_word(word.text, cache, ids); });
}

void ComposedTokenizer::encode_word(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const {
  parts_.model->for_each_part(word, [&](std::string_view part) {
    if (const WordCache::Found found = cache.find(part); found.known) {
      ids.insert(ids.end(), found.ids.begin(), found.ids.end());
      return;
    }
    const size_t before = ids.size();
    parts_.model->encode(part, ids);
    cache.add(part, std::span(ids).subspan(before));
  });
}

std::string ComposedTokenizer::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> tokens;
  for (int32_t id : ids) {
    if (id < 0 || id >= vocabulary_size())
      throw DataError(ExitCode::Usage, fmt::format("token {} is outside the vocabulary of {}", id, vocabulary_size()));
    if (!parts_.tokens[id].empty()) tokens.push_back(parts_.tokens[id]);
  }
  if (parts_.decoder) parts_.decoder->decode(tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !parts_.decoder) text += ' ';
    text += tokens[i];
  }
  return text;
}

size_t ComposedTokenizer::piece_bytes(std::string_view text, size_t limit) const {
  const bool can_cut =
      !parts_.normalizer && parts_.splitter && parts_.added_before.can_cut_at_space() && parts_.added_after.can_cut_at_space();
  return can_cut ? parts_.splitter->piece_bytes(text, limit) : text.size();
}

int32_t ComposedTokenizer::special_id(std::string_view content) const {
  const auto found = special_ids_.find(content);
  return found == special_ids_.end() ? -1 : found->second;
}

}  // namespace trivet::data
