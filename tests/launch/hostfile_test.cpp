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

// Empty: nothing was refused.
template <typename Call>
std::string refusal_of(const Call& call) {
  try {
    call();
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(HostFileLines, AreAHostAndItsSlots) {
  EXPECT_EQ(slots_of(parse_hosts("a slots=2 # first\n\n  b.c-d_e slots=1\n# end", "hosts")), "a:01 b.c-d_e:0");
  EXPECT_EQ(parse_hosts("a slots=4096", "hosts").at(0).slots.size(), 4096u);
}

TEST(HostFileLines, ThatSayAnythingElseAreRefusedWithTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"a", "\"a\" is not accepted: slots=N is missing"},
      {"a 2", "\"2\" is not accepted"},
      {"a slot=2", "\"slot=2\" is not accepted"},
      {"a slots", "\"slots\" is not accepted"},
      {"a slots=1 2", "\"2\" is not accepted"},
      {"a cpu=2 slots=1", "\"cpu=2\" is not accepted"},
      {"a slots=1 slots=1", "\"slots=1\" is not accepted: slots is there already"},
      {"a slots=2 max_slots=1", "\"a slots=2 max_slots=1\" is not accepted: max_slots 1 is less than the 2 slots"},
      {"a:2", "\"a:2\" is not accepted as a host; slots follow as \"slots=2\", and a port of ssh is --ssh_port's"},
      {"[fd00::1]:22 slots=2",
       "\"[fd00::1]:22\" is not accepted as a host; the port of ssh is --ssh_port's, the same for all hosts"},
      {"n[1-4] slots=2", "\"n[1-4]\" is not accepted as a host; give each host a line of its own (scontrol show hostnames)"},
      {"-a slots=1", "\"-a\" is not accepted as a host"},
      {"a/b slots=1", "\"a/b\" is not accepted as a host"},
      {"a;b slots=1", "\"a;b\" is not accepted as a host"},
      {"n[a] slots=1", "\"n[a]\" is not accepted as a host; write"},
      {"\x1b[31mn slots=1", "\"\\x1b[31mn\" is not accepted as a host; write"},
      {"fd00::1::2 slots=1", "\"fd00::1::2\" is not accepted as a host; an address of IP version 6 has"},
      {"fd00::1:2:3:4:5:6:7:8 slots=1", "\"fd00::1:2:3:4:5:6:7:8\" is not accepted as a host; an address of IP version 6 has"},
      {"[fd00::1 slots=2", "\"[fd00::1\" is not accepted as a host; an address of IP version 6 has"},
      {"me@[] slots=2", "\"me@[]\" is not accepted as a host; an address of IP version 6 has"},
      {"@a slots=1", "\"@a\" is not accepted: that is no name of a user"},
      {"-me@a slots=1", "\"-me@a\" is not accepted: that is no name of a user"},
      {"me@ slots=1", "\"me@\" is not accepted as a host"},
      {"a\xC2\xA0slots=1", "\"a\xC2\xA0slots=1\" is not accepted as a host"}};
  for (const auto& one : wrong)
    EXPECT_THAT(refusal_of([&] { parse_hosts("x slots=1\n" + one.first, "hosts"); }), HasSubstr("hosts:2: " + one.second));
  for (const char* number : {"0", "-1", "4097", "1x", "", "99999999999"})
    EXPECT_THAT([&] { parse_hosts(std::string("a slots=") + number, "hosts"); },
                ThrowsMessage<ConfigError>(HasSubstr(std::string("\"") + number + "\" is not a number from 1 to 4096")))
        << number;
  EXPECT_THROW(parse_hosts("a slots=1\na slots=1", "hosts"), ConfigError);
  EXPECT_THROW(parse_hosts("n1 slots=1\nN1 slots=1", "hosts"), ConfigError);
  EXPECT_THROW(parse_hosts("me@a slots=1\nyou@a slots=1", "hosts"), ConfigError);
  EXPECT_THROW(parse_hosts("fd00::1 slots=1\n[FD00:0::1] slots=1", "hosts"), ConfigError);
  EXPECT_THROW(parse_hosts("", "hosts"), ConfigError);
  EXPECT_THROW(parse_hosts("\xFF\xFE"
                           "a",
                           "hosts"),
               ConfigError);
}

TEST(HostFileLines, MayBeWrittenAsOtherProgramsAndEditorsDo) {
  const std::string mark = "\xEF\xBB\xBF";
  for (const std::string& text :
       {std::string("me@a slots=2"), std::string("a slots=2 max_slots=2"), std::string("a slots=2 max-slots=8"),
        std::string("a max_slots=2 slots=2"), std::string("a slots = 2"), std::string("\ta  slots=2\t"),
        std::string("a slots=2#x"), std::string("a slots=2\r\n"), std::string("\r\na slots=2\r"), mark + "a slots=2\n"})
    EXPECT_EQ(slots_of(parse_hosts(text, "hosts")), "a:01") << text;
  EXPECT_EQ(parse_hosts("me@a slots=1", "hosts").at(0).login(), "me@a");
  for (const char* text : {"fd00::1 slots=1", "[fd00::1] slots=1", "FD00:0::1 slots=1"})
    EXPECT_EQ(parse_hosts(text, "hosts").at(0).login(), "fd00::1") << text;
  EXPECT_EQ(parse_hosts("me@fe80::1%eth0 slots=1", "hosts").at(0).login(), "me@fe80::1%eth0");
}

