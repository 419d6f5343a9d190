#include "data/word_split.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/unicode_tables.h"

namespace trivet::data {
namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> list;
  for_each_word(text, [&](std::string_view word) { list.emplace_back(word); });
  return list;
}

using Words = std::vector<std::string>;

TEST(WordSplit, ASpaceBelongsToTheWordThatFollows) {
  EXPECT_EQ(words("Hello world, 42!"), (Words{"Hello", " world", ",", " 42", "!"}));
  EXPECT_EQ(words("a1b22"), (Words{"a", "1", "b", "22"}));
  EXPECT_EQ(words(""), Words{});
}

TEST(WordSplit, ContractionsAreWordsAndCaseMatters) {
  EXPECT_EQ(words("it's we'll I'm he'd they've you're don't"),
            (Words{"it", "'s", " we", "'ll", " I", "'m", " he", "'d", " they", "'ve", " you", "'re", " don", "'t"}));
  EXPECT_EQ(words("IT'S"), (Words{"IT", "'", "S"}));
  EXPECT_EQ(words("?'s"), (Words{"?'", "s"}));
}

TEST(WordSplit, TheLastOfSeveralSpacesBelongsToWhatFollows) {
  EXPECT_EQ(words("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(words("a\n\nb"), (Words{"a", "\n", "\n", "b"}));
  EXPECT_EQ(words("a\n b"), (Words{"a", "\n", " b"}));
  EXPECT_EQ(words("a \n"), (Words{"a", " \n"}));
  EXPECT_EQ(words(" "), (Words{" "}));
  EXPECT_EQ(words("a\xC2\xA0\xC2\xA0"
                  "b"),
            (Words{"a", "\xC2\xA0", "\xC2\xA0", "b"}));
}

TEST(WordSplit, UnicodeLettersAndNumbersAreLettersAndNumbers) {
  EXPECT_EQ(words("\u00e9t\u00e9 \u0663\u0664 \u4e16\u754c\uff01"),
            (Words{"\u00e9t\u00e9", " \u0663\u0664", " \u4e16\u754c", "\uff01"}));
  EXPECT_EQ(class_of(0x180E), CharacterClass::Symbol);  // no white space since Unicode 6.3
  EXPECT_EQ(class_of(0x3000), CharacterClass::Space);
  EXPECT_EQ(class_of(0x2167), CharacterClass::Number);   // VIII
  EXPECT_EQ(class_of(0x1F30D), CharacterClass::Symbol);  // a globe
  EXPECT_EQ(class_of(0x2FFFF), CharacterClass::Symbol);
}

TEST(WordSplit, TablesAreThoseOfUnicode16) {
  EXPECT_EQ(letter_ranges().size(), 677u);
  EXPECT_EQ(number_ranges().size(), 144u);
}

TEST(WordSplit, BytesThatAreNotUtf8AreSymbols) {
  EXPECT_EQ(words("a\xFF\xFE"
                  "b"),
            (Words{"a", "\xFF\xFE", "b"}));
  EXPECT_EQ(words("a \xE4\xB8"), (Words{"a", " \xE4\xB8"}));
}

TEST(WordSplit, PiecesOfATextHaveItsWords) {
  const std::string text = "One  two\n\n three's 4444 \t five,six \u00e9\u00e9 \n";
  for (size_t limit = 1; limit < text.size() + 2; ++limit) {
    Words list;
    for (std::string_view rest = text; !rest.empty();) {
      const size_t bytes = piece_bytes(rest, limit);
      for (const auto& word : words(rest.substr(0, bytes))) list.push_back(word);
      rest.remove_prefix(bytes);
    }
    EXPECT_EQ(list, words(text)) << "limit " << limit;
  }
}

}  // namespace
}  // namespace trivet::data
