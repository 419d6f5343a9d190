#include "tests/comm/gloo_transports.h"

#include <stdexcept>

#ifdef TRIVET_HAS_GLOO
#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <sstream>
#include <thread>

#include "comm/gloo/gloo_transport.h"
#include "core/descriptor.h"
#endif

namespace trivet::comm {

#ifdef TRIVET_HAS_GLOO
namespace {

using GlooTransports = std::vector<std::unique_ptr<Transport>>;

constexpr uint64_t kKeyOfTheTest = 0x5ec2e7;

struct NotConnected {
  std::vector<std::unique_ptr<UnconnectedTransport>> ranks;
  std::vector<std::string> addresses;

  NotConnected(int count, const NetworkInterface& interface) {
    for (int rank = 0; rank < count; ++rank) {
      ranks.push_back(open_gloo(interface, rank, count));
      addresses.push_back(ranks.back()->address());
    }
  }
  // Every rank connects on a thread of its own. The last ones do not know the key.
  GlooTransports connect(int strangers) {
    const auto count = static_cast<int>(ranks.size());
    GlooTransports transports(count);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count; ++rank)
      threads.emplace_back(
          [&, rank] { transports[rank] = ranks[rank]->connect(addresses, rank < count - strangers ? kKeyOfTheTest : 0); });
    for (std::thread& thread : threads) thread.join();
    return transports;
  }
};

const NetworkInterface kLoopback{.name = "lo", .address = "127.0.0.1"};

// The port for the other rank, in what a rank of two publishes (comm/gloo/gloo_mesh.cpp).
int port_for_the_other(int rank, const std::string& address) {
  std::istringstream words(address);
  std::string host, first, second;
  words >> host >> first >> second;
  return std::stoi(rank == 0 ? second : first);
}

Descriptor connected_to(int port) {
  Descriptor connection(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(connection.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("nobody listens on the port of a rank");
  return connection;
}

}  // namespace

GlooTransports gloo_transports(int ranks) { return NotConnected(ranks, kLoopback).connect(0); }

GlooTransports gloo_transports_v6(int ranks) {
  return NotConnected(ranks, {.name = "lo", .address = "::1", .ipv6 = true}).connect(0);
}

GlooTransports gloo_transports_and_a_stranger(int ranks) { return NotConnected(ranks + 1, kLoopback).connect(1); }

GlooTransports gloo_transports_and_an_echo() {
  NotConnected two(2, kLoopback);
  const int zero = port_for_the_other(0, two.addresses[0]), one = port_for_the_other(1, two.addresses[1]);
  // gloo listens on the one of two ports whose bytes, as they lie in memory, are the lower number.
  const Descriptor connection =
      connected_to(htons(static_cast<uint16_t>(zero)) < htons(static_cast<uint16_t>(one)) ? zero : one);
  std::thread echo([&] {
    std::array<std::byte, 4096> bytes;
    for (ssize_t got; (got = ::recv(connection.number(), bytes.data(), bytes.size(), 0)) > 0;)
      if (::send(connection.number(), bytes.data(), got, MSG_NOSIGNAL) < 0) return;
  });
  GlooTransports transports = two.connect(0);
  ::shutdown(connection.number(), SHUT_RDWR);
  echo.join();
  return transports;
}
#else
std::vector<std::unique_ptr<Transport>> gloo_transports(int) { throw std::logic_error("built without gloo"); }
#endif

}  // namespace trivet::comm
