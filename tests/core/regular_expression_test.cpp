#include "core/regular_expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace trivet {
namespace {

// "yes", "no", or what is wrong.
std::string found(const std::string& expression, const std::string& name) {
  try {
    return RegularExpression(expression).is_found_in(name) ? "yes" : "no";
  } catch (const std::invalid_argument& wrong) {
    return wrong.what();
  }
}

TEST(RegularExpression, IsAllOfANamePartOfItOrItsEnd) {
  const RegularExpression projection("[qv]_proj");
  EXPECT_TRUE(projection.is_found_in("a.q_proj.b"));
  EXPECT_FALSE(projection.is_found_in("a.Q_proj.b"));
  EXPECT_TRUE(RegularExpression("[qv]_proj", RegularExpression::Case::Ignored).is_found_in("a.Q_proj.b"));
  EXPECT_TRUE(projection.is_all_of("v_proj"));
  EXPECT_FALSE(projection.is_all_of("a.v_proj"));
  EXPECT_TRUE(projection.is_end_of("a.b.v_proj"));
  EXPECT_FALSE(projection.is_end_of("a.bv_proj"));
  EXPECT_FALSE(projection.is_end_of("v_proj.a"));
  EXPECT_TRUE(RegularExpression(R"(b\.v_(proj|out))").is_end_of("a.b.v_out"));
  EXPECT_TRUE(RegularExpression(".*").is_end_of("a.b"));
}

// Whatever is written costs neither the stack nor much time.
TEST(RegularExpression, HasLimits) {
  const std::string name = "model.layers.12.self_attn.q_proj";
  EXPECT_EQ(found(std::string(100, '(') + "q" + std::string(100, ')'), name), "yes");
  EXPECT_EQ(found(std::string(1000, 'x'), name), "no");
  for (const auto& [expression, wrong] : std::initializer_list<std::pair<std::string, std::string>>{
           {"", "it has 0 bytes; 1 to 1000 are accepted"},
           {std::string(1001, 'x'), "it has 1001 bytes"},
           {std::string(500, '(') + std::string(500, ')'), "at its byte"},
           {"(", "missing closing parenthesis, at its byte 1"},
           {"a)|(b", "unmatched closing parenthesis"},
           {R"(\7777777777777777777)", "at its byte"},
           {"x{99999999999}y{65535}{65535}", "at its byte"},
           {"([a-z_.0-9]+)*[.]foo", "takes too many steps"},
           {"(.*)*(.*)*(.*)*[0-9]$", "takes too many steps"},
           {"(?:(?1)|q)*(x|(?1)y)$", "takes too many steps"}})
    EXPECT_THAT(found(expression, name), testing::HasSubstr(wrong)) << expression.substr(0, 40);
  // Some 200,000 ways to divide the letters: more than are tried here, and less than PCRE2 tries by itself.
  EXPECT_THAT(found("(a|aa)+$", std::string(26, 'a') + "b"), testing::HasSubstr("takes too many steps"));
}

}  // namespace
}  // namespace trivet
