#include "core/base64.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trivet {
namespace {

TEST(Base64, HasThePublishedValues) {  // RFC 4648, section 10
  for (const auto& [bytes, text] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                    {"f", "Zg=="},
                                                                                    {"fo", "Zm8="},
                                                                                    {"foo", "Zm9v"},
                                                                                    {"foobar", "Zm9vYmFy"},
                                                                                    {"\xff\xfe", "//4="},
                                                                                    {"\xfb", "+w=="}}) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
    EXPECT_EQ(from_base64(text.substr(0, text.find('='))), bytes) << "padding may be left out";
  }
}

TEST(Base64, RefusesOtherTexts) {
  for (const std::string wrong : {"a", "Y===", "YWI=YWI=", "=WI=", "YW=I", "YW I", "a?", "YWIY\n", "Zm9vY"})
    EXPECT_EQ(from_base64(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace trivet
