#include "core/printable.h"

#include <gtest/gtest.h>

#include "core/utf8.h"

namespace trivet {
namespace {

TEST(Printable, LeavesOrdinaryTextAsItIs) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("zero_optimization.stage \"3\" \\ ~"), "zero_optimization.stage \"3\" \\ ~");
  EXPECT_EQ(printable("Größe 日本 \U0001F30D"), "Größe 日本 \U0001F30D");
}

TEST(Printable, EscapesWhatATerminalWouldActOn) {
  EXPECT_EQ(printable("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\x0dd");
  EXPECT_EQ(printable(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(printable("\xC2\x80\xC2\x9B\xC2\x9F\xC2\xA0"),
            "\\u0080\\u009b\\u009f\xC2\xA0");  // C1 controls: U+009B starts a command, too
  EXPECT_EQ(printable("\u061b\u061c\u061d"), "\u061b\\u061c\u061d");
  EXPECT_EQ(printable("\u200e\u2028\u202e\u2066\u2069\u206a"), "\\u200e\\u2028\\u202e\\u2066\\u2069\u206a");
}

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("\xff\x61\xC3"), "\\xffa\\xc3");
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");
}

TEST(Printable, CutsAfterANumberOfCharactersNotBytes) {
  const std::string all(200, 'x');
  EXPECT_EQ(printable(all), all);
  EXPECT_EQ(printable(all + "y"), all + "...");
  EXPECT_EQ(printable("日本語", 2), "日本...");
  EXPECT_EQ(printable("\n\n\n", 2), "\\n\\n...");  // an escape counts once
  EXPECT_EQ(printable("日本語", 3), "日本語");
}

TEST(Printable, EveryByteStringBecomesVisibleUtf8) {
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      const std::string text{static_cast<char>(first), static_cast<char>(second)};
      for (const std::string& shown : {printable(text), printable_lines("x" + text)}) {
        EXPECT_TRUE(is_utf8(shown)) << first << ' ' << second;
        EXPECT_EQ(shown.find('\x1b'), std::string::npos) << first << ' ' << second;
      }
    }
}

TEST(PrintableLines, KeepsLinesAndLength) {
  const std::string line(5000, 'x');
  EXPECT_EQ(printable_lines(line + "\na\x1b\tb\n"), line + "\na\\x1b\\tb\n");
}

}  // namespace
}  // namespace trivet
