#include "data/bpe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "data/bpe_files.h"
#include "data/bpe_train.h"
#include "data/byte_alphabet.h"
#include "data/data_error.h"
#include "data/text_file.h"
#include "tests/data/files.h"

namespace trivet::data {
namespace {

using Ids = std::vector<int32_t>;

// "he" 256, "ll" 257, "hell" 258, "hello" 259, <|endoftext|> 260
std::shared_ptr<BpeTokenizer> small() { return bpe_from_merges("#version: 0.2\nh e\nl l\nhe ll\nhell o\n", "small.bpe"); }

std::string random_bytes(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::string text;
  for (size_t i = 0; i < count; ++i) text += static_cast<char>(generator());
  return text;
}

// Applies the rule itself, without any data structure: the oracle for encode_word.
Ids merged_plainly(const BpeVocabulary& vocabulary, const Ids& bytes) {
  Ids ids = bytes;
  for (;;) {
    size_t best_rank = vocabulary.merges.size(), best_at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      for (size_t rank = 0; rank < best_rank; ++rank)
        if (vocabulary.merges[rank] == std::pair(ids[i], ids[i + 1])) best_rank = rank, best_at = i;
    if (best_rank == vocabulary.merges.size()) return ids;
    ids[best_at] = 256 + static_cast<int32_t>(best_rank);
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(ByteAlphabet, FollowsGpt2sTable) {
  EXPECT_EQ(bytes_by_id()[0], '!');
  EXPECT_EQ(to_byte_alphabet(" "), "\u0120");
  EXPECT_EQ(to_byte_alphabet("\n"), "\u010A");
  EXPECT_EQ(to_byte_alphabet("\x7F"), "\u0121");
  EXPECT_EQ(to_byte_alphabet("\xAD"), "\u0143");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(all)), all);
  EXPECT_EQ(from_byte_alphabet(" "), std::nullopt);
}

TEST(Bpe, JoinsTheEarliestMergeLeftmostFirst) {
  EXPECT_EQ(small()->encode("hello"), (Ids{259}));
  EXPECT_EQ(small()->decode(Ids{259, 260}), "hello<|endoftext|>");
  EXPECT_EQ(small()->vocabulary_size(), 261);
  const auto overlapping = bpe_from_merges("a a\n", "a.bpe");
  EXPECT_EQ(overlapping->encode("aaa"), (Ids{256, overlapping->encode("a")[0]}));
}

// In "abcb", b+c is merged first, then a+bc. a+b was possible at the beginning but is not any more, although another b follows
// now.
TEST(Bpe, AMergeThatIsNoLongerPossibleIsNotDone) {
  const auto tokenizer = bpe_from_merges("b c\na bc\na b\n", "abc.bpe");
  EXPECT_EQ(tokenizer->encode_word("abcb"), (Ids{257, 'b' - '!'}));
}

std::string base64(const std::string& bytes) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  uint32_t buffer = 0;
  int bits = 0;
  for (const char byte : bytes) {
    buffer = buffer << 8 | static_cast<uint8_t>(byte);
    for (bits += 8; bits >= 6;) text += letters[buffer >> (bits -= 6) & 63];
  }
  if (bits > 0) text += letters[buffer << (6 - bits) & 63];
  return text.append((4 - text.size() % 4) % 4, '=');
}

// A tiktoken file with the 256 bytes, followed by these tokens.
std::shared_ptr<BpeTokenizer> from_ranks(const std::vector<std::string>& tokens) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte)
    text += base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(byte) + "\n";
  for (size_t i = 0; i < tokens.size(); ++i) text += base64(tokens[i]) + " " + std::to_string(256 + i) + "\n";
  return bpe_from_tiktoken(text, "gpt2.tiktoken");
}

// The file has no merges. "abcd" is a + bcd: b+c comes before a+b, and then "abc" is not a token.
TEST(Bpe, RanksAloneSayWhatWasMerged) {
  const auto tokenizer = from_ranks({"bc", "ab", "bcd", "abcd"});
  EXPECT_EQ(tokenizer->encode_word("abcd"), (Ids{259}));
  EXPECT_NE(tokenizer->to_text().find("\"a bcd\""), std::string::npos);
}

// As in tiktoken, which looks whole words up first.
TEST(Bpe, ARankThatNoMergeMakesIsAWholeWord) {
  const auto tokenizer = from_ranks({"ab", "xyz"});
  EXPECT_EQ(tokenizer->encode_word("xyz"), (Ids{257}));
  EXPECT_EQ(tokenizer->encode_word("xyzab"), (Ids{'x', 'y', 'z', 256}));
  const auto stored = tokenizer_from_text(tokenizer->to_text(), "stored");
  EXPECT_EQ(stored->encode("xyz xyzab"), tokenizer->encode("xyz xyzab"));
  EXPECT_EQ(stored->encode("xyz"), (Ids{257}));
}

