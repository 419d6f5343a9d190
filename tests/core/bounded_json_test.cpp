#include "core/bounded_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace trivet {
namespace {

TEST(BoundedJson, CountsOpenListsAndObjects) {
  struct Case {
    std::string text;
    int levels;
    bool accepted;
  };
  const Case cases[] = {{"1", 0, true},
                        {"[]", 0, false},
                        {"[{},{}]", 2, true},
                        {R"([{},{"a":[]}])", 2, false},
                        {R"(["[[[[", "\"[[[", "\\"])", 1, true},
                        {R"(["\\",[]])", 1, false},
                        {std::string(1'000'000, '['), 16, false}};
  for (const Case& one : cases)
    EXPECT_EQ(json_excess(one.text, {.levels = one.levels}),
              one.accepted ? "" : "is nested deeper than " + std::to_string(one.levels) + " levels")
        << one.text.substr(0, 20);
}

// Whatever the values are, so that a text cannot take much more memory than its limit foresees.
TEST(BoundedJson, CountsValuesOfEveryKind) {
  for (const std::string value : {"0", "[]", "{}", "\"\"", "null"}) {
    std::string list = "[";
    for (int i = 0; i < 1000; ++i) list += value + ",";
    list += value + "]";
    EXPECT_EQ(json_excess(list, {.values = 1000}), "has more than 1000 values of JSON") << value;
    EXPECT_EQ(json_excess(list, {.values = 2003}), "") << value;
  }
  EXPECT_EQ(json_excess("\"" + std::string(100'000, ',') + "\"", {.values = 1}), "");
}

TEST(BoundedJson, IsParsedWithinItsLimits) {
  EXPECT_EQ(parse_bounded<nlohmann::json>("[1, 2]").size(), 2U);
  EXPECT_THROW(parse_bounded<nlohmann::json>("[1, 2]", {.values = 2}), JsonExcess);
  EXPECT_THROW(parse_bounded<nlohmann::json>("[1, 2"), nlohmann::json::parse_error);
}

}  // namespace
}  // namespace trivet
