#include "cli/launch/hostfile.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>

#include "cli/launch/text_lines.h"
#include "comm/member.h"
#include "core/bounded_file.h"
#include "core/error.h"
#include "core/found_file.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

constexpr int kMaxSlots = 4096;
constexpr size_t kMaxHosts = 4096;
constexpr int64_t kLargestFile = int64_t{1} << 20;

constexpr const char* kLettersAndDigits = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

int number(const std::string& text, int least, int most, const std::string& where) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool has_sign = text.starts_with('-');  // "-0"
  if (has_sign || error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw ConfigError(fmt::format("{}: \"{}\" is not a number from {} to {}", where, printable(text), least, most));
  }
  return value;
}

// Neither a shell nor ssh takes such a word for anything but a name.
bool is_plain(const std::string& name) {
  return !name.empty() && name[0] != '-' && name.size() <= 253 &&
         name.find_first_not_of(kLettersAndDigits) == std::string::npos;
}

// "FD00:0::1%eth0" -> "fd00::1%eth0"; empty: not an address of version 6.
std::string address_of_version_6(const std::string& text) {
  const size_t percent = text.find('%');
  if (percent != std::string::npos && !is_plain(text.substr(percent + 1))) return "";
  in6_addr address{};
  if (::inet_pton(AF_INET6, text.substr(0, percent).c_str(), &address) != 1) return "";
  std::array<char, INET6_ADDRSTRLEN> out{};
  ::inet_ntop(AF_INET6, &address, out.data(), out.size());
  return out.data() + (percent == std::string::npos ? "" : text.substr(percent));
}

// "localhost." is the name "localhost" that no domain is added to.
std::string without_last_dot(const std::string& name) {
  return name.size() > 1 && name.ends_with('.') ? name.substr(0, name.size() - 1) : name;
}

// "::ffff:10.0.0.1" is the address 10.0.0.1 as programs of version 6 write it (RFC 4291, 2.5.5.2).
std::string without_version_6(const std::string& name) {
  constexpr std::string_view kMapped = "::ffff:";
  return name.starts_with(kMapped) && name.find('.') != std::string::npos ? name.substr(kMapped.size()) : name;
}

// Names of hosts are the same in capital and small letters (RFC 4343).
bool is_same_host(const std::string& a, const std::string& b) {
  const auto plain = [](const std::string& name) { return without_version_6(without_last_dot(name)); };
  return ::strcasecmp(plain(a).c_str(), plain(b).c_str()) == 0;
}

// Writes an address as filters and the world do.
std::string bracketed(const std::string& name) { return name.find(':') == std::string::npos ? name : "[" + name + "]"; }

// "a, b and 3 others"
std::string names_of(const std::vector<Host>& hosts) {
  constexpr size_t kMostNames = 8;
  std::vector<std::string> names;
  for (const Host& host : hosts)
    if (names.size() < kMostNames) names.push_back(host.name);
  const size_t others = hosts.size() - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "), others > 0 ? fmt::format(" and {} others", others) : "");
}

// One part of "host:0,2@[fd00::1]:1@other".
struct NamedSlots {
  std::string name;
  std::optional<std::vector<int>> slots;  // none: all of the host
};

NamedSlots named_slots(const std::string& part, const std::string& flag) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(
        fmt::format("{}: \"{}\" {}; write HOST or HOST:SLOT,SLOT, with \"@\" between hosts", flag, printable(part), why));
  };
  if (part.empty()) refuse("names no host");
  NamedSlots named;
  size_t colon = part.find(':');
  if (part[0] == '[') {
    const size_t bracket = part.find(']');
    named.name = bracket == std::string::npos ? "" : address_of_version_6(part.substr(1, bracket - 1));
    if (named.name.empty() || (bracket + 1 < part.size() && part[bracket + 1] != ':')) refuse("is not an address in brackets");
    colon = bracket + 1 < part.size() ? bracket + 1 : std::string::npos;
  } else if (named.name = address_of_version_6(part); !named.name.empty()) {
    colon = std::string::npos;
  } else {
    named.name = part.substr(0, colon);
  }
  if (!named.name.empty() && colon == std::string::npos) return named;
  if (named.name.empty()) refuse("names no host");
  if (colon + 1 == part.size()) refuse("names no slot after the colon");
  named.slots.emplace();
  for (const std::string& slot : split(std::string_view(part).substr(colon + 1), ','))
    named.slots->push_back(number(slot, 0, kMaxSlots - 1, fmt::format("{} {}", flag, printable(part))));
  return named;
}

// Adds the slots to those that other parts have named of the same host.
void add_slots(std::vector<Host>& hosts, const Host& host, const std::string& flag) {
  const auto known =
      std::find_if(hosts.begin(), hosts.end(), [&](const Host& other) { return is_same_host(other.name, host.name); });
  Host& into = known == hosts.end() ? hosts.emplace_back(Host{host.name, {}, host.user}) : *known;
  into.slots_are_chosen = into.slots_are_chosen || host.slots_are_chosen;
  for (const int slot : host.slots) {
    if (std::find(into.slots.begin(), into.slots.end(), slot) != into.slots.end())
      throw ConfigError(fmt::format("{}: slot {} of host \"{}\" is named twice; name it once", flag, slot, host.name));
    into.slots.push_back(slot);
  }
}