// "ab" has the higher rank, but without it nothing makes "abc".
TEST(Bpe, ARankMayBeMadeOfALaterOne) {
  const auto tokenizer = from_ranks({"abc", "ab"});
  EXPECT_EQ(tokenizer->encode_word("abcd"), (Ids{256, 'd'}));
  EXPECT_EQ(tokenizer->encode_word("abd"), (Ids{257, 'd'}));
}

TEST(Bpe, WordsEncodeAsTheRuleSays) {
  WordCounts words;
  words.add("abababab abba baab aabb abab bbaa babba abbabaab");
  const auto tokenizer = train_bpe(words, 275);
  std::mt19937 generator(5);
  for (int trial = 0; trial < 300; ++trial) {
    std::string word;
    for (size_t i = 0; i < 1 + generator() % 30; ++i) word += "ab"[generator() % 2];
    Ids bytes;
    for (char c : word) bytes.push_back(c - '!');
    EXPECT_EQ(tokenizer->encode_word(word), merged_plainly(tokenizer->vocabulary(), bytes)) << word;
  }
}

TEST(Bpe, AnyBytesRoundTrip) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::string text = random_bytes(500, seed);
    EXPECT_EQ(small()->decode(small()->encode(text)), text);
  }
}

TEST(Bpe, SavesAsTokenizerJsonAndLoadsBack) {
  const auto loaded = tokenizer_from_text(small()->to_text(), "x");
  EXPECT_EQ(loaded->to_text(), small()->to_text());
  EXPECT_EQ(loaded->encode("hello hell"), small()->encode("hello hell"));
}

TEST(BpeTraining, EqualCountsGoToTheGreatestPair) {
  WordCounts words;
  words.add("low low low low low lower lower widest widest widest newest newest newest newest newest newest");
  const auto tokenizer = train_bpe(words, 263);
  std::vector<std::string> made(tokenizer->vocabulary().tokens.begin() + 256, tokenizer->vocabulary().tokens.end() - 1);
  EXPECT_EQ(made, (std::vector<std::string>{"st", "est", "ow", "low", "west", "ne"}));
}

TEST(BpeTraining, StopsWhenNothingIsLeftToMerge) {
  WordCounts words;
  words.add("ab");
  EXPECT_EQ(train_bpe(words, 1000)->vocabulary_size(), 258);
}

