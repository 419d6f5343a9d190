#include "comm/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "comm/port_holder.h"
#include "core/error.h"
#include "core/log.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookEvery{100}, kOneAttempt{1300};  // TCP sends the first packet again after a second
constexpr int kBacklog = 4096;           // visitors that the system holds until they are accepted, if its own limit allows
constexpr size_t kMostUnread = 2 << 20;  // bytes of one fill()

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Returns 0, or what getaddrinfo returns.
int look_up(const std::string& address, int port, AddressList& out) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const int failed = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list);
  out.reset(failed == 0 ? list : nullptr);
  return failed;
}

[[noreturn]] void refuse_address(const std::string& address, int failed) {
  throw CommError(ExitCode::Rendezvous,
                  fmt::format("MASTER_ADDR: \"{}\" is not the address of a host: {}; give a name or an address that "
                              "this machine can look up",
                              escape_control(address), ::gai_strerror(failed)));
}

// A name may become known later: that of a pod in Kubernetes, once it is ready.
bool may_succeed_later(int failed) { return failed == EAI_NONAME || failed == EAI_AGAIN; }

AddressList resolve(const std::string& address, int port) {
  AddressList list(nullptr, &::freeaddrinfo);
  if (const int failed = look_up(address, port, list)) refuse_address(address, failed);
  return list;
}

void set_option(int descriptor, int level, int option, int value) {
  ::setsockopt(descriptor, level, option, &value, sizeof value);
}

// Sends small frames without delay, and tries again every second what was lost. Without that, TCP doubles its pauses: after an
// outage of 3 s, it might try again only 3 s later, and heartbeats would be missed for 6 s. Systems before Linux 6.15 do not
// know this option and keep their pauses. (Heartbeats detect a connection whose other end dies silently: power, cable.)
void set_prompt(int descriptor) {
  constexpr int kLongestPause = 44;  // TCP_RTO_MAX_MS of linux/tcp.h
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, IPPROTO_TCP, kLongestPause, 1000);
}

int remaining_ms(TimePoint deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

bool poll_for(int descriptor, short events, TimePoint deadline) {
  pollfd entry{descriptor, events, 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, remaining_ms(deadline));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return false;
  }
}

std::vector<SocketAddress> addresses_of(const AddressList& list) {
  std::vector<SocketAddress> addresses;
  for (const addrinfo* target = list.get(); target != nullptr; target = target->ai_next)
    addresses.push_back({std::string(reinterpret_cast<const char*>(target->ai_addr), target->ai_addrlen)});
  return addresses;
}

const sockaddr* sockaddr_of(const SocketAddress& address) { return reinterpret_cast<const sockaddr*>(address.bytes.data()); }

// The name of an abstract socket begins with a zero; it is no file, and is gone with its last socket.
SocketAddress address_on_this_host(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const size_t size = offsetof(sockaddr_un, sun_path) + 1 + std::min(name.size(), sizeof address.sun_path - 1);
  return {std::string(reinterpret_cast<const char*>(&address), size)};
}

}  // namespace

void wait_for_name(const std::string& address, const Patience& patience) {
  for (;;) {
    AddressList list(nullptr, &::freeaddrinfo);
    const int failed = look_up(address, 0, list);
    if (failed == 0) return;
    if (!may_succeed_later(failed) || steady_clock::now() >= patience.deadline) refuse_address(address, failed);
    if (patience.look) patience.look();
    std::this_thread::sleep_for(kLookEvery);
  }
}

Descriptor listen_on(const std::string& address, int port) {
  const AddressList list = resolve(address, port);
  Descriptor listener(::socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener) throw CommError(ExitCode::Rendezvous, fmt::format("cannot create a socket: {}", std::strerror(errno)));
  set_option(listener.number(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(listener.number(), list->ai_addr, list->ai_addrlen) != 0 || ::listen(listener.number(), kBacklog) != 0) {
    const int error = errno;
    if (error == EADDRINUSE) {
      throw CommError(ExitCode::Rendezvous,
                      fmt::format("port {} of {} is held by {}; set MASTER_PORT (`trivet launch`: --master_port) to a free one",
                                  port, address, port_holder(port)));
    }
    throw CommError(ExitCode::Rendezvous, fmt::format("cannot listen on {}:{}: {}", address, port, std::strerror(error)));
  }
  return listener;
}

int port_of(const Descriptor& listener) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  ::getsockname(listener.number(), reinterpret_cast<sockaddr*>(&storage), &size);
  // The port is at the same offset in both address families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

bool is_loopback(const std::string& address) {
  const AddressList list = resolve(address, 0);
  if (list->ai_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(list->ai_addr)->sin_addr.s_addr) >> 24) == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(list->ai_addr)->sin6_addr);
}

