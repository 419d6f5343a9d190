#include "cli/launch/hostfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"

namespace trivet::cli {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::string slots_of(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += (text.empty() ? "" : " ") + host.name + ":";
    for (int slot : host.slots) text += std::to_string(slot);
  }
  return text;
}

TEST(HostFileLines, AreAHostAndItsSlots) {
  EXPECT_EQ(slots_of(parse_hosts("a slots=2 # first\n\n  b.c-d_e slots=1\n# end", "hosts")), "a:01 b.c-d_e:0");
  EXPECT_EQ(parse_hosts("a slots=4096", "hosts").at(0).slots.size(), 4096u);
}

TEST(HostFileLines, ThatSayAnythingElseAreRefusedWithTheirPlace) {
  for (const char* line :
       {"a", "a 2", "a slot=2", "a slots=1 2", "a slots=1 slots=1", "-a slots=1", "a/b slots=1", "a;b slots=1"})
    EXPECT_THAT([&] { parse_hosts(std::string("x slots=1\n") + line, "hosts"); },
                ThrowsMessage<ConfigError>(std::string("hosts:2: \"") + line + "\" is not accepted; write \"host slots=N\""))
        << line;
  for (const char* number : {"0", "-1", "4097", "1x", "", "99999999999"})
    EXPECT_THAT([&] { parse_hosts(std::string("a slots=") + number, "hosts"); },
                ThrowsMessage<ConfigError>(HasSubstr(std::string("\"") + number + "\" is not a number from 1 to 4096")))
        << number;
  EXPECT_THROW(parse_hosts("a slots=1\na slots=1", "hosts"), ConfigError);
  EXPECT_THROW(parse_hosts("", "hosts"), ConfigError);
}

TEST(HostFilters, IncludeAndExcludeHostsAndSlots) {
  const std::vector<Host> hosts{{"a", {0, 1, 2}}, {"b", {0, 1}}};
  const auto filtered = [&](const std::string& include, const std::string& exclude) {
    return slots_of(filter_hosts(hosts, include, exclude));
  };
  EXPECT_EQ(filtered("", ""), "a:012 b:01");
  EXPECT_EQ(filtered("b", ""), "b:01");
  EXPECT_EQ(filtered("b:1@a:2,0", ""), "b:1 a:20");
  EXPECT_EQ(filtered("", "a:1"), "a:02 b:01");
  EXPECT_EQ(filtered("", "a:0,2@b:1"), "a:1 b:0");
  // A host with no slot left is dropped: nothing would start there, and it would still count as a host.
  EXPECT_EQ(filtered("", "a"), "b:01");
  EXPECT_EQ(filtered("", "b:0,1"), "a:012");
  EXPECT_THAT([&] { filtered("", "a@b"); }, ThrowsMessage<ConfigError>("--exclude a@b: leaves no slot"));
  EXPECT_THAT([&] { filtered("c", ""); },
              ThrowsMessage<ConfigError>("--include: host \"c\" is not in the hostfile, which names a, b"));
  EXPECT_THAT([&] { filtered("b:2", ""); }, ThrowsMessage<ConfigError>("--include: host \"b\" has no slot 2; it has 0,1"));
  EXPECT_THROW(filtered("a", "b"), ConfigError);
}

}  // namespace
}  // namespace trivet::cli
