#include "report/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <list>
#include <vector>

#include "core/error.h"
#include "core/open_files.h"
#include "report/http_connection.h"

namespace trivet::report {
namespace {

constexpr size_t kMostConnections = 16;
constexpr int kLowestPriority = 19;

[[noreturn]] void refuse_port(int port) {
  const int error = errno;
  check_open_files("--serve", error);
  throw ConfigError(
      fmt::format("--serve {}: 127.0.0.1:{} cannot be listened on: {}; use another port, or leave it out to get "
                  "a free one",
                  port, port, std::strerror(error)));
}

OwnedDescriptor listen_on(int port) {
  OwnedDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) refuse_port(port);
  const int yes = 1;  // a port of a run that ended a moment ago can be used again
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) refuse_port(port);
  if (::listen(socket.get(), SOMAXCONN) != 0) refuse_port(port);
  return socket;
}

int port_of(const OwnedDescriptor& socket) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// A thread inherits the mask of signals.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

class HttpServer::Loop {
 public:
  Loop(int port, Handler handler) : listener_(listen_on(port)), handler_(std::move(handler)) {
    if (wake_.get() < 0) refuse_port(port);
  }

  int port() const { return port_of(listener_); }

  void run() {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kLowestPriority);  // for this thread alone
    while (!stopped_) turn();
    connections_.remove_if([](const HttpConnection& connection) { return !connection.is_answering(); });
    while (is_answering()) turn();
  }

  void stop() {
    const uint64_t one = 1;
    while (::write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }

 private:
  void turn() {
    constexpr int kIgnored = -1;
    std::vector<pollfd> waiting{{stopped_ ? kIgnored : wake_.get(), POLLIN, 0},
                                {stopped_ ? kIgnored : listener_.get(), POLLIN, 0}};
    for (const HttpConnection& connection : connections_) waiting.push_back({connection.descriptor(), connection.events(), 0});
    if (::poll(waiting.data(), waiting.size(), milliseconds_to_wait()) < 0) return;
    stopped_ = stopped_ || waiting[0].revents != 0;
    size_t at = 2;
    for (auto connection = connections_.begin(); connection != connections_.end(); ++at) {
      const bool ready = waiting[at].revents != 0, expired = std::chrono::steady_clock::now() >= connection->deadline();
      const bool goes_on = expired ? connection->expire() : !ready || connection->advance(handler_);
      connection = goes_on ? std::next(connection) : connections_.erase(connection);
    }
    if (waiting[1].revents != 0) accept_one();
  }

  bool is_answering() const { return std::ranges::any_of(connections_, &HttpConnection::is_answering); }

  int milliseconds_to_wait() const {
    if (connections_.empty()) return -1;
    std::chrono::steady_clock::time_point first = connections_.front().deadline();
    for (const HttpConnection& connection : connections_) first = std::min(first, connection.deadline());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - std::chrono::steady_clock::now());
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
  }

  void accept_one() {
    OwnedDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) {  // the process may have no descriptor left: try again later
      ::poll(nullptr, 0, 100);
      return;
    }
    if (connections_.size() == kMostConnections) connections_.pop_front();
    connections_.emplace_back(std::move(socket));
  }

  OwnedDescriptor wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  OwnedDescriptor listener_;
  Handler handler_;
  std::list<HttpConnection> connections_;  // the oldest first
  bool stopped_ = false;
};

HttpServer::HttpServer(int port, Handler handler) : loop_(std::make_unique<Loop>(port, std::move(handler))) {
  port_ = loop_->port();
  const AllSignalsBlocked blocked;
  thread_ = std::thread([loop = loop_.get()] { loop->run(); });
}

HttpServer::~HttpServer() {
  loop_->stop();
  thread_.join();
}

}  // namespace trivet::report