std::string peer_of(const Descriptor& connection) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getpeername(connection.number(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "an unknown address";
  if (storage.ss_family == AF_UNIX) return "this host";
  char host[NI_MAXHOST], port[NI_MAXSERV];
  ::getnameinfo(reinterpret_cast<sockaddr*>(&storage), size, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  return fmt::format("{}:{}", host, port);
}

std::vector<SocketAddress> look_up(const std::string& address) {
  if (address.starts_with("@")) return {address_on_this_host(address.substr(1))};
  const size_t colon = std::min(address.rfind(':'), address.size());
  const std::string host = address.substr(0, colon), port = address.substr(std::min(colon + 1, address.size()));
  AddressList list(nullptr, &::freeaddrinfo);
  const int unknown = look_up(host, std::atoi(port.c_str()), list);
  if (unknown != 0 && !may_succeed_later(unknown)) refuse_address(host, unknown);
  return addresses_of(list);
}

std::optional<Descriptor> listen_on_this_host(const std::string& name) {
  const SocketAddress address = address_on_this_host(name);
  Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener) throw CommError(ExitCode::Rendezvous, fmt::format("cannot create a socket: {}", std::strerror(errno)));
  if (::bind(listener.number(), sockaddr_of(address), static_cast<socklen_t>(address.bytes.size())) != 0 ||
      ::listen(listener.number(), kBacklog) != 0)
    return std::nullopt;
  return listener;
}

ConnectionAttempt::ConnectionAttempt(std::vector<SocketAddress> addresses, TimePoint now)
    : addresses_(std::move(addresses)), error_(EADDRNOTAVAIL) {
  try_next(now);
}

// Begins with the next address at which nothing fails at once. False if there is none.
bool ConnectionAttempt::try_next(TimePoint now) {
  for (; next_ < addresses_.size(); ++next_) {
    const SocketAddress& address = addresses_[next_];
    descriptor_ = Descriptor(::socket(sockaddr_of(address)->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    give_up_ = now + kOneAttempt;
    if (descriptor_ &&
        (::connect(descriptor_.number(), sockaddr_of(address), static_cast<socklen_t>(address.bytes.size())) == 0 ||
         errno == EINPROGRESS)) {
      ++next_;
      return true;
    }
    error_ = errno;
  }
  descriptor_.reset();
  return false;
}

ConnectionAttempt::State ConnectionAttempt::step(TimePoint now) {
  while (descriptor_) {
    pollfd entry{descriptor_.number(), POLLOUT, 0};
    int error = ETIMEDOUT;
    if (::poll(&entry, 1, 0) > 0) {
      socklen_t size = sizeof error;
      ::getsockopt(descriptor_.number(), SOL_SOCKET, SO_ERROR, &error, &size);
    } else if (now < give_up_) {
      return State::Waiting;
    }
    if (error == 0) {
      set_prompt(descriptor_.number());
      return State::Connected;
    }
    error_ = error;
    try_next(now);
  }
  return State::Failed;
}

Descriptor connect_to(const std::string& address, int port, const Patience& patience) {
  milliseconds pause{2};
  AddressList list(nullptr, &::freeaddrinfo);
  int unknown = 0;
  TimePoint look_up_at{};
  for (;;) {
    // Looked up again now and then: a host that was started again may have another address.
    if (steady_clock::now() >= look_up_at) {
      unknown = look_up(address, port, list);
      look_up_at = steady_clock::now() + kOneAttempt;
    }
    if (unknown != 0 && !may_succeed_later(unknown)) refuse_address(address, unknown);
    ConnectionAttempt attempt(addresses_of(list), steady_clock::now());
    auto state = attempt.step(steady_clock::now());
    while (state == ConnectionAttempt::State::Waiting && steady_clock::now() < patience.deadline) {
      poll_for(attempt.number(), POLLOUT, std::min(patience.deadline, steady_clock::now() + kLookEvery));
      state = attempt.step(steady_clock::now());
    }
    if (state == ConnectionAttempt::State::Connected) return attempt.take();
    if (patience.look) patience.look();
    if (steady_clock::now() + pause >= patience.deadline) {
      if (unknown != 0) refuse_address(address, unknown);
      throw CommError(ExitCode::Rendezvous,
                      fmt::format("rank 0 does not answer at {}:{}: {}; is it started, and are MASTER_ADDR and "
                                  "MASTER_PORT the same on all ranks?",
                                  address, port, std::strerror(attempt.error())));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds{100});
  }
}

std::optional<Descriptor> accept_from(const Descriptor& listener) {
  Descriptor connection(::accept4(listener.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!connection) return std::nullopt;
  set_prompt(connection.number());
  return connection;
}

bool wait_readable(int descriptor, const Patience& patience) {
  for (;;) {
    const TimePoint now = steady_clock::now();
    if (now >= patience.deadline) return false;
    if (poll_for(descriptor, POLLIN, std::min(patience.deadline, now + kLookEvery))) return true;
    if (patience.look) patience.look();
  }
}

void Connection::flush() {
  while (!out_.empty()) {
    const ssize_t sent = ::send(number(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) {
      out_.clear();  // the peer is gone, as fill() will report
      return;
    }
    out_.erase(0, sent);
  }
}

Connection::State Connection::fill() {
  in_.erase(0, std::exchange(decrypted_, 0));
  char buffer[16384];
  for (;;) {
    const ssize_t got = ::recv(number(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) {
      in_.append(buffer, got);
      if (in_.size() > kMostUnread) return State::Open;  // the caller takes frames out first
      continue;
    }
    if (got == 0) return State::Ended;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? State::Open : State::Reset;
  }
}

std::optional<Frame> Connection::next() {
  for (;;) {
    if (auto decoded = decode_frame(text_, limits_)) {
      text_.erase(0, decoded->bytes);
      return std::move(decoded->frame);
    }
    const size_t bytes = cipher_.decrypt(std::string_view(in_).substr(decrypted_), text_);
    if (bytes == 0) return std::nullopt;
    decrypted_ += bytes;
  }
}

Connection::State Connection::skip() {
  char buffer[16384];
  for (;;) {
    const ssize_t got = ::recv(number(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) continue;
    if (got == 0) return State::Ended;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? State::Open : State::Reset;
  }
}

void Connection::finish_sending() { ::shutdown(number(), SHUT_WR); }

}  // namespace trivet::comm
