#include "data/bpe_train.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>

#include "data/byte_alphabet.h"
#include "data/data_error.h"
#include "data/text_file.h"
#include "data/tokenizers/tokenizer_json.h"
#include "data/word_split.h"

namespace trivet::data {
namespace {

uint64_t key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Counts of all pairs and the places they are at, kept up to date as tokens are merged. A merge takes time for the places where
// it happens, however long the words are.
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
  const std::string& bytes_of_token(int32_t id) const { return tokens_[id].bytes; }
  size_t written_bytes(const Pair& pair) const { return tokens_[pair.left].written + tokens_[pair.right].written; }

 private:
  // An index of text_.
  using Place = uint32_t;

  struct Token {
    std::string bytes;
    size_t written;  // bytes in a tokenizer.json
  };
  struct Known {
    int64_t count = 0;
    std::vector<Place> places;  // where the left token begins; a superset, because a place may have lost the pair
  };
  struct Entry {
    int64_t count;
    int32_t left, right;
  };
  struct Less {
    const std::vector<Token>* tokens;
    bool operator()(const Entry& a, const Entry& b) const {
      if (a.count != b.count) return a.count < b.count;
      const auto& of = *tokens;
      const int left = of[a.left].bytes.compare(of[b.left].bytes);
      return left != 0 ? left < 0 : of[a.right].bytes < of[b.right].bytes;
    }
  };

  static constexpr int32_t kNone = -1;

  void gain(int32_t left, int32_t right, Place place);
  void lose(int32_t left, int32_t right, Place place);
  int32_t add_token(const std::string& bytes);
  void merge_at(Place place, const Pair& pair, int32_t result);
  Place size_of(int32_t token) const { return static_cast<Place>(tokens_[token].bytes.size()); }