const Host& known_host(const std::string& name, const std::vector<Host>& hosts, const std::string& flag) {
  std::string advice;
  for (const Host& host : hosts) {
    if (is_same_host(host.name, name)) return host;
    if (host.user == name) advice = "; hosts are named without their users here";
  }
  throw ConfigError(
      fmt::format("{}: host \"{}\" is not in the hostfile, which names {}{}", flag, printable(name), names_of(hosts), advice));
}

// Parses "host:0,2@other", the value of one of the two flags.
std::vector<Host> parse_filter(const std::string& text, const std::string& flag, const std::vector<Host>& hosts) {
  std::vector<Host> chosen;
  for (const std::string& part : split(text, '@')) {
    const NamedSlots named = named_slots(part, flag);
    const Host& known = known_host(named.name, hosts, flag);
    const std::vector<int> slots = named.slots.value_or(known.slots);
    for (const int slot : slots)
      if (std::find(known.slots.begin(), known.slots.end(), slot) == known.slots.end())
        throw ConfigError(fmt::format("{}: host \"{}\" has no slot {}; it has {}", flag, known.name, slot,
                                      printable(fmt::format("{}", fmt::join(known.slots, ",")))));
    add_slots(chosen, {.name = known.name, .slots = slots, .user = known.user, .slots_are_chosen = named.slots.has_value()},
              flag);
  }
  return chosen;
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& why) {
  throw ConfigError(fmt::format("--hostfile {}: {}", printable(path), why));
}

// A pipe is accepted for `-H <(command)`.
std::string read_hostfile(const std::string& path) {
  BoundedText read = read_bounded(path, kLargestFile, "a hostfile");
  if (!read.problem.empty()) refuse_file(path, read.problem);
  return std::move(read.text);
}

[[noreturn]] void refuse_part(const std::string& where, const std::string& part, const std::string& why) {
  throw ConfigError(fmt::format("{}: \"{}\" is not accepted{}; write \"host slots=N\"", where, printable(part), why));
}

// Suggests which other way to write hosts was meant.
std::string advice_on_host(const std::string& name) {
  const size_t bracket = name.find('['), colon = name.find(':');
  if (bracket == 0 && name.find("]:") != std::string::npos) return "; the port of ssh is --ssh_port's, the same for all hosts";
  if (bracket == 0 || (colon != std::string::npos && name.find(':', colon + 1) != std::string::npos))
    return "; an address of IP version 6 has up to 8 groups of digits and \"::\" at most once, as in fd00::1 or [fd00::1]";
  const bool is_list = bracket != std::string::npos && name.find_first_not_of("0123456789,-]", bracket + 1) == name.npos;
  if (is_list) return "; give each host a line of its own (scontrol show hostnames)";
  if (bracket != std::string::npos || colon == 0 || colon == std::string::npos) return "";
  return fmt::format("; slots follow as \"slots={}\", and a port of ssh is --ssh_port's", printable(name.substr(colon + 1)));
}

// "me@host", "[fd00::1]"
Host host_of(const std::string& word, const std::string& where) {
  const size_t at = word.rfind('@');
  Host host{at == std::string::npos ? word : word.substr(at + 1), {}, at == std::string::npos ? "" : word.substr(0, at)};
  if (at != std::string::npos && !is_plain(host.user)) refuse_part(where, word, ": that is no name of a user");
  const bool in_brackets = host.name.size() > 2 && host.name.front() == '[' && host.name.back() == ']';
  const std::string address = address_of_version_6(in_brackets ? host.name.substr(1, host.name.size() - 2) : host.name);
  if (!address.empty()) host.name = address;
  if (!address.empty() || is_plain(host.name)) return host;
  refuse_part(where, word, " as a host" + advice_on_host(host.name));
}

// "a slots = 2" -> "a", "slots=2"
std::vector<std::string> words_of_line(const std::string& line) {
  std::string joined;
  for (const char c : line) {
    const bool is_blank = c == ' ' || c == '\t' || c == '\v' || c == '\f';
    if (c == '=')
      while (joined.ends_with(' ')) joined.pop_back();
    if (!is_blank)
      joined += c;
    else if (!joined.ends_with('=') && !joined.ends_with(' '))
      joined += ' ';
  }
  std::vector<std::string> words;
  for (const std::string& word : split(joined, ' '))
    if (!word.empty()) words.push_back(word);
  return words;
}

// "a slots=2 max_slots=4"
Host parse_line(const std::string& line, const std::string& where) {
  const std::vector<std::string> words = words_of_line(line);
  Host host = host_of(words[0], where);
  std::optional<int> slots, most;  // max_slots says what Open MPI may start beyond the slots; there is nothing like it here
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string key = words[i].substr(0, words[i].find('='));
    const bool is_most = key == "max_slots" || key == "max-slots";
    if ((key != "slots" && !is_most) || key.size() == words[i].size()) refuse_part(where, words[i], "");
    std::optional<int>& value = is_most ? most : slots;
    if (value) refuse_part(where, words[i], fmt::format(": {} is there already", key));
    value = number(words[i].substr(key.size() + 1), 1, kMaxSlots, where);
  }
  if (!slots) refuse_part(where, line, ": slots=N is missing");
  if (most && *most < *slots) refuse_part(where, line, fmt::format(": max_slots {} is less than the {} slots", *most, *slots));
  for (int slot = 0; slot < *slots; ++slot) host.slots.push_back(slot);
  return host;
}

