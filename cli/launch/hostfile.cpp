#include "cli/launch/hostfile.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>

#include "comm/member.h"
#include "core/descriptor.h"
#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

constexpr int kMaxSlots = 4096;
constexpr size_t kMaxHosts = 4096;
constexpr size_t kLargestFile = size_t{1} << 20;

int number(const std::string& text, int least, int most, const std::string& where) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw ConfigError(fmt::format("{}: \"{}\" is not a number from {} to {}", where, printable(text), least, most));
  }
  return value;
}

bool acceptable_name(const std::string& name) {
  const bool characters =
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == std::string::npos;
  return !name.empty() && name[0] != '-' && name.size() <= 253 && characters;
}

// "a, b and 3 others"
std::string names_of(const std::vector<Host>& hosts) {
  constexpr size_t kMostNames = 8;
  std::vector<std::string> names;
  for (const Host& host : hosts)
    if (names.size() < kMostNames) names.push_back(host.name);
  const size_t others = hosts.size() - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "), others > 0 ? fmt::format(" and {} others", others) : "");
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// Parses "host:0,2@other", the value of one of the two flags.
std::vector<Host> parse_filter(const std::string& text, const std::string& flag, const std::vector<Host>& hosts) {
  std::vector<Host> chosen;
  for (const std::string& part : split(text, '@')) {
    const size_t colon = part.find(':');
    Host host{part.substr(0, colon), {}};
    const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const Host& h) { return h.name == host.name; });
    if (known == hosts.end())
      throw ConfigError(
          fmt::format("{}: host \"{}\" is not in the hostfile, which names {}", flag, printable(host.name), names_of(hosts)));
    if (colon == std::string::npos) {
      host.slots = known->slots;
    } else {
      for (const std::string& slot : split(part.substr(colon + 1), ',')) {
        host.slots.push_back(number(slot, 0, kMaxSlots, flag));
        if (std::find(known->slots.begin(), known->slots.end(), host.slots.back()) == known->slots.end()) {
          throw ConfigError(fmt::format("{}: host \"{}\" has no slot {}; it has {}", flag, host.name, slot,
                                        printable(fmt::format("{}", fmt::join(known->slots, ",")))));
        }
      }
    }
    chosen.push_back(std::move(host));
  }
  return chosen;
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& why) {
  throw ConfigError(fmt::format("--hostfile {}: {}", printable(path), why));
}

// A pipe is accepted for `-H <(command)`.
std::string read_hostfile(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.number(), &status) != 0) refuse_file(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode)) refuse_file(path, "is neither a file nor a pipe");
  std::string text(kLargestFile + 1, '\0');
  size_t size = 0;
  for (ssize_t got = 1; got != 0 && size < text.size();) {
    got = ::read(file.number(), text.data() + size, text.size() - size);
    if (got < 0 && errno != EINTR) refuse_file(path, std::strerror(errno));
    if (got > 0) size += got;
  }
  if (size > kLargestFile) refuse_file(path, fmt::format("is larger than {} bytes, the most that is accepted", kLargestFile));
  text.resize(size);
  return text;
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& text, const std::string& path) {
  std::vector<Host> hosts;
  std::istringstream lines(text);
  std::string line;
  for (int number_of_line = 1; std::getline(lines, line); ++number_of_line) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots, rest;
    if (!(words >> name)) continue;
    const std::string where = fmt::format("{}:{}", printable(path), number_of_line);
    if (!(words >> slots) || !slots.starts_with("slots=") || (words >> rest) || !acceptable_name(name)) {
      throw ConfigError(fmt::format("{}: \"{}\" is not accepted; write \"host slots=N\"", where, printable(line)));
    }
    Host host{name, {}};
    for (int slot = 0, count = number(slots.substr(6), 1, kMaxSlots, where); slot < count; ++slot) host.slots.push_back(slot);
    for (const Host& other : hosts) {
      if (other.name == name) throw ConfigError(fmt::format("{}: host \"{}\" is named twice", where, name));
    }
    if (hosts.size() == kMaxHosts) throw ConfigError(fmt::format("{}: names more than {} hosts", where, kMaxHosts));
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) throw ConfigError(fmt::format("{}: names no host; write lines \"host slots=N\"", printable(path)));
  return hosts;
}

std::vector<Host> parse_hostfile(const std::string& path) { return parse_hosts(read_hostfile(path), path); }

std::vector<Host> parse_world(const std::string& text) {
  std::vector<Host> hosts;
  for (const std::string& part : split(text, '@')) {
    const size_t colon = part.find(':');
    Host host{part.substr(0, colon), {}};
    if (colon != std::string::npos)
      for (const std::string& slot : split(part.substr(colon + 1), ','))
        host.slots.push_back(number(slot, 0, kMaxSlots, "--world_info"));
    if (!acceptable_name(host.name) || host.slots.empty())
      throw ConfigError(fmt::format("--world_info: \"{}\" is not accepted; write host:SLOT,SLOT@host:SLOT", printable(part)));
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) throw ConfigError("--world_info: names no host; write host:SLOT,SLOT@host:SLOT");
  return hosts;
}

std::vector<Host> filter_hosts(const std::vector<Host>& hosts, const std::string& include, const std::string& exclude) {
  if (!include.empty() && !exclude.empty()) throw ConfigError("--include and --exclude exclude each other; give one of them");
  if (!include.empty()) return parse_filter(include, "--include", hosts);
  std::vector<Host> left = hosts;
  for (const Host& out : parse_filter(exclude, "--exclude", hosts)) {
    for (Host& host : left) {
      if (host.name != out.name) continue;
      std::erase_if(host.slots,
                    [&](int slot) { return std::find(out.slots.begin(), out.slots.end(), slot) != out.slots.end(); });
    }
  }
  std::erase_if(left, [](const Host& host) { return host.slots.empty(); });
  if (left.empty()) throw ConfigError(fmt::format("--exclude {}: leaves no slot", printable(exclude)));
  return left;
}

bool is_this_host(const std::string& name) {
  const std::string own = comm::this_host();
  return name == "localhost" || name == "::1" || name.starts_with("127.") || name == own ||
         name == own.substr(0, own.find('.'));
}

}  // namespace trivet::cli
