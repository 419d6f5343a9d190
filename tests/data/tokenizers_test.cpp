// Tokenizers of other programs, compared with what those programs made of the same texts
// (tests/golden/tokenizers_reference.py).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/base64.h"
#include "data/bpe_files.h"
#include "data/text_stream.h"
#include "data/tokenizer.h"
#include "data/tokenizers/code_points.h"
#include "data/tokenizers/merges.h"
#include "data/tokenizers/pattern.h"
#include "data/tokenizers/pre_tokenizers.h"
#include "data/tokenizers/unicode.h"
#include "data/tokenizers/word_cache.h"
#include "data/word_split.h"
#include "tests/data/expect_error.h"
#include "tests/data/files.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

using testing::ElementsAre, testing::SizeIs;

using Json = nlohmann::json;
using test::TemporaryFolder;
using TokenList = std::vector<int32_t>;

const std::string kFolder = TRIVET_SOURCE_DIR "/tests/golden/tokenizers/";

std::vector<Json> golden_lines(const std::string& name) {
  std::istringstream lines(file_content(kFolder + name + ".jsonl"));
  std::vector<Json> golden;
  for (std::string line; std::getline(lines, line);) golden.push_back(Json::parse(line));
  return golden;
}

// Bytes that are no UTF-8 by themselves are shown as U+FFFD by libraries whose texts are Unicode.
std::string shown(const std::string& text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, std::string_view bytes) { out += c == kNotUtf8 ? "\uFFFD" : bytes; });
  return out;
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  std::string name = std::filesystem::path(GetParam()).stem();
  std::shared_ptr<Tokenizer> tokenizer = load_tokenizer(kFolder + GetParam());
};

TEST_P(Golden, EncodesAsItsOwnProgram) {
  const auto golden = golden_lines(name);
  ASSERT_THAT(golden, SizeIs(23));
  for (const Json& line : golden) {
    const std::string text = line.at("text");
    EXPECT_EQ(tokenizer->encode(text), line.at("ids").get<TokenList>()) << text;
    if (line.contains("special")) {
      EXPECT_EQ(tokenizer->encode_with_special(text), line.at("special").get<TokenList>()) << text;
    }
    EXPECT_EQ(tokenizer->encode(text), line.at("ids").get<TokenList>()) << "again, with what it remembers: " << text;
  }
}

TEST_P(Golden, DecodesAsItsOwnProgram) {
  for (const Json& line : golden_lines(name)) {
    const TokenList ids = line.at("ids");
    EXPECT_EQ(shown(tokenizer->decode(ids)), line.at("decoded").get<std::string>());
  }
}

TEST_P(Golden, PutsTheSameTokensAroundAText) {
  const Json frames = Json::parse(file_content(kFolder + "frames.json"));
  const Json frame = frames.value(name, Json{{"before", TokenList{}}, {"after", TokenList{}}});
  EXPECT_EQ(tokenizer->frame().before, frame.at("before").get<TokenList>());
  EXPECT_EQ(tokenizer->frame().after, frame.at("after").get<TokenList>());
}

TEST_P(Golden, EncodesALongTextInPieces) {
  std::string text;
  for (const Json& line : golden_lines(name)) text += line.at("text").get<std::string>() + " and!\nmore <s>\n\n x";
  for (const size_t limit : {1, 20, 300}) {
    TokenList plain, special;
    int pieces = 0;
    for (std::string_view rest = text; !rest.empty(); ++pieces) {
      const size_t bytes = tokenizer->piece_bytes(rest, limit);
      for (const int32_t id : tokenizer->encode(rest.substr(0, bytes))) plain.push_back(id);
      for (const int32_t id : tokenizer->encode_with_special(rest.substr(0, bytes))) special.push_back(id);
      rest.remove_prefix(bytes);
    }
    EXPECT_EQ(plain, tokenizer->encode(text)) << limit;
    EXPECT_EQ(special, tokenizer->encode_with_special(text)) << limit;
    if (name == "gpt2" || name == "llama3") {
      EXPECT_GT(pieces, 3) << limit;
    }
  }
}

TEST_P(Golden, SurvivesBeingStored) {
  const auto stored = tokenizer_from_text(tokenizer->to_text(), "stored");
  EXPECT_EQ(stored->to_text(), tokenizer->to_text());
  EXPECT_EQ(stored->name(), tokenizer->name());
  EXPECT_EQ(stored->vocabulary_size(), tokenizer->vocabulary_size());
  for (const Json& line : golden_lines(name)) EXPECT_EQ(stored->encode(line.at("text").get<std::string>()), line.at("ids"));
}