// DeepSpeed numbers the ranks so, whatever the order in which --include names hosts and slots.
std::vector<Host> in_order_of(const std::vector<Host>& hosts, std::vector<Host> chosen) {
  const auto place = [&](const Host& one) { return std::ranges::find(hosts, one.name, &Host::name) - hosts.begin(); };
  std::ranges::sort(chosen, {}, place);
  for (Host& host : chosen) std::ranges::sort(host.slots);
  return chosen;
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& text, const std::string& path) {
  std::vector<Host> hosts;
  for (const TextLine& line : lines_of(text, path)) {
    const std::string before_comment(trimmed(std::string_view(line.text).substr(0, line.text.find('#'))));
    if (before_comment.empty()) continue;
    Host host = parse_line(before_comment, line.where);
    for (const Host& other : hosts)
      if (is_same_host(other.name, host.name))
        throw ConfigError(
            fmt::format("{}: host \"{}\" is named twice; give it one line with all of its slots", line.where, host.name));
    if (hosts.size() == kMaxHosts) throw ConfigError(fmt::format("{}: names more than {} hosts", line.where, kMaxHosts));
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) throw ConfigError(fmt::format("{}: names no host; write lines \"host slots=N\"", printable(path)));
  return hosts;
}

std::vector<Host> parse_hostfile(const std::string& path) { return parse_hosts(read_hostfile(path), path); }

std::vector<Host> parse_usual_hostfile(const std::string& path) {
  const FoundText found = read_found_file(path, "name it: --hostfile " + path);
  return found.exists ? parse_hosts(found.text, path) : std::vector<Host>();
}

std::vector<Host> parse_world(const std::string& text) {
  std::vector<Host> hosts;
  for (const std::string& part : split(text, '@')) {
    const NamedSlots named = named_slots(part, "--world_info");
    if (!named.slots || !(is_plain(named.name) || !address_of_version_6(named.name).empty()))
      throw ConfigError(fmt::format("--world_info: \"{}\" is not accepted; write host:SLOT,SLOT@host:SLOT", printable(part)));
    add_slots(hosts, {named.name, *named.slots}, "--world_info");
  }
  return hosts;
}

std::string world_of(const std::vector<Host>& hosts) {
  std::vector<std::string> parts;
  for (const Host& host : hosts) parts.push_back(fmt::format("{}:{}", bracketed(host.name), fmt::join(host.slots, ",")));
  return fmt::format("{}", fmt::join(parts, "@"));
}

std::vector<Host> filter_hosts(const std::vector<Host>& hosts, const std::string& include, const std::string& exclude) {
  if (!include.empty() && !exclude.empty()) throw ConfigError("--include and --exclude exclude each other; give one of them");
  if (!include.empty()) return in_order_of(hosts, parse_filter(include, "--include", hosts));
  if (exclude.empty()) return hosts;
  std::vector<Host> left = hosts;
  for (const Host& out : parse_filter(exclude, "--exclude", hosts)) {
    for (Host& host : left) {
      if (host.name != out.name) continue;
      std::erase_if(host.slots,
                    [&](int slot) { return std::find(out.slots.begin(), out.slots.end(), slot) != out.slots.end(); });
      host.slots_are_chosen = true;
    }
  }
  std::erase_if(left, [](const Host& host) { return host.slots.empty(); });
  if (left.empty())
    throw ConfigError(
        fmt::format("--exclude {}: leaves no slot: {} {} no other; exclude fewer, or name a hostfile with more slots "
                    "(--hostfile FILE, with lines \"host slots=N\")",
                    printable(exclude), names_of(hosts), hosts.size() == 1 ? "has" : "have"));
  return left;
}

void refuse_hosts_only_for_ssh(const std::string& flag, const std::vector<Host>& hosts, bool takes_users) {
  for (const Host& host : hosts) {
    const bool is_address_6 = host.name.find(':') != std::string::npos;
    if (is_address_6 || (!host.user.empty() && !takes_users))
      throw ConfigError(
          fmt::format("{}: cannot reach host \"{}\"{}; give the name under which it knows the host, or use --launcher ssh",
                      flag, host.login(), is_address_6 ? " by an address of IP version 6" : " as another user"));
  }
}

bool can_name_host(const std::string& text) { return is_plain(text) || !address_of_version_6(text).empty(); }

bool is_this_host(const std::string& name) {
  const std::string own = comm::this_host();
  return is_same_host(name, "localhost") || name == "::1" || name.starts_with("127.") || is_same_host(name, own) ||
         is_same_host(name, own.substr(0, own.find('.')));
}

}  // namespace trivet::cli