// Counts all pairs again after each merge: the oracle for train_bpe.
std::vector<std::string> learned_plainly(const WordCounts& words, size_t merges) {
  std::vector<std::pair<std::vector<std::string>, int64_t>> texts;
  for (const auto& [word, count] : words.counts()) {
    texts.push_back({{}, count});
    for (const char c : word) texts.back().first.emplace_back(1, c);
  }
  std::vector<std::string> made;
  while (made.size() < 2 * merges) {
    std::map<std::pair<std::string, std::string>, int64_t> pairs;
    for (const auto& [tokens, count] : texts)
      for (size_t i = 0; i + 1 < tokens.size(); ++i) pairs[{tokens[i], tokens[i + 1]}] += count;
    if (pairs.empty()) break;
    auto best = pairs.begin();
    for (auto pair = pairs.begin(); pair != pairs.end(); ++pair)
      if (pair->second >= best->second) best = pair;
    const auto [left, right] = best->first;
    for (auto& [tokens, count] : texts)
      for (size_t i = 0; i + 1 < tokens.size(); ++i)
        if (tokens[i] == left && tokens[i + 1] == right) {
          tokens[i] += right;
          tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
    made.insert(made.end(), {left, right});
  }
  return made;
}

TEST(BpeTraining, MergesAsCountingAllPairsAgainDoes) {
  std::mt19937 generator(7);
  for (int trial = 0; trial < 60; ++trial) {
    std::string text;
    const size_t letters = 1 + trial % 5, size = 1 + generator() % 400;
    while (text.size() < size)
      text += trial % 3 > 0 && generator() % 6 == 0 ? ' ' : static_cast<char>('a' + generator() % letters);
    WordCounts words;
    words.add(text);
    const auto made = learned_plainly(words, 40);
    // Merges whose result is a token already add none, so the vocabulary that has them all may be smaller.
    const auto vocabulary = train_bpe(words, 257 + 40)->vocabulary();
    std::vector<std::string> learned;
    for (const auto& [left, right] : vocabulary.merges)
      learned.insert(learned.end(), {vocabulary.tokens[left], vocabulary.tokens[right]});
    learned.resize(std::min(learned.size(), made.size()));
    EXPECT_EQ(learned, made) << text;
  }
}

// A merge once took time for the whole of each word that has the pair.
TEST(BpeTraining, TextWithoutSpacesTakesNoLongerThanOtherText) {
  std::mt19937 generator(3);
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += static_cast<char>('a' + generator() % 16);
  WordCounts words;
  words.add(text);
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = train_bpe(words, 1000);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_EQ(tokenizer->vocabulary_size(), 1000);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

// The file writes a space as a character of two bytes.
TEST(BpeTraining, MakesNoTokenThatCannotBeReadAgain) {
  for (const auto& [letter, longest] : {std::pair('c', size_t{65536}), std::pair(' ', size_t{32768})}) {
    WordCounts words;
    words.add(std::string(600'000, letter) + std::string(3, 'x'));
    const auto tokenizer = train_bpe(words, 300);
    size_t bytes = 0;
    for (const std::string& token : tokenizer->vocabulary().tokens) bytes = std::max(bytes, token.size());
    EXPECT_EQ(bytes, longest);
    const auto loaded = tokenizer_from_text(tokenizer->to_text(), "learned");
    EXPECT_EQ(loaded->vocabulary_size(), tokenizer->vocabulary_size());
  }
}

// Equal counts go to the greatest pair, so the token that begins with "z" becomes longer and longer.
TEST(BpeTraining, RefusesAVocabularyThatIsTooLargeToBeReadAgain) {
  std::mt19937 generator(3);
  std::string passage = "z";
  for (int i = 0; i < 20'000; ++i) passage += static_cast<char>('a' + generator() % 16);
  WordCounts words;
  words.add(passage + passage + passage);
  EXPECT_THROW(train_bpe(words, 20'000), DataError);
  EXPECT_LT(train_bpe(words, 2'000)->to_text().size(), 64u << 20);
}

TEST(BpeTraining, FindsTheReferenceMerges) {
  const std::string corpus = shared_data("bpe-train/corpus.en"),
                    merges = shared_data("bpe-train/train-bpe-reference-merges.txt");
  SKIP_WITHOUT(corpus);
  WordCounts words;
  words.add(read_text(corpus));
  const auto tokenizer = train_bpe(words, 500);
  const auto reference = bpe_from_merges(read_text(merges), merges);
  EXPECT_EQ(reference->vocabulary().merges.size(), 243u);
  EXPECT_EQ(tokenizer->to_text(), reference->to_text());
}

TEST(Gpt2Vocabulary, IsTheSameFromAllThreeFiles) {
  const std::string folder = shared_data("gpt2-bpe/");
  SKIP_WITHOUT(folder);
  const auto merges = load_tokenizer(folder + "vocab.bpe");
  EXPECT_EQ(merges->vocabulary_size(), 50257);
  const auto json = load_tokenizer(folder + "tokenizer.json");
  const std::string text = "The cat's 12 hats\n\n  \u20AC\xFF<|endoftext|>";
  EXPECT_EQ(json->vocabulary_size(), 50257);
  EXPECT_EQ(json->encode(text), merges->encode(text));
  EXPECT_EQ(json->encode_with_special(text), merges->encode_with_special(text));
  EXPECT_EQ(load_tokenizer(folder + "r50k_base.tiktoken")->to_text(), merges->to_text());
}

// "EncodingName: r50k_base\nSample: TEXT\nEncoded: [1, 2]\n\n"
struct Plan {
  std::string text;
  Ids ids;
};

std::vector<Plan> r50k_plans(const std::string& path) {
  const std::string all = read_text(path);
  std::vector<Plan> plans;
  const std::string begin = "EncodingName: r50k_base\nSample: ", middle = "\nEncoded: ";
  for (size_t at = all.find(begin); at != std::string::npos; at = all.find(begin, at + 1)) {
    const size_t text = at + begin.size(), encoded = all.find(middle, text), end = all.find('\n', encoded + 1);
    plans.push_back({all.substr(text, encoded - text),
                     nlohmann::json::parse(all.substr(encoded + middle.size(), end - encoded - middle.size()))});
  }
  return plans;
}

TEST(Gpt2Vocabulary, EncodesThePublishedVectors) {
  const std::string folder = shared_data("gpt2-bpe/");
  SKIP_WITHOUT(folder);
  const auto tokenizer = load_tokenizer(folder + "vocab.bpe");
  const auto plans = r50k_plans(folder + "TestPlans.txt");
  ASSERT_EQ(plans.size(), 64u);
  for (const auto& plan : plans) {
    EXPECT_EQ(tokenizer->encode(plan.text), plan.ids) << plan.text;
    EXPECT_EQ(tokenizer->decode(plan.ids), plan.text);
  }
}

TEST(Gpt2Vocabulary, TinyShakespeareHas338025Tokens) {
  const std::string folder = shared_data("gpt2-bpe/"), text_path = shared_data("tinyshakespeare/input.txt");
  SKIP_WITHOUT(folder);
  SKIP_WITHOUT(text_path);
  const std::string text = read_text(text_path);
  const auto tokenizer = load_tokenizer(folder + "vocab.bpe");
  const Ids ids = tokenizer->encode(text);
  EXPECT_EQ(ids.size(), 338025u);
  EXPECT_EQ(tokenizer->decode(ids), text);
}

}  // namespace
}  // namespace trivet::data