TEST_P(Golden, ThreadsMayShareIt) {
  const auto golden = golden_lines(name);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (const Json& line : golden) count += tokenizer->encode(line.at("text").get<std::string>()) != line.at("ids");
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

// Sums of scores are rounded as sentencepiece does, also below -100,000, and user-defined pieces have the scores that it gives
// them (tests/golden/sentencepiece_ties.py).
TEST(TiesOfUnigram, AreDecidedAsBySentencepiece) {
  const std::string folder = TRIVET_SOURCE_DIR "/tests/golden/sentencepiece_ties/";
  const auto tokenizer = load_tokenizer(folder + "ties.model");
  std::istringstream lines(file_content(folder + "ties.jsonl"));
  int texts = 0;
  for (std::string line; std::getline(lines, line); ++texts) {
    const Json golden = Json::parse(line);
    EXPECT_EQ(tokenizer->encode(golden.at("text").get<std::string>()), golden.at("ids").get<TokenList>());
  }
  EXPECT_EQ(texts, 30);
}

// The ids are those of the library tokenizers 0.23.
TEST(AddedTokens, OfWhiteSpaceThatAnotherTookWithItAreDroppedOrRepeatedAsInTheLibrary) {
  const auto ids_with = [&](bool lstrip, bool rstrip) {
    Json json = Json::parse(file_content(kFolder + "gpt2.json"));
    json["added_tokens"].push_back({{"id", 421}, {"content", "\n"}, {"lstrip", lstrip}, {"rstrip", rstrip}, {"special", true}});
    json["added_tokens"].push_back({{"id", 422}, {"content", "\t"}, {"special", true}});
    const auto tokenizer = tokenizer_from_text(json.dump(), "t.json");
    std::vector<TokenList> ids;
    for (const char* text : {"a\n\n\nx", "a\n \nx", "\n\t x"}) ids.push_back(tokenizer->encode_with_special(text));
    return ids;
  };
  const TokenList after{421, 422, 221, 88};  // a second token gives back the white space after it
  EXPECT_THAT(ids_with(false, false), ElementsAre(TokenList{65, 421, 421, 421, 88}, TokenList{65, 421, 221, 421, 88}, after));
  EXPECT_THAT(ids_with(false, true), ElementsAre(TokenList{65, 421, 421, 421, 88}, TokenList{65, 421, 421, 88}, after));
  EXPECT_THAT(ids_with(true, false), ElementsAre(TokenList{65, 421, 421, 421, 88}, TokenList{65, 421, 421, 88}, after));
  EXPECT_THAT(ids_with(true, true), ElementsAre(TokenList{65, 421, 88}, TokenList{65, 421, 88}, after));
}

// The same: the character \u00e4 has no token for its second byte.
TEST(ByteFallback, IsGivenUpOnlyForCharactersOfWhichAByteHasNoToken) {
  const auto ids_of = [](const Json& model) {
    const auto tokenizer = tokenizer_from_text(Json{{"model", model}}.dump(), "t.json");
    std::vector<TokenList> ids;
    for (const char* text : {"a\n\u00e9", "\u00e4\na", "b\u00e4\n\u00e4a", "\u00e4b"}) ids.push_back(tokenizer->encode(text));
    return ids;
  };
  Json bpe{{"type", "BPE"},
           {"vocab", {{"<unk>", 0}, {"a", 1}, {"<0x0A>", 2}, {"<0xC3>", 3}, {"<0xA9>", 4}}},
           {"merges", Json::array()},
           {"byte_fallback", true}};
  EXPECT_THAT(ids_of(bpe), ElementsAre(TokenList{1, 2, 3, 4}, TokenList{2, 1}, TokenList{2, 1}, TokenList{}));
  bpe["unk_token"] = "<unk>";  // which comes after bytes that follow it
  EXPECT_THAT(ids_of(bpe), ElementsAre(TokenList{1, 2, 3, 4}, TokenList{2, 0, 1}, TokenList{0, 2, 0, 0, 1}, TokenList{0, 0}));
  bpe["fuse_unk"] = true;
  EXPECT_THAT(ids_of(bpe), ElementsAre(TokenList{1, 2, 3, 4}, TokenList{2, 0, 1}, TokenList{2, 0, 1}, TokenList{0}));
  Json unigram{{"type", "Unigram"}, {"unk_id", 0}, {"vocab", Json::array()}, {"byte_fallback", true}};
  for (const char* token : {"<unk>", "a", "<0x0A>", "<0xC3>", "<0xA9>"})
    unigram["vocab"].push_back(Json::array({token, -static_cast<double>(unigram["vocab"].size())}));
  EXPECT_THAT(ids_of(unigram), ElementsAre(TokenList{1, 2, 3, 4}, TokenList{0, 1}, TokenList{0, 1}, TokenList{0}))
      << "unknown characters next to each other are one";
}

std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    if (entry.path().filename() != "frames.json" && entry.path().extension() != ".jsonl")
      files.push_back(entry.path().filename());
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden, testing::ValuesIn(golden_files()), [](const auto& golden) {
  std::string name = golden.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

std::vector<std::string> pieces_of(const PreTokenizer& splitter, std::string_view text) {
  std::vector<std::string> pieces;
  splitter.split({text, true}, [&](TextPiece piece) { pieces.emplace_back(piece.text); });
  return pieces;
}

// What is written by hand splits as PCRE2 does with the same expression.
TEST(FastWords, SplitAsTheirExpressions) {
  for (const char* expression : {kGpt2Pattern, kGpt4Pattern, kQwenPattern, kGpt4oPattern}) {
    const auto fast = split_by_pattern(expression, SplitBehavior::Isolated, false, "x");
    // A group changes nothing but the name of the expression.
    const auto slow = split_by_pattern("(?:" + std::string(expression) + ")", SplitBehavior::Isolated, false, "x");
    for (const Json& line : golden_lines("gpt2")) {
      const std::string text = line.at("text");
      EXPECT_EQ(pieces_of(*fast, text), pieces_of(*slow, text)) << expression << ": " << text;
    }
    const std::string signs[] = {" ",  "\n",     "\r",     "'",      "s", "LL",     "x",      "\u00e9", "1", "\u0663",    "!",
                                 "\t", "\u3000", "\u017f", "\u0301", "A", "\u01c5", "\u02b0", "\u4e16", "/", "\U0001F30D"};
    uint32_t state = 1;
    for (int i = 0; i < 4000; ++i) {
      std::string text;
      for (int k = 0; k < 12; ++k) text += signs[((state = state * 1664525 + 1013904223) >> 16) % std::size(signs)];
      const std::vector<std::string> words = pieces_of(*fast, text);
      ASSERT_EQ(words, pieces_of(*slow, text)) << expression << ": " << text;
      const size_t bytes = fast->piece_bytes(text, 5);
      std::vector<std::string> in_pieces = pieces_of(*fast, text.substr(0, bytes));
      for (const std::string& word : pieces_of(*fast, text.substr(bytes))) in_pieces.push_back(word);
      ASSERT_EQ(in_pieces, words) << expression << ": " << text << ", cut at " << bytes;
    }
  }
}

TEST(FastWords, ABrokenCharacterIsASymbol) {
  const auto splitter = split_by_pattern(kGpt4Pattern, SplitBehavior::Isolated, false, "x");
  EXPECT_THAT(pieces_of(*splitter, "a\xFF\xC3 b"), ElementsAre("a", "\xFF\xC3", " b"));
}

TEST(Pattern, SplitsAroundBytesThatAreNotUtf8) {
  const auto splitter = split_by_pattern("[a-z]+", SplitBehavior::Isolated, false, "x");
  EXPECT_THAT(pieces_of(*splitter,
                        "ab\xFF"
                        "cd1e"),
              ElementsAre("ab", "\xFF", "cd", "1", "e"));
}

TEST(Pattern, RefusesWhatMeansSomethingElseInItsOwnLibrary) {
  const auto refused = [](const std::string& expression, const std::string& reason) {
    expect_error([&] { Pattern(expression, "t.json"); }, ExitCode::Usage,
                 "t.json: the regular expression \"" + expression + "\" is not accepted: " + reason);
  };
  refused(R"(\h+)", R"(\h is not supported)");
  refused("[a[b]]", "brackets within brackets are not supported");
  refused("[a&&b]", "&& is not supported");
  refused("a{1,2}+", "{n,m}+ is not supported");
  refused("(*ACCEPT)", "(* is not supported");
  refused(R"([\W])", R"(a negated set, such as \W, within brackets is not supported)");
  refused("(a", "missing closing parenthesis");
  refused("[[:punct:]]", R"(classes such as [:punct:] have other characters; use \p{P})");
  refused(R"(\v)", R"(\v is not supported)");
  refused("a{,2}", "{,n} is not supported; use {0,n}");
  refused("(?m).", "(?m) is not supported; (?i:...) is");
  refused("x(?i)a|b", "(?i) is not supported; (?i:...) is");
  for (const char* same : {"(?i:'s|'t)", "(?i)a|b", "a(?=b)", "a(?<!b)", "(?<name>a)", "a{0,2}"})
    EXPECT_NO_THROW(Pattern(same, "x"));
}

// What tokenizers 0.23 (Oniguruma) gives.
TEST(Pattern, MeansWhatItMeansInOniguruma) {
  const auto pieces = [](const char* expression, const std::string& text, SplitBehavior behavior = SplitBehavior::Isolated) {
    return pieces_of(*split_by_pattern(expression, behavior, false, "x"), text);
  };
  // Empty matches split, as SuperBPE groups digits.
  EXPECT_THAT(pieces(R"((?=(\d{3})+(?!\d)))", "1234567"), ElementsAre("1", "234", "567"));
  EXPECT_THAT(pieces("(?=[A-Z])", "helloWorldFoo"), ElementsAre("hello", "World", "Foo"));
  EXPECT_THAT(pieces("(?=[A-Z])", "helloWorld", SplitBehavior::Contiguous), ElementsAre("hello", "World"));
  EXPECT_THAT(pieces("x*", "bbxa"), ElementsAre("b", "b", "x", "a"));
  EXPECT_THAT(pieces("x*", "bbxa", SplitBehavior::MergedWithPrevious), ElementsAre("b", "bx", "a"));
  EXPECT_THAT(pieces(R"(\b)", "a\u0301 b"), ElementsAre("a\u0301", " ", "b"));
  // A script has no characters that it shares.
  EXPECT_THAT(pieces(R"([\p{Han}]+)", "\u4f60\u597d\u3001\u4e16", SplitBehavior::Removed), ElementsAre("\u3001"));
  EXPECT_THAT(pieces(R"([\w])", "a\u00b2", SplitBehavior::Removed), ElementsAre("\u00b2"));
  EXPECT_THAT(pieces(R"(\w)", "a\u00b2", SplitBehavior::Removed), testing::IsEmpty());
}

TEST(Split, EachBehavior) {
  const auto pieces = [](SplitBehavior behavior, bool invert) {
    return pieces_of(*split_by_pattern("-", behavior, invert, "x"), "a--b-");
  };
  EXPECT_THAT(pieces(SplitBehavior::Removed, false), ElementsAre("a", "b"));
  EXPECT_THAT(pieces(SplitBehavior::Isolated, false), ElementsAre("a", "-", "-", "b", "-"));
  EXPECT_THAT(pieces(SplitBehavior::MergedWithPrevious, false), ElementsAre("a-", "-", "b-"));
  EXPECT_THAT(pieces(SplitBehavior::MergedWithNext, false), ElementsAre("a", "-", "-b", "-"));
  EXPECT_THAT(pieces(SplitBehavior::Contiguous, false), ElementsAre("a", "--", "b", "-"));
  EXPECT_THAT(pieces(SplitBehavior::Removed, true), ElementsAre("-", "-", "-"));
}

TEST(Metaspace, PutsASpaceInFrontOfTheTextOrOfEachPart) {
  const auto pieces = [](PrependScheme prepend, bool first) {
    std::vector<std::string> list;
    metaspace("_", prepend, true)->split({"a  b", first}, [&](TextPiece piece) { list.emplace_back(piece.text); });
    return list;
  };
  EXPECT_THAT(pieces(PrependScheme::First, true), ElementsAre("_a", "_", "_b"));
  EXPECT_THAT(pieces(PrependScheme::First, false), ElementsAre("a", "_", "_b"));
  EXPECT_THAT(pieces(PrependScheme::Always, false), ElementsAre("_a", "_", "_b"));
  EXPECT_THAT(pieces(PrependScheme::Never, true), ElementsAre("a", "_", "_b"));
}

TEST(NormalForm, CombinesOnlyWithWhatStandsNextToIt) {
  EXPECT_EQ(normal_form("ae\u0301x", NormalForm::NFC), "a\u00e9x");
  EXPECT_EQ(normal_form("\u00e9", NormalForm::NFD), "e\u0301");
  EXPECT_EQ(normal_form("\uFB01 \u212B", NormalForm::NFC), "\uFB01 \u00C5");
  EXPECT_EQ(normal_form("\uFB01", NormalForm::NFKC), "fi");
  EXPECT_EQ(normal_form("\u1100\u1161\u11A8", NormalForm::NFC), "\uAC01");
  EXPECT_EQ(normal_form("\uAC01", NormalForm::NFD), "\u1100\u1161\u11A8");
  EXPECT_EQ(normal_form("e\xFF\u0301", NormalForm::NFC), "e\xFF\u0301");
}

// For the library tokenizers, whose normal forms are those of Unicode 9, U+0898 of Unicode 14 is no mark.
TEST(NormalForm, DoesNotMoveMarksThatAreNewerThanUnicode9) {
  for (const NormalForm form : {NormalForm::NFC, NormalForm::NFD, NormalForm::NFKC, NormalForm::NFKD})
    EXPECT_EQ(normal_form("\u0898\u0334", form), "\u0898\u0334");
  EXPECT_EQ(normal_form("\u08F1\u0334", NormalForm::NFC), "\u0334\u08F1");  // of Unicode 7
}

TEST(IsNumber, KnowsTheNumbersOfUnicode17) {
  for (const char32_t c : {U'7', U'\u0663', U'\U00011DE0', U'\U00011DE9', U'\U00016FF4', U'\U00016FF6'})
    EXPECT_TRUE(is_number(c));
  for (const char32_t c : {U'a', U'\U00011DDF', U'\U00011DEA', U'\U00016FF3', U'\U00016FF7'}) EXPECT_FALSE(is_number(c));
}

// Both loops do the same: words of up to 64 symbols are merged by one, longer ones by the other.
TEST(MergeTable, LongAndShortWordsAreMergedAlike) {
  MergeTable merges(0);
  merges.add(1, 2, 0, 4);
  merges.add(3, 4, 2, 5);
  merges.add(4, 3, 1, 6);
  merges.add(5, 6, 3, 7);
  merges.add(1, 1, 4, 8);
  uint32_t state = 7;
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> word, both;
    for (int i = 0; i < 30; ++i) word.push_back(static_cast<int32_t>((state = state * 1664525 + 1013904223) >> 20) % 3 + 1);
    // 99 is in no merge, so that the parts around it are merged by themselves.
    for (int i = 0; i < 3; ++i) both.insert(both.end(), word.begin(), word.end()), both.push_back(99);
    merges.apply(word);
    merges.apply(both);
    std::vector<int32_t> expected;
    for (int i = 0; i < 3; ++i) expected.insert(expected.end(), word.begin(), word.end()), expected.push_back(99);
    ASSERT_EQ(both, expected);
  }
}

TEST(WordCache, ForgetsWhenItIsFullAndKeepsNoLongWords) {
  WordCache cache;
  for (int32_t i = 0; i < 300'000; ++i) {
    const std::string word = std::to_string(i);
    cache.add(word, std::vector<int32_t>{i, i + 1});
    const WordCache::Found found = cache.find(word);
    ASSERT_TRUE(found.known);
    ASSERT_THAT(found.ids, ElementsAre(i, i + 1));
  }
  EXPECT_FALSE(cache.find("5").known);
  cache.add(std::string(129, 'x'), std::vector<int32_t>{1});
  EXPECT_FALSE(cache.find(std::string(129, 'x')).known);
}

TEST(LoadTokenizer, TakesAFolder) {
  const TemporaryFolder folder;
  expect_error([&] { load_tokenizer(folder.path()); }, ExitCode::Usage,
               folder.path() + ": holds no tokenizer; it may be one of these files: tokenizer.json, tokenizer.model");
  std::filesystem::copy(kFolder + "llama2.model", folder.path() + "/tokenizer.model");
  EXPECT_EQ(load_tokenizer(folder.path())->name(), "sentencepiece");
  std::filesystem::copy(kFolder + "qwen2.json", folder.path() + "/tokenizer.json");
  EXPECT_EQ(load_tokenizer(folder.path())->name(), "bpe");
}

TEST(TokenizerFile, IsTheOneThatOtherProgramsRead) {
  for (const char* name : {"qwen2.json", "llama2.model"}) {
    const auto file = tokenizer_file_of(load_tokenizer(kFolder + name)->to_text());
    ASSERT_TRUE(file);
    EXPECT_EQ(file->content, file_content(kFolder + name));
    EXPECT_EQ(file->name, std::string(name) == "qwen2.json" ? "tokenizer.json" : "tokenizer.model");
  }
  EXPECT_FALSE(tokenizer_file_of(bytes_tokenizer()->to_text()));
}

TEST(TextStream, GivesOutTheTextOfAllTokensTogether) {
  for (const std::string& file : golden_files()) {
    const auto tokenizer = load_tokenizer(kFolder + file);
    for (const Json& line : golden_lines(std::filesystem::path(file).stem())) {
      const TokenList ids = line.at("ids");
      if (ids.size() > 60) continue;
      TextStream stream(*tokenizer, {});
      std::string text;
      for (int32_t id : ids) text += stream.next(id);
      text += stream.rest();
      if (line.at("decoded").get<std::string>().starts_with(" ")) continue;
      EXPECT_EQ(shown(text), line.at("decoded")) << file;
    }
  }
}

class RefusedTokenizer : public testing::Test {
 protected:
  Json json = Json::parse(file_content(kFolder + "qwen2.json"));
  void expect(const std::string& message) {
    expect_error([&] { tokenizer_from_text(json.dump(), "t.json"); }, ExitCode::Usage, "t.json: " + message);
  }
};

TEST_F(RefusedTokenizer, NamesTheComponent) {
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Reverse"}}}}};
  expect(
      "normalizer.normalizers[1]: \"Reverse\" is not supported; use BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, "
      "Precompiled, Prepend, Replace, Sequence, Strip or StripAccents");
  json["normalizer"] = nullptr;
  json["pre_tokenizer"]["pretokenizers"][1] = {{"type", "UnicodeScripts"}};
  expect(
      "pre_tokenizer.pretokenizers[1]: \"UnicodeScripts\" is not supported; use BertPreTokenizer, ByteLevel, Digits, "
      "Metaspace, "
      "Punctuation, Sequence, Split, Whitespace or WhitespaceSplit");
  json["pre_tokenizer"] = {{"type", "ByteLevel"}};
  json["decoder"] = {{"type", "CTC"}};
  expect(
      "decoder: \"CTC\" is not supported; use BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip "
      "or "
      "WordPiece");
  json["decoder"] = nullptr;
  json["post_processor"] = {{"type", "Mystery"}};
  expect(
      "post_processor: \"Mystery\" is not supported; use BertProcessing, ByteLevel, RobertaProcessing, Sequence or "
      "TemplateProcessing");
  json["post_processor"] = nullptr;
  json["model"]["type"] = "WordLevel";
  json["pre_tokenizer"] = nullptr;
  expect("model: \"WordLevel\" is not supported; use BPE, Unigram or WordPiece");
}

TEST_F(RefusedTokenizer, NamesTheValue) {
  json["model"]["dropout"] = 0.1;
  expect("model.dropout: 0.1 is not accepted; use null or 0");
  json["model"]["dropout"] = nullptr;
  json["model"]["continuing_subword_prefix"] = "##";
  expect("model.continuing_subword_prefix: \"##\" is not accepted; use null or \"\"");
  json["model"]["continuing_subword_prefix"] = nullptr;
  json["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Dropped";
  expect(
      "pre_tokenizer.pretokenizers[0].behavior: \"Dropped\" is not accepted; use Removed, Isolated, MergedWithPrevious, "
      "MergedWithNext or Contiguous");
  json["pre_tokenizer"] = 3;
  expect("pre_tokenizer: 3 is not accepted; use an object");
}

// Each of these once made gigabytes, or took minutes, of a few bytes.
TEST_F(RefusedTokenizer, WritesMoreAroundATextThanIsAccepted) {
  const Json piece = {{"SpecialToken", {{"id", "s"}, {"type_id", 0}}}};
  Json& post = json["post_processor"];
  post = {{"type", "TemplateProcessing"},
          {"single", Json::array({piece, piece})},
          {"special_tokens", {{"s", {{"id", "s"}, {"ids", std::vector<int>(513, 1)}}}}}};
  expect("post_processor: puts more than 1024 tokens around a text");
  post["special_tokens"]["s"]["ids"] = {1};
  post["single"] = std::vector<Json>(1025, piece);
  expect("post_processor: puts more than 1024 tokens around a text");
  post = nullptr;
  for (const char* text : {"12345", "ab", "\u2581_", ""}) {
    const std::string refused = fmt::format(": \"{}\" is not accepted; use a character", text);
    json["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", text}};
    json["decoder"] = nullptr;
    expect("pre_tokenizer.replacement" + refused);
    json["pre_tokenizer"] = nullptr;
    json["decoder"] = {{"type", "Metaspace"}, {"replacement", text}};
    expect("decoder.replacement" + refused);
    json["decoder"] = {{"type", "Strip"}, {"content", text}};
    expect("decoder.content" + refused);
  }
}

TEST_F(RefusedTokenizer, HasTokensThatAreLongerThanIsSearchedFor) {
  const std::string most(512, 'a'), more = most + "a";
  const Json vocabulary = json["model"]["vocab"];
  const auto id = static_cast<int64_t>(vocabulary.size());
  json["added_tokens"] = {{{"id", id}, {"content", most}}};
  EXPECT_NO_THROW(tokenizer_from_text(json.dump(), "t.json"));
  json["added_tokens"] = {{{"id", id}, {"content", more}}};
  expect("tokenizer.added_tokens[0].content: \"" + std::string(59, 'a') +
         "... is not accepted; use a text of at most 512 bytes, also after the normalizer");
  json["added_tokens"] = nullptr;
  json["model"] = {
      {"type", "Unigram"}, {"unk_id", 0}, {"vocab", Json::array({Json::array({"u", -1.0}), Json::array({more, -2.0})})}};
  json["pre_tokenizer"] = json["decoder"] = json["post_processor"] = nullptr;
  expect("token 1 has 513 bytes; at most 512 are accepted");
}

TEST_F(RefusedTokenizer, HasMoreStepsThanAreAccepted) {
  const Json step = {{"type", "Lowercase"}}, inner = {{"type", "Sequence"}, {"normalizers", std::vector<Json>(48, step)}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {inner, inner}}};
  EXPECT_NO_THROW(tokenizer_from_text(json.dump(), "t.json"));
  json["normalizer"]["normalizers"].push_back(inner);
  expect("normalizer: has 148 steps, each of which reads the whole text; at most 100 are accepted");
}

