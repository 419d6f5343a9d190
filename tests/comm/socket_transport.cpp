#include "tests/comm/socket_transport.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLongestSleep{2};  // another thread may receive what this one waits for

struct MessageStart {
  uint64_t tag = 0, size = 0;
};

struct Outgoing {
  MessageStart start;
  const std::byte* data = nullptr;
  std::vector<std::byte> kept;  // the data of a cancelled message of which a part is on its way already
  size_t sent = 0;              // bytes of start and data

  size_t total() const { return sizeof start + start.size; }
  bool complete() const { return sent == total(); }
};

struct Incoming {
  std::byte* data = nullptr;  // null: nobody wants it any more
  uint64_t size = 0;
  bool complete = false, wrong_size = false;
};

// One rank's end of the connection to a peer.
struct PeerConnection {
  Descriptor socket;
  std::string why_gone;  // empty: it is there
  std::deque<std::shared_ptr<Outgoing>> to_send;

  // The message that arrives at the moment.
  MessageStart start;
  size_t received = 0;  // bytes of start and data
  std::shared_ptr<Incoming> target;
  std::vector<std::byte> unexpected;  // its data, if no receive was posted for it

  std::map<uint64_t, std::deque<std::shared_ptr<Incoming>>> posted;     // by tag
  std::map<uint64_t, std::deque<std::vector<std::byte>>> not_expected;  // whole messages, by tag
};

class SocketTransport final : public Transport {
 public:
  SocketTransport(int rank, std::vector<Descriptor> ends) : rank_(rank), connections_(ends.size()) {
    for (size_t peer = 0; peer < ends.size(); ++peer) connections_[peer].socket = std::move(ends[peer]);
  }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(connections_.size()); }
  std::unique_ptr<PendingMessage> send(int peer, uint64_t tag, std::span<const std::byte> bytes) override;
  std::unique_ptr<PendingMessage> receive(int peer, uint64_t tag, std::span<std::byte> bytes) override;
  bool has_given_up() const override { return false; }
  void progress() override {
    std::lock_guard lock(mutex_);
    move_data();
  }
  std::string why_gone(int peer) const override {
    std::lock_guard lock(mutex_);
    return connections_[peer].why_gone;
  }

 private:
  class Sending;
  class Receiving;

  MessageState wait(int peer, milliseconds slice, const std::function<bool()>& complete);
  void move_data();
  void sleep(milliseconds most);
  void send_some(PeerConnection& connection);
  void receive_some(PeerConnection& connection);
  void begin_message(PeerConnection& connection);
  void end_message(PeerConnection& connection);
  static void lose(PeerConnection& connection, const std::string& why);
  static void fill(Incoming& incoming, const std::vector<std::byte>& message);

  const int rank_;
  mutable std::mutex mutex_;
  std::vector<PeerConnection> connections_;  // by rank; its own is unused
};

class SocketTransport::Sending final : public PendingMessage {
 public:
  Sending(SocketTransport& transport, int peer, std::shared_ptr<Outgoing> message)
      : transport_(transport), peer_(peer), message_(std::move(message)) {}
  ~Sending() override {
    std::lock_guard lock(transport_.mutex_);
    if (message_->complete()) return;
    auto& queue = transport_.connections_[peer_].to_send;
    if (message_->sent == 0) {
      std::erase(queue, message_);
    } else {  // the peer must find where the next message begins
      message_->kept.assign(message_->data, message_->data + message_->start.size);
      message_->data = message_->kept.data();
    }
  }
  MessageState wait(milliseconds slice) override {
    return transport_.wait(peer_, slice, [this] { return message_->complete(); });
  }

 private:
  SocketTransport& transport_;
  const int peer_;
  const std::shared_ptr<Outgoing> message_;
};

class SocketTransport::Receiving final : public PendingMessage {
 public:
  Receiving(SocketTransport& transport, int peer, uint64_t tag, std::shared_ptr<Incoming> message)
      : transport_(transport), peer_(peer), tag_(tag), message_(std::move(message)) {}
  ~Receiving() override {
    std::lock_guard lock(transport_.mutex_);
    message_->data = nullptr;
    std::erase(transport_.connections_[peer_].posted[tag_], message_);
  }
  MessageState wait(milliseconds slice) override {
    const MessageState state = transport_.wait(peer_, slice, [this] { return message_->complete; });
    if (state == MessageState::Complete && message_->wrong_size)
      throw std::logic_error(fmt::format("transport: a message of rank {} has another size than its receive", peer_));
    return state;
  }

 private:
  SocketTransport& transport_;
  const int peer_;
  const uint64_t tag_;
  const std::shared_ptr<Incoming> message_;
};

std::unique_ptr<PendingMessage> SocketTransport::send(int peer, uint64_t tag, std::span<const std::byte> bytes) {
  auto message = std::make_shared<Outgoing>();
  message->start = {tag, bytes.size()};
  message->data = bytes.data();
  std::lock_guard lock(mutex_);
  PeerConnection& connection = connections_[peer];
  connection.to_send.push_back(message);
  send_some(connection);
  return std::make_unique<Sending>(*this, peer, std::move(message));
}

std::unique_ptr<PendingMessage> SocketTransport::receive(int peer, uint64_t tag, std::span<std::byte> bytes) {
  auto message = std::make_shared<Incoming>();
  message->data = bytes.data();
  message->size = bytes.size();
  std::lock_guard lock(mutex_);
  PeerConnection& connection = connections_[peer];
  auto& early = connection.not_expected[tag];
  if (early.empty()) {
    connection.posted[tag].push_back(message);
  } else {
    fill(*message, early.front());
    early.pop_front();
  }
  return std::make_unique<Receiving>(*this, peer, tag, std::move(message));
}

