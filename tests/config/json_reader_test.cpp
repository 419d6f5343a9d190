#include "engine/config/json_reader.h"

#include <limits>

#include "tests/config/support.h"

namespace trivet::config {
namespace {

TEST(JsonReader, RemembersWhereKeysAndValuesStand) {
  const JsonNode root = read_json("{\n  // a comment\n  \"a\": {\"b\":\n 5}}", "x");
  EXPECT_EQ(root.members[0].at.line, 3);
  EXPECT_EQ(root.members[0].at.column, 3);
  const JsonMember& b = root.members[0].value.members[0];
  EXPECT_EQ(b.at.column, 9);
  EXPECT_EQ(b.value.at.line, 4);
  EXPECT_EQ(b.value.at.column, 2);
}

TEST(JsonReader, ColumnsCountCharactersNotBytes) {
  EXPECT_EQ(read_json("{\"gr\u00fc\u00df\u20ac\": 1}", "x").members[0].value.at.column, 11);
}

TEST(JsonReader, TellsIntegersFromFractions) {
  const auto number = [](const char* text) { return read_json(text, "x"); };
  EXPECT_EQ(number("9223372036854775807").integer, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(number("-9223372036854775808").integer, std::numeric_limits<int64_t>::min());
  EXPECT_FALSE(number("9223372036854775808").is_integer);
  EXPECT_EQ(number("5e8").integer, 500'000'000);
  EXPECT_TRUE(number("1.0").is_integer);
  EXPECT_FALSE(number("1.5").is_integer);
  EXPECT_FALSE(number("1e300").is_integer);
  EXPECT_EQ(number("1e-400").number, 0);
  EXPECT_EQ(number("-0").integer, 0);
}

TEST(JsonReader, DecodesEscapes) {
  EXPECT_EQ(read_json(R"("\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00")", "x").text,
            "\"\\/\b\f\n\r\tA\u00e9\u20ac\U0001F600");
}

TEST(JsonReader, AcceptsACommaAfterTheLastValue) {
  EXPECT_EQ(to_json(read_json("{\"a\": [1, 2 , // the last\n ], \"b\": {\"c\": [[],],},\n}", "x")),
            R"({"a": [1, 2], "b": {"c": [[]]}})");
}

TEST(JsonReader, SkipsAByteOrderMark) { EXPECT_EQ(read_json("\xEF\xBB\xBF{}", "x").kind, JsonKind::Object); }

TEST(JsonReader, SixtyFourLevelsAreAllowed) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(read_json(nested(64), "x"));
  EXPECT_NO_THROW(read_json(nested(65), "x"));
  EXPECT_THROW(read_json(nested(66), "x"), ConfigError);
  EXPECT_THROW(read_json(std::string(1'000'000, '['), "x"), ConfigError);
}

TEST(JsonReader, WritesWhatItRead) {
  const std::string text = R"({"a": [1, 2.50, -3e4, "x\"y", null, true], "b": {}})";
  EXPECT_EQ(to_json(read_json(text, "x")), text);
}

TEST(JsonReader, ValuesAreTheSameHoweverTheyAreWritten) {
  const auto same = [](const char* a, const char* b) { return same_value(read_json(a, "a"), read_json(b, "b")); };
  EXPECT_TRUE(same("5e8", "500000000"));
  EXPECT_TRUE(same(R"({"a": 1, "b": [2]})", R"({"b": [2.0], "a": 1.0})"));
  EXPECT_FALSE(same("1", "\"1\""));
  EXPECT_FALSE(same("9223372036854775807", "9223372036854775806"));
  EXPECT_FALSE(same(R"({"a": 1})", "{}"));
}

std::string refusal_of(const std::string& text) {
  try {
    read_json(text, "gpt.json");
    return "accepted";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

// Reports and checkpoints repeat what a config says as JSON, which cannot contain such text.
TEST(JsonReader, TextThatIsNotUtf8IsRefusedWithItsKey) {
  EXPECT_EQ(refusal_of("{\"data\": {\n  \"train\": \"/tmp/\xff.txt\"}}"),
            "gpt.json:2:12: data.train: \"/tmp/\\xff.txt\" is not UTF-8; write it in UTF-8 "
            "(if it names a file, rename the file)");
  EXPECT_EQ(refusal_of("{\"a\": {}, \"b\": [1, \"\xC3\"]}"),
            "gpt.json:1:20: b: \"\\xc3\" is not UTF-8; write it in UTF-8 (if it names a file, rename the file)");
  EXPECT_EQ(refusal_of("{\"a\": {\"\xff\": 1}}"),
            "gpt.json:1:8: a: \"\\xff\" is not UTF-8; write it in UTF-8 (if it names a file, rename the file)");
  EXPECT_EQ(refusal_of("{\"a\": 1 // \xff\n}"), "accepted");
}

// The system would read the file "a" instead.
TEST(JsonReader, TextWithAZeroByteIsRefused) {
  EXPECT_EQ(refusal_of(R"({"a": "a\u0000b"})"),
            "gpt.json:1:7: a: \"a\\x00b\" contains U+0000, which is not accepted in a config");
}

TEST(JsonReader, MessagesShowNeitherLongTextsNorControlCharacters) {
  const std::string key(10'000, 'k');
  EXPECT_EQ(refusal_of("{\"" + key + "\": 1, \"" + key + "\": 2}"),
            "gpt.json:1:10009: \"" + key.substr(0, 200) + "...\": key given twice; keep one");
  EXPECT_EQ(refusal_of("{\"a\": \x1b[31m}"), "gpt.json:1:7: a value is expected, found \"\\x1b\"");
  EXPECT_EQ(refusal_of("{\"a\": 1 \xC3\xA9}"), "gpt.json:1:9: \",\" or \"}\" is expected, found \"\xC3\xA9\"");
  EXPECT_EQ(refusal_of(std::string(1000, '1') + "x"), refusal_of(std::string(60, '1') + "x"));
}

}  // namespace
}  // namespace trivet::config