TEST(HostFilters, IncludeAndExcludeHostsAndSlots) {
  const std::vector<Host> hosts{{"a", {0, 1, 2}}, {"b", {0, 1}}};
  const auto filtered = [&](const std::string& include, const std::string& exclude) {
    return slots_of(filter_hosts(hosts, include, exclude));
  };
  EXPECT_EQ(filtered("", ""), "a:012 b:01");
  EXPECT_EQ(filtered("b", ""), "b:01");
  EXPECT_EQ(filtered("b:1@a:2,0", ""), "a:02 b:1") << "the order of the hostfile, as in DeepSpeed";
  EXPECT_EQ(filtered("", "a:1"), "a:02 b:01");
  EXPECT_EQ(filtered("", "a:0,2@b:1"), "a:1 b:0");
  // A host with no slot left is dropped: nothing would start there, and it would still count as a host.
  EXPECT_EQ(filtered("", "a"), "b:01");
  EXPECT_EQ(filtered("", "b:0,1"), "a:012");
  EXPECT_THAT([&] { filtered("", "a@b"); },
              ThrowsMessage<ConfigError>(
                  "--exclude a@b: leaves no slot: a, b have no other; exclude fewer, or name a hostfile with more slots "
                  "(--hostfile FILE, with lines \"host slots=N\")"));
  EXPECT_THAT([&] { filtered("c", ""); },
              ThrowsMessage<ConfigError>("--include: host \"c\" is not in the hostfile, which names a, b"));
  EXPECT_THAT([&] { filtered("b:2", ""); }, ThrowsMessage<ConfigError>("--include: host \"b\" has no slot 2; it has 0,1"));
  EXPECT_THROW(filtered("a", "b"), ConfigError);
  EXPECT_EQ(filtered("b:0@a:2@b:1", ""), "a:2 b:01");
  EXPECT_EQ(filtered("", "a:0@A:2"), "a:1 b:01");
  EXPECT_EQ(filtered("a.:0@A:2", ""), "a:02");
  for (const std::string name : {"localhost", "localhost.", "LocalHost."}) EXPECT_TRUE(is_this_host(name)) << name;
  for (const std::string name : {".", "localhost..", "local"}) EXPECT_FALSE(is_this_host(name)) << name;
}

// Nothing that is empty means everything or nothing, and no slot has two ranks.
TEST(HostFilters, RefuseEmptyPartsAndSlotsThatAreNamedTwice) {
  const std::vector<Host> hosts{{"a", {0, 1}}, {"fd00::1", {0}}, {"c", {0}, "me"}};
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"a:", "\"a:\" names no slot after the colon"},
      {":", "\":\" names no host"},
      {":0", "\":0\" names no host"},
      {"@", "\"\" names no host"},
      {"a@", "\"\" names no host"},
      {"@a", "\"\" names no host"},
      {"a@@c", "\"\" names no host"},
      {"a:0,", "\"\" is not a number from 0 to 4095"},
      {"a:,0", "\"\" is not a number from 0 to 4095"},
      {"a:0 ,1", "\"0 \" is not a number from 0 to 4095"},
      {"a:0-1", "\"0-1\" is not a number from 0 to 4095"},
      {"a:-1", "\"-1\" is not a number from 0 to 4095"},
      {"a:-0", "\"-0\" is not a number from 0 to 4095"},
      {"a:0,0", "slot 0 of host \"a\" is named twice; name it once"},
      {"a:0@A:0", "slot 0 of host \"a\" is named twice; name it once"},
      {"a:1@a", "slot 1 of host \"a\" is named twice; name it once"},
      {"[fd00::1]:", "\"[fd00::1]:\" names no slot after the colon"},
      {"[fd00::1", "\"[fd00::1\" is not an address in brackets"},
      {"[fd00::1]0", "\"[fd00::1]0\" is not an address in brackets"},
      {"me@c:0", "host \"me\" is not in the hostfile, which names a, fd00::1, c; hosts are named without their users here"}};
  for (const auto& one : wrong) {
    EXPECT_THAT(refusal_of([&] { filter_hosts(hosts, one.first, ""); }), HasSubstr(one.second)) << one.first;
    EXPECT_THAT(refusal_of([&] { filter_hosts(hosts, "", one.first); }), HasSubstr(one.second)) << one.first;
    if (one.first.starts_with("me@")) continue;
    EXPECT_NE(refusal_of([&] { parse_world(one.first); }), "") << one.first;
  }
  EXPECT_EQ(slots_of(filter_hosts(hosts, "[FD00:0::1]:0@c", "")), "fd00::1:0 c:0");
  EXPECT_EQ(slots_of(filter_hosts(hosts, "", "fd00::1")), "a:01 c:0");
}

TEST(World, IsReadAsItIsWritten) {
  for (const char* text : {"a:0", "a:0,1@b:3", "[fd00::1]:0,2@b:0", "[fe80::1%eth0]:7"})
    EXPECT_EQ(world_of(parse_world(text)), text);
  EXPECT_EQ(slots_of(parse_world("a:0@b:0@a:1")), "a:01 b:0");
}

}  // namespace
}  // namespace trivet::cli