MessageState SocketTransport::wait(int peer, milliseconds slice, const std::function<bool()>& complete) {
  const auto end = steady_clock::now() + slice;
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      move_data();
      if (complete()) return MessageState::Complete;
      if (!connections_[peer].why_gone.empty()) return MessageState::PeerGone;
    }
    const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
    if (left <= milliseconds(0)) return MessageState::Pending;
    sleep(std::min(left, kLongestSleep));
  }
}

void SocketTransport::move_data() {
  for (PeerConnection& connection : connections_) {
    if (!connection.socket) continue;
    send_some(connection);
    receive_some(connection);
  }
}

void SocketTransport::sleep(milliseconds most) {
  std::vector<pollfd> entries;
  {
    std::lock_guard lock(mutex_);
    for (const PeerConnection& connection : connections_) {
      if (!connection.socket || !connection.why_gone.empty()) continue;
      const int events = connection.to_send.empty() ? POLLIN : POLLIN | POLLOUT;
      entries.push_back({connection.socket.number(), static_cast<short>(events), 0});
    }
  }
  ::poll(entries.data(), entries.size(), static_cast<int>(most.count()));
}

void SocketTransport::send_some(PeerConnection& connection) {
  while (!connection.to_send.empty() && connection.why_gone.empty()) {
    Outgoing& message = *connection.to_send.front();
    const auto* from = message.sent < sizeof message.start ? reinterpret_cast<const std::byte*>(&message.start) + message.sent
                                                           : message.data + (message.sent - sizeof message.start);
    const size_t left =
        message.sent < sizeof message.start ? sizeof message.start - message.sent : message.total() - message.sent;
    const ssize_t sent = ::send(connection.socket.number(), from, left, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return lose(connection, std::strerror(errno));
    if (sent <= 0) return;
    message.sent += static_cast<size_t>(sent);
    if (message.complete()) connection.to_send.pop_front();
  }
}

void SocketTransport::receive_some(PeerConnection& connection) {
  std::byte unwanted[4096];
  while (connection.why_gone.empty()) {
    const size_t start_bytes = sizeof connection.start;
    std::byte* to = reinterpret_cast<std::byte*>(&connection.start) + connection.received;
    size_t left = start_bytes - connection.received;
    if (connection.received >= start_bytes) {
      const size_t offset = connection.received - start_bytes;
      left = connection.start.size - offset;
      if (!connection.target) {
        to = connection.unexpected.data() + offset;
      } else if (connection.target->data != nullptr) {
        to = connection.target->data + offset;
      } else {
        to = unwanted;
        left = std::min(left, sizeof unwanted);
      }
    }
    const ssize_t got = ::recv(connection.socket.number(), to, left, MSG_DONTWAIT);
    if (got == 0) return lose(connection, "end of file");
    if (got < 0 && errno != EAGAIN && errno != EINTR) return lose(connection, std::strerror(errno));
    if (got < 0) return;
    connection.received += static_cast<size_t>(got);
    if (connection.received == start_bytes) begin_message(connection);
    if (connection.received == start_bytes + connection.start.size) end_message(connection);
  }
}

// Finds out where the data of the message goes.
void SocketTransport::begin_message(PeerConnection& connection) {
  auto& posted = connection.posted[connection.start.tag];
  if (!posted.empty() && posted.front()->size == connection.start.size) {
    connection.target = posted.front();
    posted.pop_front();
  } else {
    connection.unexpected.resize(connection.start.size);
  }
}

void SocketTransport::end_message(PeerConnection& connection) {
  auto& posted = connection.posted[connection.start.tag];
  if (connection.target) {
    connection.target->complete = true;
  } else if (!posted.empty()) {  // posted meanwhile, or of another size
    fill(*posted.front(), connection.unexpected);
    posted.pop_front();
  } else {
    connection.not_expected[connection.start.tag].push_back(std::move(connection.unexpected));
  }
  connection.target.reset();
  connection.unexpected.clear();
  connection.received = 0;
}

void SocketTransport::lose(PeerConnection& connection, const std::string& why) {
  connection.why_gone = "its connection ended: " + why;
}

void SocketTransport::fill(Incoming& incoming, const std::vector<std::byte>& message) {
  incoming.complete = true;
  incoming.wrong_size = incoming.size != message.size();
  if (!incoming.wrong_size) std::memcpy(incoming.data, message.data(), message.size());
}

}  // namespace

SocketPairs::SocketPairs(int ranks) : ends_(ranks) {
  for (auto& ends : ends_) ends.resize(ranks);
  for (size_t a = 0; a < ends_.size(); ++a)
    for (size_t b = a + 1; b < ends_.size(); ++b) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        throw std::system_error(errno, std::generic_category(), "socketpair");
      ends_[a][b] = Descriptor(pair[0]);
      ends_[b][a] = Descriptor(pair[1]);
    }
}

std::unique_ptr<Transport> SocketPairs::transport_of(int rank) {
  return std::make_unique<SocketTransport>(rank, std::move(ends_[rank]));
}

std::vector<std::unique_ptr<Transport>> socket_transports(int ranks) {
  SocketPairs pairs(ranks);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < ranks; ++rank) transports.push_back(pairs.transport_of(rank));
  return transports;
}

}  // namespace trivet::comm
