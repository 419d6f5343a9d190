// What is wrong with JSON, in words.
#include "core/json_error.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace trivet {
namespace {

std::string words(const std::string& text) {
  try {
    return nlohmann::json::parse(text).at("version").get<std::string>();
  } catch (const nlohmann::json::exception& error) {
    return json_error_in_words(text, error);
  }
}

TEST(JsonErrors, AreSentencesWithAPlace) {
  const std::string number = "is no number of JSON; write null, or leave the key out",
                    comment = "begins a comment, which JSON does not have; remove it";
  const std::pair<std::string, std::string> cases[]{
      {R"({"score":NaN})", "column 10 has NaN, which " + number},
      {R"({"score": -Infinity})", "column 11 has -Infinity, which " + number},
      {"{\n \"score\": nan}", "line 2, column 11 has nan, which " + number},
      {R"({"a": inf})", "column 7 has inf, which " + number},
      {R"({"a": None})", "column 7 has None, which is Python's; JSON has null"},
      {R"({"a": True})", "column 7 has True, which is Python's; JSON has true"},
      {"{'a': 1}", "column 2 has ', which begins no string of JSON; use double quotes"},
      {"{\"a\": 1, // two\n\"b\": 2}", "line 1, column 10 has //, which " + comment},
      {"{\"a\": \"\\ud83d\"}",
       "column 14 has half of a character: \\ud800 to \\udbff and \\udc00 to \\udfff stand only in pairs"},
      {"{\"a\": \"x\ny\"}",
       "line 1, column 9 has a line break or another control character in a string; write it as an escape, such as \\n or \\t"},
      {R"({"a": "C:\dir"})", "column 11 has a backslash that begins no escape of JSON; write it as \\\\"},
      {"{\"a\": \"\xff\"}", "column 8 has a string that is not UTF-8; convert the file to UTF-8"},
      {R"({"a": "b)", "it ends at column 9 in the middle of a value; it may be truncated"},
      {R"({"a": [1, )", "it ends at column 11 in the middle of a value; it may be truncated"},
      {"", "it ends at column 1 in the middle of a value; it may be truncated"},
      {R"({"a": 1},)", "column 9 has \",\" after the end of the value"},
      {R"({"a": 1,})", "column 9 has \"}\" where something else was expected"},
      {"a text", "column 1 has \"a text\" where something else was expected"},
      {R"({"a": 1e999})", "the number 1e999 is too large; 1.8e308 is the largest"},
      {R"({"a": 1})", "the key \"version\" is missing"},
      {R"({"version": 1})", "the type of a value must be string, but is number"}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(words(text), expected) << text;
}

}  // namespace
}  // namespace trivet