  std::vector<Token> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  // The words, byte by byte, with kNone around each. A token is at its first byte and at its last one; what is between them
  // means nothing. Tokens only grow, so a place where a token once began holds that token only as long as it still begins
  // there.
  std::vector<int32_t> text_;
  std::vector<int32_t> word_of_;  // for each place
  std::vector<int64_t> counts_;   // [word] how often it occurs
  std::unordered_map<uint64_t, Known> pairs_;
  std::vector<uint64_t> grown_;  // pairs whose count grew since they were last queued
  std::priority_queue<Entry, std::vector<Entry>, Less> queue_{Less{&tokens_}};
};

CountedPairs::CountedPairs(const WordCounts& words) {
  std::array<int32_t, 256> id_of_byte{};
  for (uint8_t byte : bytes_by_id()) id_of_byte[byte] = add_token(std::string(1, static_cast<char>(byte)));
  size_t size = 1;
  for (const auto& [text, count] : words.counts()) size += text.size() + 1;
  if (size > std::numeric_limits<Place>::max())
    throw DataError(ExitCode::Usage, fmt::format("the text has different words of {} bytes in all; a BPE vocabulary is learned "
                                                 "from at most {}, so use a part of the text",
                                                 size, std::numeric_limits<Place>::max()));
  text_.reserve(size);
  word_of_.reserve(size);
  text_.push_back(kNone);
  word_of_.push_back(kNone);
  for (const auto& [text, count] : words.counts()) {
    const auto first = static_cast<Place>(text_.size());
    for (char c : text) text_.push_back(id_of_byte[static_cast<uint8_t>(c)]);
    text_.push_back(kNone);
    word_of_.resize(text_.size(), static_cast<int32_t>(counts_.size()));
    counts_.push_back(count);
    for (Place place = first; place + 2 < text_.size(); ++place) gain(text_[place], text_[place + 1], place);
  }
}

void CountedPairs::gain(int32_t left, int32_t right, Place place) {
  Known& known = pairs_[key(left, right)];
  known.count += counts_[word_of_[place]];
  known.places.push_back(place);
  grown_.push_back(key(left, right));
}

void CountedPairs::lose(int32_t left, int32_t right, Place place) {
  const auto known = pairs_.find(key(left, right));
  known->second.count -= counts_[word_of_[place]];
  if (known->second.count == 0) pairs_.erase(known);
}

// A pair whose token could not be read again is left out for good.
CountedPairs::Pair CountedPairs::best() {
  std::sort(grown_.begin(), grown_.end());
  grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
  for (uint64_t pair : grown_)
    if (const auto known = pairs_.find(pair); known != pairs_.end())
      queue_.push({known->second.count, static_cast<int32_t>(pair >> 32), static_cast<int32_t>(pair & 0xFFFFFFFF)});
  grown_.clear();
  while (!queue_.empty()) {
    const Entry entry = queue_.top();
    queue_.pop();
    const auto found = pairs_.find(key(entry.left, entry.right));
    const int64_t count = found == pairs_.end() ? 0 : found->second.count;
    const Pair pair{entry.left, entry.right, count};
    if (count == 0 || written_bytes(pair) > kLongestWrittenToken) continue;
    if (count == entry.count) return pair;
    if (count < entry.count) queue_.push({count, entry.left, entry.right});  // it shrank since it was queued
  }
  return {};
}

// Two merges may produce the same bytes; they share one token.
int32_t CountedPairs::add_token(const std::string& bytes) {
  const auto [entry, is_new] = ids_.emplace(bytes, static_cast<int32_t>(tokens_.size()));
  if (is_new) tokens_.push_back({bytes, to_byte_alphabet(bytes).size()});
  return entry->second;
}

// Where a pair overlaps itself, as in "aaa", the first one within the word is merged.
void CountedPairs::merge(const Pair& pair) {
  const int32_t result = add_token(bytes_of_token(pair.left) + bytes_of_token(pair.right));
  std::vector<Place> places = std::move(pairs_.at(key(pair.left, pair.right)).places);
  std::sort(places.begin(), places.end());
  for (const Place place : places) merge_at(place, pair, result);
}

void CountedPairs::merge_at(Place place, const Pair& pair, int32_t result) {
  const Place right = place + size_of(pair.left);
  if (text_[place] != pair.left || text_[right] != pair.right) return;
  const Place last = place + size_of(result) - 1;
  lose(pair.left, pair.right, place);
  const int32_t before = text_[place - 1], after = text_[last + 1];
  const Place begin_before = before == kNone ? place : place - size_of(before);
  if (before != kNone) lose(before, pair.left, begin_before);
  if (after != kNone) lose(pair.right, after, right);
  text_[right - 1] = text_[right] = kNone;  // no token begins here any more
  text_[place] = text_[last] = result;
  if (before != kNone) gain(before, result, begin_before);
  if (after != kNone) gain(result, after, place);
}

// A text that repeats long passages without spaces has tokens of thousands of bytes.
void check_file_bytes(size_t bytes, int64_t tokens) {
  if (bytes <= static_cast<size_t>(kMaxTokenizerBytes)) return;
  throw DataError(
      ExitCode::Usage,
      fmt::format("the first {} tokens that are learned from the text would take {} bytes in a file, and at most {} "
                  "can be read; ask for fewer tokens, or use a text with more spaces",
                  tokens, bytes, kMaxTokenizerBytes));
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
  size_t file_bytes = 0;  // at least
  while (pairs.tokens() < wanted) {
    const auto best = pairs.best();
    if (best.count == 0) break;
    file_bytes += 2 * pairs.written_bytes(best);  // the token and its merge
    check_file_bytes(file_bytes, pairs.tokens());
    merges.emplace_back(pairs.bytes_of_token(best.left), pairs.bytes_of_token(best.right));
    pairs.merge(best);
    if (progress) progress(pairs.tokens(), wanted);
  }
  auto tokenizer = std::make_shared<BpeTokenizer>(vocabulary_of_merges(merges, "training text"), "training text");
  if (file_bytes > kMaxTokenizerBytes / 8) check_file_bytes(tokenizer->to_text().size(), pairs.tokens());
  return tokenizer;
}

}  // namespace trivet::data