TEST_F(RefusedTokenizer, RewritesTextIntoMoreThanIsAccepted) {
  const Json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const Json by_regex = {{"type", "Replace"}, {"pattern", {{"Regex", "."}}}, {"content", std::string(5000, 'b')}};
  const Json prefix = {{"type", "Prepend"}, {"prepend", std::string(3000, 'p')}};
  const std::string message =
      "t.json: its rules make more than 4160 bytes of a text of 2, the most that is accepted (32 for each "
      "byte, and 4096); is the tokenizer damaged?";
  for (const std::vector<Json>& steps : {std::vector<Json>(40, twice), {by_regex}, {prefix, prefix}}) {
    json["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
    const auto tokenizer = tokenizer_from_text(json.dump(), "t.json");
    expect_error([&] { tokenizer->encode("aa"); }, ExitCode::Usage, message);
  }
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<Json>(5, twice)}};
  EXPECT_EQ(tokenizer_from_text(json.dump(), "t.json")->decode(tokenizer_from_text(json.dump(), "t.json")->encode("aa")),
            std::string(64, 'a'));
  json["normalizer"] = nullptr;
  json["decoder"] = {{"type", "Sequence"}, {"decoders", std::vector<Json>(40, twice)}};
  const auto tokenizer = tokenizer_from_text(json.dump(), "t.json");
  const auto ids = tokenizer->encode("aa");
  expect_error([&] { tokenizer->decode(ids); }, ExitCode::Usage, message);
}

