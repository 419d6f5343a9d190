#include "engine/data/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "core/printable.h"
#include "engine/data/byte_alphabet.h"
#include "engine/data/data_error.h"
#include "engine/data/word_split.h"

namespace trivet::data {
namespace {

constexpr size_t kRememberedWords = 1 << 20, kRememberedBytes = 64;

std::unordered_map<std::string_view, int32_t> ids_of(const BpeVocabulary& vocabulary) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) ids.emplace(vocabulary.tokens[id], static_cast<int32_t>(id));
  for (int32_t id : vocabulary.special) ids.erase(vocabulary.tokens[id]);
  return ids;
}

// A token of a word that is being merged, linked to its neighbours (-1: none).
struct Node {
  int32_t id;
  int32_t previous, next;
  bool gone = false;
};

// A possible merge. It is stale once either of its tokens has changed.
struct MergeCandidate {
  int32_t rank, at, left, right;
  bool operator>(const MergeCandidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
};

using Candidates = std::priority_queue<MergeCandidate, std::vector<MergeCandidate>, std::greater<>>;

}  // namespace

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary, const std::string& source) : vocabulary_(std::move(vocabulary)) {
  const auto ids = ids_of(vocabulary_);
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const auto found = ids.find(std::string_view(&text, 1));
    if (found == ids.end()) bad_file(source, fmt::format("byte {} has no token, so this is not a byte-level vocabulary", byte));
    id_of_byte_[byte] = found->second;
  }
  merges_.reserve(vocabulary_.merges.size());
  for (size_t rank = 0; rank < vocabulary_.merges.size(); ++rank) {
    const auto [left, right] = vocabulary_.merges[rank];
    const std::string whole = vocabulary_.tokens[left] + vocabulary_.tokens[right];
    const auto found = ids.find(whole);
    if (found == ids.end())
      bad_file(source, fmt::format("merge {} produces \"{}\", which is not in the vocabulary", rank,
                                   printable(to_byte_alphabet(whole))));
    merges_.emplace(key(left, right), Merge{static_cast<int32_t>(rank), found->second});
  }
}

std::vector<int32_t> BpeTokenizer::encode_word(std::string_view word) const {
  const auto count = static_cast<int32_t>(word.size());
  std::vector<Node> nodes;
  nodes.reserve(word.size());
  for (int32_t i = 0; i < count; ++i)
    nodes.push_back({id_of_byte_[static_cast<uint8_t>(word[i])], i - 1, i + 1 < count ? i + 1 : -1});

  Candidates candidates;
  const auto node = [&](int32_t at) -> Node& { return nodes[at]; };
  const auto consider = [&](int32_t left) {
    if (left < 0 || node(left).next < 0) return;
    const int32_t l = node(left).id, r = node(node(left).next).id;
    if (const auto merge = merges_.find(key(l, r)); merge != merges_.end()) candidates.push({merge->second.rank, left, l, r});
  };
  for (int32_t i = 0; i + 1 < count; ++i) consider(i);

  while (!candidates.empty()) {
    const MergeCandidate best = candidates.top();
    candidates.pop();
    Node& left = node(best.at);
    if (left.gone || left.id != best.left || left.next < 0 || node(left.next).id != best.right) continue;
    Node& right = node(left.next);
    left.id = merges_.at(key(best.left, best.right)).result;
    left.next = right.next;
    right.gone = true;
    if (left.next >= 0) node(left.next).previous = best.at;
    consider(left.previous);
    consider(best.at);
  }

  std::vector<int32_t> ids;
  for (int32_t at = count > 0 ? 0 : -1; at >= 0; at = node(at).next) ids.push_back(node(at).id);
  return ids;
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  std::unordered_map<std::string_view, std::vector<int32_t>> known;  // words of `text` seen before
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  for_each_word(text, [&](std::string_view word) {
    const auto found = known.find(word);
    if (found != known.end()) {
      ids.insert(ids.end(), found->second.begin(), found->second.end());
      return;
    }
    const auto encoded = encode_word(word);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    if (word.size() <= kRememberedBytes && known.size() < kRememberedWords) known.emplace(word, encoded);
  });
  return ids;
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
