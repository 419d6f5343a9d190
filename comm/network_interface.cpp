#include "comm/network_interface.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/descriptor.h"
#include "core/error.h"
#include "core/log.h"

namespace trivet::comm {
namespace {

// The 4 or 16 bytes of an address, in network order.
struct AddressBytes {
  std::array<uint8_t, 16> bytes{};
  int size = 0;

  bool begins_like(const AddressBytes& other, int bits) const {
    if (size != other.size) return false;
    for (int bit = 0; bit < bits; ++bit)
      if ((bytes[bit / 8] ^ other.bytes[bit / 8]) >> (7 - bit % 8) & 1) return false;
    return true;
  }
  bool operator==(const AddressBytes&) const = default;
};

std::optional<AddressBytes> bytes_of(const sockaddr* address) {
  AddressBytes out;
  if (!address) return std::nullopt;
  if (address->sa_family == AF_INET) {
    out.size = 4;
    std::memcpy(out.bytes.data(), &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
    return out;
  }
  if (address->sa_family != AF_INET6) return std::nullopt;
  out.size = 16;
  std::memcpy(out.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
  return out;
}

std::optional<AddressBytes> parse(const std::string& text) {
  AddressBytes out;
  if (::inet_pton(AF_INET, text.c_str(), out.bytes.data()) == 1) {
    out.size = 4;
    return out;
  }
  if (::inet_pton(AF_INET6, text.c_str(), out.bytes.data()) != 1) return std::nullopt;
  out.size = 16;
  return out;
}

// "10.1.0.0/16"
struct Network {
  AddressBytes address;
  int bits = 0;
};
std::optional<Network> parse_network(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto address = parse(text.substr(0, slash));
  if (!address) return std::nullopt;
  Network network{.address = *address};
  const char *begin = text.data() + slash + 1, *end = text.data() + text.size();
  const auto [last, error] = std::from_chars(begin, end, network.bits);
  if (error != std::errc{} || last != end || network.bits < 0 || network.bits > 8 * address->size) return std::nullopt;
  return network;
}

std::string list(const std::vector<NetworkInterface>& interfaces) {
  std::string text;
  for (const NetworkInterface& interface : interfaces)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", interface.name, interface.address);
  return text.empty() ? "none" : text;
}

NetworkInterface chosen_interface(const std::string& chosen, const std::vector<NetworkInterface>& all) {
  const auto network = parse_network(chosen);
  const auto fits = [&](const NetworkInterface& interface) {
    return network ? parse(interface.address)->begins_like(network->address, network->bits) : interface.name == chosen;
  };
  const auto found = std::find_if(all.begin(), all.end(), fits);
  if (found != all.end()) return *found;
  throw ConfigError(
      fmt::format("communication.interface: \"{}\" is {} this host; use the name of an interface that is up, a "
                  "network such as 10.1.0.0/16, or \"\" for the interface that reaches rank 0's host; this host "
                  "has {}",
                  escape_control(chosen), network ? "a network without an address of" : "not an interface of", list(all)));
}

// The address from which the system sends to this one. Nothing is sent: connecting a datagram socket only looks up the route.
std::optional<AddressBytes> address_towards(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  for (const addrinfo* target = found; target; target = target->ai_next) {
    const Descriptor probe(::socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe || ::connect(probe.number(), target->ai_addr, target->ai_addrlen) != 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (::getsockname(probe.number(), reinterpret_cast<sockaddr*>(&own), &size) != 0) continue;
    return bytes_of(reinterpret_cast<const sockaddr*>(&own));
  }
  return std::nullopt;
}

}  // namespace

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* entry = first; entry; entry = entry->ifa_next) {
    const auto address = bytes_of(entry->ifa_addr);
    if (!address || !(entry->ifa_flags & IFF_UP)) continue;
    char text[INET6_ADDRSTRLEN] = "";
    ::inet_ntop(address->size == 4 ? AF_INET : AF_INET6, address->bytes.data(), text, sizeof text);
    interfaces.push_back({.name = entry->ifa_name, .address = text, .ipv6 = address->size == 16});
  }
  return interfaces;
}

NetworkInterface choose_network_interface(const std::string& chosen, const std::string& master_address) {
  const std::vector<NetworkInterface> all = network_interfaces();
  if (!chosen.empty()) return chosen_interface(chosen, all);
  if (const auto own = address_towards(master_address))
    for (const NetworkInterface& interface : all)
      if (parse(interface.address) == own) return interface;
  throw ConfigError(
      fmt::format("no network interface of this host reaches MASTER_ADDR \"{}\"; set communication.interface to "
                  "one that reaches the other hosts; this host has {}",
                  escape_control(master_address), list(all)));
}

std::vector<std::string> rdma_devices(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace trivet::comm