// The canonical ordering sorts marks by their class and keeps the order of those of one class. Two marks of classes 220 and 230
// that alternate are the slowest case of a sort by neighbours.
TEST(NormalForms, OrderAnyNumberOfMarks) {
  const std::string below = "\u0316", above = "\u0301", other_above = "\u0308";
  for (const int pairs : {1, 2, 3, 100, 50'000}) {
    std::string text = "x", sorted = "x", belows, aboves;
    for (int i = 0; i < pairs; ++i) {
      const std::string& mark = i % 3 == 0 ? other_above : above;
      text += mark + below;
      belows += below;
      aboves += mark;
    }
    for (const NormalForm form : {NormalForm::NFC, NormalForm::NFD, NormalForm::NFKC, NormalForm::NFKD}) {
      std::string expected = sorted + belows + aboves;
      if (form == NormalForm::NFC || form == NormalForm::NFKC)
        expected = "\u1E8D" + belows + aboves.substr(other_above.size());  // x and the first mark above it
      EXPECT_TRUE(normal_form(text, form) == expected) << pairs;
    }
  }
}

TEST(RefusedText, IsNotUtf8WhereTokensAreCharacters) {
  expect_error(
      [] { load_tokenizer(kFolder + "t5_converted.json")->encode("ab\xFF"); }, ExitCode::Usage,
      "the text is not UTF-8 at byte 2 (0xff), and this tokenizer has tokens for characters; use a text in UTF-8, or a "
      "tokenizer that works on bytes");
  EXPECT_EQ(load_tokenizer(kFolder + "qwen2.json")->decode(load_tokenizer(kFolder + "qwen2.json")->encode("ab\xFF")), "ab\xFF");
  // sentencepiece reads such a byte as U+FFFD.
  const auto pieces = load_tokenizer(kFolder + "llama2.model");
  EXPECT_EQ(pieces->encode("ab\xFF"), pieces->encode("ab\uFFFD"));
}

TEST(RefusedSentencePiece, IsDamaged) {
  const std::string bytes = file_content(kFolder + "t5.model");
  const auto refused = [&](const std::string& text) {
    const TemporaryFolder folder;
    std::ofstream(folder.path() + "/x.model", std::ios::binary) << text;
    try {
      load_tokenizer(folder.path() + "/x.model");
      return std::string("accepted");
    } catch (const DataError& error) {
      return std::string(error.what()).substr(folder.path().size() + 1);
    }
  };
  EXPECT_THAT(refused(bytes.substr(0, bytes.size() - 1)),
              testing::StartsWith("x.model: is not a model of sentencepiece, or is damaged ("));
  EXPECT_THAT(refused("\n\x02\n" + std::string(1, '\0')), testing::StartsWith("x.model: "));
  EXPECT_THAT(refused(std::string("\n\x0A\n\x01x\x15\0\0\0\0\x18\x01", 12)),
              testing::HasSubstr("is a model of sentencepiece without an unknown piece"));
}

TEST(Tiktoken, TheNameSaysHowTextIsSplit) {
  std::string ranks;
  for (int byte = 0; byte < 256; ++byte)
    ranks += to_base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(byte) + "\n";
  ranks += to_base64("12") + " 256\n" + to_base64("123") + " 257\n" + to_base64("1234") + " 258\n";
  EXPECT_THAT(bpe_from_tiktoken(ranks, "r50k_base.tiktoken")->encode("1234"), ElementsAre(258));
  EXPECT_THAT(bpe_from_tiktoken(ranks, "cl100k_base.tiktoken")->encode("1234"), ElementsAre(257, '4'));
  EXPECT_THAT(bpe_from_tiktoken(ranks, "dir/qwen.tiktoken")->encode("12"), ElementsAre('1', '2'));
  const auto gpt4 = bpe_from_tiktoken(ranks, "cl100k_base.tiktoken");
  EXPECT_EQ(gpt4->special_id("<|endoftext|>"), 260);
  EXPECT_EQ(gpt4->special_id("<|endofprompt|>"), 279);
  const auto stored = tokenizer_from_text(gpt4->to_text(), "stored");
  EXPECT_EQ(stored->vocabulary_size(), 280);
  EXPECT_THAT(stored->encode_with_special("1234<|endoftext|>"), ElementsAre(257, '4', 260));
  EXPECT_THAT(gpt4->encode_with_special("1234<|endoftext|>"), ElementsAre(257, '4', 260));
  const TemporaryFolder folder;
  const auto of_library = load_tokenizer(folder.write("tokenizer.json", gpt4->to_text()));  // an exported one, with its gap
  EXPECT_EQ(of_library->special_id("<|endofprompt|>"), 279);
  expect_error(
      [&] { bpe_from_tiktoken(ranks, "mine.tiktoken"); }, ExitCode::Usage,
      "mine.tiktoken: a .tiktoken file does not say how text is split into words, and the name \"mine.tiktoken\" is none of "
      "those for which it is known: gpt2, r50k_base, multilingual, cl100k_base, o200k_base, qwen.tiktoken; rename the file, or "
      "use the tokenizer.json of the same model");
}

// The bytes from "!" on, all pairs, and as many tokens of three bytes as the file needs.
TEST(Tiktoken, AFileOfLlama3IsKnownByItsNameAndItsRanks) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/tokenizer.model";
  const auto byte = [](int value) { return std::string(1, static_cast<char>((value + '!') % 256)); };
  std::string text;
  for (int rank = 0; rank < 128'000; ++rank) {
    const int pair = rank - 256, three = pair - 65'536;
    const std::string token = pair < 0    ? byte(rank)
                              : three < 0 ? byte(pair / 256) + byte(pair % 256)
                                          : "1" + byte(three / 256) + byte(three % 256);
    text += to_base64(token) + " " + std::to_string(rank) + "\n";
  }
  std::ofstream(path, std::ios::binary) << text;
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->vocabulary_size(), 128'256);
  EXPECT_EQ(tokenizer->special_id("<|begin_of_text|>"), 128'000);
  EXPECT_EQ(tokenizer->special_id("<|reserved_special_token_2|>"), 128'012);
  EXPECT_EQ(tokenizer->special_id("<|reserved_special_token_245|>"), 128'255);
  EXPECT_EQ(tokenizer->special_id("<|end_of_text|>"), 128'001);
  EXPECT_EQ(tokenizer->special_id("<|eot_id|>"), 128'009);
  EXPECT_EQ(end_of_text_of(*tokenizer), "<|end_of_text|>");
  EXPECT_THAT(tokenizer->encode_with_special("12<|eot_id|>"), ElementsAre(256 + 256 * ('1' - '!') + '2' - '!', 128'009));
  EXPECT_EQ(tokenizer->encode(" 1x").size(), 3u) << "a space, digits and letters are words";
  std::ofstream(path, std::ios::binary) << text << to_base64("2345") << " 128000\n";
  expect_error([&] { load_tokenizer(path); }, ExitCode::Usage,
               path +
                   ": holds 128001 ranks of tiktoken, but Llama 3's, which has this name, holds 128000; use the "
                   "tokenizer.json of the same model");
}

}  // namespace
}  // namespace trivet::data
