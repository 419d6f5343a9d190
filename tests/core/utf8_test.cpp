#include "core/utf8.h"

#include <gtest/gtest.h>

namespace trivet {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 37) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    const CodePoint point = decode_utf8(text, 0);
    ASSERT_EQ(point.value, c);
    ASSERT_EQ(static_cast<size_t>(point.bytes), text.size());
  }
}

TEST(Utf8, RefusesWhatIsNotUtf8) {
  for (const std::string_view text :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xED\xA0\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE4\xB8", "\xE4\xB8x", "\xFF"})
    EXPECT_EQ(decode_utf8(text, 0).bytes, 0) << text;
}

TEST(Utf8, AWholeTextIsUtf8WhenEachOfItsCharactersIs) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("a\u00e9\U0001F30D"));
  EXPECT_FALSE(is_utf8("a\xff"));
  EXPECT_FALSE(is_utf8("ab\xC3"));
}

TEST(Utf8, DescribesACharacterForMessages) {
  EXPECT_EQ(describe_code_point('q'), "\"q\" (U+0071)");
  EXPECT_EQ(describe_code_point(0x1F30D), "\"\U0001F30D\" (U+1F30D)");
  EXPECT_EQ(describe_code_point('\n'), "U+000A");
}

}  // namespace
}  // namespace trivet
