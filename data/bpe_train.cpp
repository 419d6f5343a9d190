#include "data/bpe_train.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "data/byte_alphabet.h"
#include "data/data_error.h"
#include "data/word_split.h"

namespace trivet::data {
namespace {

struct Word {
  std::vector<int32_t> tokens;
  int64_t count;
};

uint64_t key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Counts of all pairs and the words they are in, kept up to date as words are merged.
class CountedPairs {
 public:
  explicit CountedPairs(const WordCounts& words);
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }

  struct Pair {
    int32_t left = 0, right = 0;
    int64_t count = 0;  // 0: no pair is left
  };
  Pair best();
  void merge(const Pair& pair);
  const std::string& bytes_of_token(int32_t id) const { return tokens_[id]; }

 private:
  struct Known {
    int64_t count = 0;
    std::vector<int32_t> words;  // a superset: a word may have lost the pair or be listed twice
  };
  struct Entry {
    int64_t count;
    int32_t left, right;
  };
  struct Less {
    const std::vector<std::string>* tokens;
    bool operator()(const Entry& a, const Entry& b) const {
      if (a.count != b.count) return a.count < b.count;
      const auto& of = *tokens;
      const int left = of[a.left].compare(of[b.left]);
      return left != 0 ? left < 0 : of[a.right] < of[b.right];
    }
  };

  void change(int32_t left, int32_t right, int64_t by, int32_t word);
  int32_t add_token(const std::string& bytes);
  void merge_in(int32_t word, const Pair& pair, int32_t result);

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, Known> pairs_;
  std::vector<uint64_t> changed_;  // pairs whose count grew since they were last queued
  std::priority_queue<Entry, std::vector<Entry>, Less> queue_{Less{&tokens_}};
};

CountedPairs::CountedPairs(const WordCounts& words) {
  std::array<int32_t, 256> id_of_byte{};
  for (uint8_t byte : bytes_by_id()) id_of_byte[byte] = add_token(std::string(1, static_cast<char>(byte)));
  for (const auto& [text, count] : words.counts()) {
    Word word{{}, count};
    for (char c : text) word.tokens.push_back(id_of_byte[static_cast<uint8_t>(c)]);
    const auto index = static_cast<int32_t>(words_.size());
    for (size_t i = 0; i + 1 < word.tokens.size(); ++i) change(word.tokens[i], word.tokens[i + 1], count, index);
    words_.push_back(std::move(word));
  }
}

void CountedPairs::change(int32_t left, int32_t right, int64_t by, int32_t word) {
  Known& known = pairs_[key(left, right)];
  known.count += by;
  if (by < 0) return;
  if (known.words.empty() || known.words.back() != word) known.words.push_back(word);
  changed_.push_back(key(left, right));
}

CountedPairs::Pair CountedPairs::best() {
  std::sort(changed_.begin(), changed_.end());
  changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
  for (uint64_t pair : changed_)
    queue_.push({pairs_[pair].count, static_cast<int32_t>(pair >> 32), static_cast<int32_t>(pair & 0xFFFFFFFF)});
  changed_.clear();
  while (!queue_.empty()) {
    const Entry entry = queue_.top();
    queue_.pop();
    const auto found = pairs_.find(key(entry.left, entry.right));
    const int64_t count = found == pairs_.end() ? 0 : found->second.count;
    if (count == entry.count && count > 0) return {entry.left, entry.right, count};
    if (count > 0) queue_.push({count, entry.left, entry.right});  // it shrank since it was queued
  }
  return {};
}

// Two merges may produce the same bytes; they share one token.
int32_t CountedPairs::add_token(const std::string& bytes) {
  const auto [entry, is_new] = ids_.emplace(bytes, static_cast<int32_t>(tokens_.size()));
  if (is_new) tokens_.push_back(bytes);
  return entry->second;
}

void CountedPairs::merge(const Pair& pair) {
  const int32_t result = add_token(bytes_of_token(pair.left) + bytes_of_token(pair.right));
  const std::vector<int32_t> affected = std::move(pairs_[key(pair.left, pair.right)].words);
  pairs_.erase(key(pair.left, pair.right));
  for (int32_t word : affected) merge_in(word, pair, result);
  pairs_.erase(key(pair.left, pair.right));  // merge_in has created it again while counting it down
}

void CountedPairs::merge_in(int32_t index, const Pair& pair, int32_t result) {
  Word& word = words_[index];
  std::vector<int32_t> merged;
  merged.reserve(word.tokens.size());
  for (size_t i = 0; i < word.tokens.size(); ++i) {
    const bool here = i + 1 < word.tokens.size() && word.tokens[i] == pair.left && word.tokens[i + 1] == pair.right;
    merged.push_back(here ? result : word.tokens[i]);
    if (here) ++i;
  }
  if (merged.size() == word.tokens.size()) return;
  for (size_t i = 0; i + 1 < word.tokens.size(); ++i) change(word.tokens[i], word.tokens[i + 1], -word.count, index);
  for (size_t i = 0; i + 1 < merged.size(); ++i) change(merged[i], merged[i + 1], word.count, index);
  word.tokens = std::move(merged);
}

}  // namespace

void WordCounts::add(std::string_view text) {
  for_each_word(text, [&](std::string_view word) { ++counts_[std::string(word)]; });
}

std::shared_ptr<BpeTokenizer> train_bpe(const WordCounts& words, int64_t vocabulary_size, const TrainingProgress& progress) {
  if (vocabulary_size < 257)
    throw DataError(ExitCode::Usage, fmt::format("a BPE vocabulary of {} is too small; use at least 257 (the bytes and {})",
                                                 vocabulary_size, kEndOfText));
  const int64_t wanted = vocabulary_size - 1;  // without <|endoftext|>
  CountedPairs pairs(words);
  std::vector<std::pair<std::string, std::string>> merges;
  while (pairs.tokens() < wanted) {
    const auto best = pairs.best();
    if (best.count == 0) break;
    merges.emplace_back(pairs.bytes_of_token(best.left), pairs.bytes_of_token(best.right));
    pairs.merge(best);
    if (progress) progress(pairs.tokens(), wanted);
  }
  return std::make_shared<BpeTokenizer>(vocabulary_of_merges(merges, "training text"), "training text");
}

}  // namespace trivet::data
