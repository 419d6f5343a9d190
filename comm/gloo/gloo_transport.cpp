#include "comm/gloo/gloo_transport.h"

#include <fmt/format.h>
#include <gloo/config.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/gloo/gloo_mesh.h"
#include "comm/gloo/pipe_signal.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kFarewell{300};   // how long a rank that leaves waits until the others have read what it has sent
constexpr milliseconds kForLong{60000};  // until a thread that nobody interrupts looks again
constexpr size_t kShortBytes = 8 << 10;  // of a message that its announcement contains
constexpr int kExpected = 4;             // announcements of a rank that can arrive before the first of them was read
constexpr size_t kFewSent = 16;          // announcements that are kept without asking whether gloo still needs them
constexpr uint64_t kAnnouncements = GlooMesh::kFirstFreeSlot, kFirstData = kAnnouncements + 1;

// What an announcement has in the place of the slot if no data follows under one.
constexpr uint64_t kBytesFollow = 0, kLeaving = 1, kHasRead = 2;

struct Announcement {
  uint64_t tag = 0;
  uint64_t bytes = 0;
  uint64_t slot = 0;  // of the data, or kBytesFollow, kLeaving, kHasRead
};

// An announcement in memory of its own, on its way.
struct Carrier {
  std::vector<std::byte> memory;
  std::unique_ptr<GlooBuffer> buffer;
};

// A message whose receive is not posted yet.
struct Arrival {
  Announcement announcement;
  std::vector<std::byte> bytes;  // if it is short
};

struct Operation {
  int peer = 0;
  bool is_receive = false;
  uint64_t tag = 0;
  std::span<std::byte> bytes;          // of a receive
  std::unique_ptr<GlooBuffer> buffer;  // once gloo knows the bytes
  MessageState state = MessageState::Pending;
  bool wrong_size = false;
  bool failed = false;      // gloo will not complete it
  bool waited_for = false;  // a thread waits in the buffer
};

class GlooTransport final : public Transport {
 public:
  GlooTransport(std::unique_ptr<GlooMesh> mesh, const std::vector<std::string>& problems);
  ~GlooTransport() override;

  int rank() const override { return mesh_->rank(); }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::unique_ptr<PendingMessage> send(int peer, uint64_t tag, std::span<const std::byte> bytes) override;
  std::unique_ptr<PendingMessage> receive(int peer, uint64_t tag, std::span<std::byte> bytes) override;
  void progress() override {}
  bool has_given_up() const override;
  std::string why_gone(int peer) const override;

  MessageState wait(Operation& operation, milliseconds slice);
  void cancel(Operation& operation);

 private:
  struct Peer {
    int rank = 0;
    std::string why_gone;  // empty: it is not gone
    std::string ending;    // why the connection was closed; it is gone once the announcements that had arrived are read
    uint64_t next_data = kFirstData;
    std::deque<Carrier> sent;
    std::vector<Carrier> expected;
    std::list<Operation*> receives;   // posted; nothing has arrived for them
    std::list<Arrival> arrived;       // nobody has asked for them
    std::list<Operation*> with_gloo;  // pending, and gloo knows their bytes
    bool has_read = false;            // all that was sent to it before this rank began to leave
    std::thread listener;
    bool gone() const { return !why_gone.empty(); }
    bool open() const { return !gone() && ending.empty(); }
  };

  void say_farewell();
  void announce(Peer& peer, const Announcement& announcement, std::span<const std::byte> bytes);
  void try_to_announce(Peer& peer, const Announcement& announcement);
  void listen(Peer& peer);
  // Whether there may be more.
  bool take_announcement(Peer& peer, Carrier& carrier);
  void take_message(Peer& peer, const Announcement& announcement, std::span<const std::byte> bytes);
  void deliver(Operation& operation, const Announcement& announcement, std::span<const std::byte> bytes);
  void hand_to_gloo(Operation& operation, std::span<std::byte> bytes, uint64_t slot);
  void look_again(Operation& operation, std::unique_lock<std::mutex>& lock, milliseconds slice);
  void finish(Operation& operation, MessageState state);
  void end(Peer& peer, const std::string& why);
  void lose(Peer& peer, const std::string& why);

  std::vector<std::unique_ptr<Peer>> peers_;
  mutable std::mutex mutex_;  // of everything but waits in gloo's buffers
  std::condition_variable changed_;
  bool gave_up_ = false;  // although no peer was gone
  bool leaving_ = false;
  std::unique_ptr<GlooMesh> mesh_;  // destroyed before the buffers
};

class GlooMessage final : public PendingMessage {
 public:
  explicit GlooMessage(GlooTransport& transport) : transport_(transport) {}
  ~GlooMessage() override { transport_.cancel(operation); }
  MessageState wait(milliseconds slice) override { return transport_.wait(operation, slice); }

  Operation operation;

 private:
  GlooTransport& transport_;
};

GlooTransport::GlooTransport(std::unique_ptr<GlooMesh> mesh, const std::vector<std::string>& problems)
    : peers_(problems.size()), mesh_(std::move(mesh)) {
  const NoPipeSignal no_signal;  // for the threads
  for (size_t i = 0; i < peers_.size(); ++i) {
    peers_[i] = std::make_unique<Peer>();
    Peer& peer = *peers_[i];
    peer.rank = static_cast<int>(i);
    peer.why_gone = problems[i];
    if (peer.rank == mesh_->rank() || peer.gone()) continue;
    for (int k = 0; k < kExpected; ++k) {
      std::vector<std::byte> memory(sizeof(Announcement) + kShortBytes);
      auto buffer = mesh_->buffer(memory);
      peer.expected.push_back({std::move(memory), std::move(buffer)});
    }
    try {
      for (Carrier& carrier : peer.expected) carrier.buffer->receive(mesh_->connection(peer.rank), kAnnouncements);
    } catch (const std::exception& error) {
      peer.ending = said_by_gloo(error);
    }
    peer.listener = std::thread([this, &peer] { listen(peer); });
  }
}

GlooTransport::~GlooTransport() {
  say_farewell();
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    for (const auto& peer : peers_)
      for (Carrier& carrier : peer->expected) carrier.buffer->interrupt();
  }
  for (const auto& peer : peers_)
    if (peer->listener.joinable()) peer->listener.join();
  mesh_.reset();
}

// If something arrives at a closed connection, the system drops what it has not sent over it yet. So a rank closes its
// connections when the others say that they have read everything.
void GlooTransport::say_farewell() {
  std::unique_lock lock(mutex_);
  const auto listens = [&](const Peer& peer) { return peer.rank != rank() && peer.open(); };
  for (const auto& peer : peers_)
    if (listens(*peer)) try_to_announce(*peer, {.slot = kLeaving});
  changed_.wait_until(lock, Clock::now() + kFarewell, [&] {
    return std::none_of(peers_.begin(), peers_.end(), [&](const auto& peer) { return listens(*peer) && !peer->has_read; });
  });
}

std::unique_ptr<PendingMessage> GlooTransport::send(int to, uint64_t tag, std::span<const std::byte> bytes) {
  auto message = std::make_unique<GlooMessage>(*this);
  const std::lock_guard lock(mutex_);
  Operation& operation = message->operation;
  operation.peer = to;
  Peer& peer = *peers_.at(to);
  if (peer.gone()) {
    operation.state = MessageState::PeerGone;
    return message;
  }
  operation.failed = !peer.open();
  if (operation.failed) return message;
  try {
    const bool is_short = bytes.size() <= kShortBytes;
    const uint64_t slot = is_short ? kBytesFollow : peer.next_data++;
    announce(peer, {.tag = tag, .bytes = bytes.size(), .slot = slot}, is_short ? bytes : std::span<const std::byte>());
    if (is_short)
      operation.state = MessageState::Complete;
    else
      hand_to_gloo(operation, {const_cast<std::byte*>(bytes.data()), bytes.size()}, slot);
  } catch (const std::exception& error) {
    operation.failed = true;
    end(peer, said_by_gloo(error));
  }
  return message;
}

std::unique_ptr<PendingMessage> GlooTransport::receive(int from, uint64_t tag, std::span<std::byte> bytes) {
  auto message = std::make_unique<GlooMessage>(*this);
  const std::lock_guard lock(mutex_);
  Operation& operation = message->operation;
  operation.peer = from;
  operation.is_receive = true;
  operation.tag = tag;
  operation.bytes = bytes;
  Peer& peer = *peers_.at(from);
  const auto arrival = std::find_if(peer.arrived.begin(), peer.arrived.end(),
                                    [&](const Arrival& known) { return known.announcement.tag == tag; });
  if (arrival != peer.arrived.end()) {
    deliver(operation, arrival->announcement, arrival->bytes);
    peer.arrived.erase(arrival);
  } else if (peer.gone()) {
    operation.state = MessageState::PeerGone;
  } else {
    peer.receives.push_back(&operation);
  }
  return message;
}

void GlooTransport::announce(Peer& peer, const Announcement& announcement, std::span<const std::byte> bytes) {
  while (peer.sent.size() >= kFewSent && peer.sent.front().buffer->look() == GlooBuffer::State::Complete) peer.sent.pop_front();
  Carrier& carrier = peer.sent.emplace_back();
  carrier.memory.resize(sizeof announcement + bytes.size());
  std::memcpy(carrier.memory.data(), &announcement, sizeof announcement);
  std::copy(bytes.begin(), bytes.end(), carrier.memory.begin() + sizeof announcement);
  carrier.buffer = mesh_->buffer(carrier.memory);
  carrier.buffer->send(mesh_->connection(peer.rank), kAnnouncements);
}

void GlooTransport::try_to_announce(Peer& peer, const Announcement& announcement) {
  try {
    announce(peer, announcement, {});
  } catch (const std::exception& error) {
    end(peer, said_by_gloo(error));
  }
}

// gloo has taken what it has to send, and what it has received is in `operation.bytes`, only when its buffer says so.
void GlooTransport::hand_to_gloo(Operation& operation, std::span<std::byte> bytes, uint64_t slot) {
  operation.buffer = mesh_->buffer(bytes);
  peers_[operation.peer]->with_gloo.push_back(&operation);
  ::gloo::transport::Pair& connection = mesh_->connection(operation.peer);
  if (operation.is_receive)
    operation.buffer->receive(connection, slot);
  else
    operation.buffer->send(connection, slot);
}

// The thread that waits for a rank's announcements. gloo tells of a connection that has ended only whoever waits for a message
// that has not begun, so this thread is also the one that hears of it; announcements that had arrived before are read first.
void GlooTransport::listen(Peer& peer) {
  for (size_t next = 0;; next = (next + 1) % peer.expected.size()) {
    Carrier& carrier = peer.expected[next];
    GlooBuffer::State state = GlooBuffer::State::Pending;
    while (state != GlooBuffer::State::Complete) {
      state = carrier.buffer->wait(kForLong);
      const std::lock_guard lock(mutex_);
      if (leaving_ || peer.gone()) return;
      if (state == GlooBuffer::State::Complete) break;
      if (!peer.ending.empty() && state != GlooBuffer::State::Failed) state = carrier.buffer->look();
      if (state == GlooBuffer::State::Failed || (state != GlooBuffer::State::Complete && !peer.ending.empty()))
        return lose(peer, "its connection ended: " + (peer.ending.empty() ? carrier.buffer->why_failed() : peer.ending));
    }
    const std::lock_guard lock(mutex_);
    if (leaving_ || peer.gone()) return;
    if (!take_announcement(peer, carrier)) return;
  }
}

bool GlooTransport::take_announcement(Peer& peer, Carrier& carrier) {
  Announcement announcement;
  std::memcpy(&announcement, carrier.memory.data(), sizeof announcement);
  if (announcement.slot == kBytesFollow && announcement.bytes > kShortBytes) {
    lose(peer, "its connection ended: it sends what this rank does not understand");
    return false;
  }
  if (announcement.slot == kLeaving) {
    if (peer.open()) try_to_announce(peer, {.slot = kHasRead});
    return true;  // it sends nothing more but that it has read
  }
  if (announcement.slot == kHasRead)
    peer.has_read = true;
  else
    take_message(peer, announcement,
                 {carrier.memory.data() + sizeof announcement, announcement.slot == kBytesFollow ? announcement.bytes : 0});
  changed_.notify_all();
  try {
    carrier.buffer->receive(mesh_->connection(peer.rank), kAnnouncements);
  } catch (const std::exception& error) {
    end(peer, said_by_gloo(error));
  }
  return true;
}

void GlooTransport::take_message(Peer& peer, const Announcement& announcement, std::span<const std::byte> bytes) {
  const auto posted = std::find_if(peer.receives.begin(), peer.receives.end(),
                                   [&](const Operation* known) { return known->tag == announcement.tag; });
  if (posted == peer.receives.end()) {
    peer.arrived.push_back({announcement, {bytes.begin(), bytes.end()}});
    return;
  }
  Operation& operation = **posted;
  peer.receives.erase(posted);
  deliver(operation, announcement, bytes);
}

void GlooTransport::deliver(Operation& operation, const Announcement& announcement, std::span<const std::byte> bytes) {
  Peer& peer = *peers_[operation.peer];
  operation.wrong_size = announcement.bytes != operation.bytes.size();
  if (operation.wrong_size || announcement.slot == kBytesFollow) {
    if (!operation.wrong_size) std::copy(bytes.begin(), bytes.end(), operation.bytes.begin());
    operation.state = MessageState::Complete;
  } else if (peer.gone()) {
    operation.state = MessageState::PeerGone;
  } else if (!peer.open()) {
    operation.failed = true;
  } else {
    try {
      hand_to_gloo(operation, operation.bytes, announcement.slot);
    } catch (const std::exception& error) {
      operation.failed = true;
      end(peer, said_by_gloo(error));
    }
  }
}

MessageState GlooTransport::wait(Operation& operation, milliseconds slice) {
  std::unique_lock lock(mutex_);
  const auto until = Clock::now() + slice;
  for (bool looked = false; operation.state == MessageState::Pending && !(looked && Clock::now() >= until); looked = true)
    look_again(operation, lock, std::max(milliseconds(0), std::chrono::ceil<milliseconds>(until - Clock::now())));
  if (operation.wrong_size)
    throw std::logic_error(fmt::format("comm: rank {} sent a message of another size than this rank's receive of {} bytes",
                                       operation.peer, operation.bytes.size()));
  return operation.state;
}

// Waits for a change. One thread waits in gloo's buffer, others wait for that thread.
void GlooTransport::look_again(Operation& operation, std::unique_lock<std::mutex>& lock, milliseconds slice) {
  const bool gone = peers_[operation.peer]->gone();
  if (gone && operation.failed) return finish(operation, MessageState::PeerGone);
  if (!operation.buffer || operation.failed || operation.waited_for) {
    changed_.wait_for(lock, slice);
    return;
  }
  operation.waited_for = true;
  lock.unlock();
  const GlooBuffer::State state = gone ? operation.buffer->look() : operation.buffer->wait(slice);
  lock.lock();
  operation.waited_for = false;
  if (state == GlooBuffer::State::Complete) return finish(operation, MessageState::Complete);
  if (gone) return finish(operation, MessageState::PeerGone);
  operation.failed = state == GlooBuffer::State::Failed;
  changed_.notify_all();
}

void GlooTransport::finish(Operation& operation, MessageState state) {
  operation.state = state;
  peers_[operation.peer]->with_gloo.remove(&operation);
  changed_.notify_all();
}

// gloo cannot take back a message that it knows. Only closed connections make sure that it does not access the bytes any more;
// all of them, so that the others hear of it.
void GlooTransport::cancel(Operation& operation) {
  std::unique_lock lock(mutex_);
  Peer& peer = *peers_[operation.peer];
  peer.receives.remove(&operation);
  if (operation.state != MessageState::Pending || !operation.buffer) return;
  if (!peer.gone() && operation.buffer->look() != GlooBuffer::State::Complete) {
    gave_up_ = true;
    for (const auto& other : peers_)
      if (other->rank != rank())
        lose(*other, "its connection ended: this rank has cancelled a message of which a part was on its way");
  }
  peer.with_gloo.remove(&operation);
}

// The connection cannot be used any more; the listener finds out whether something has arrived over it.
void GlooTransport::end(Peer& peer, const std::string& why) {
  if (peer.ending.empty()) peer.ending = why;
  mesh_->close(peer.rank);
  for (Carrier& carrier : peer.expected) carrier.buffer->interrupt();
}

void GlooTransport::lose(Peer& peer, const std::string& why) {
  if (peer.gone()) return;
  peer.why_gone = why;
  mesh_->close(peer.rank);
  for (Operation* operation : peer.receives) operation->state = MessageState::PeerGone;
  peer.receives.clear();
  for (const Operation* operation : peer.with_gloo) operation->buffer->interrupt();
  for (Carrier& carrier : peer.expected) carrier.buffer->interrupt();
  changed_.notify_all();
}

bool GlooTransport::has_given_up() const {
  const std::lock_guard lock(mutex_);
  return gave_up_;
}

std::string GlooTransport::why_gone(int peer) const {
  const std::lock_guard lock(mutex_);
  return peers_.at(peer)->why_gone;
}

class GlooBeforeConnecting final : public UnconnectedTransport {
 public:
  GlooBeforeConnecting(const NetworkInterface& interface, int rank, int size)
      : mesh_(std::make_unique<GlooMesh>(interface, rank, size)) {}
  const std::string& address() const override { return mesh_->address(); }
  std::unique_ptr<Transport> connect(std::vector<std::string> addresses, uint64_t key) override {
    const std::vector<std::string> problems = mesh_->connect(addresses, key);
    return std::make_unique<GlooTransport>(std::move(mesh_), problems);
  }

 private:
  std::unique_ptr<GlooMesh> mesh_;
};

}  // namespace

std::unique_ptr<UnconnectedTransport> open_gloo(const NetworkInterface& interface, int rank, int size) {
  return std::make_unique<GlooBeforeConnecting>(interface, rank, size);
}

std::string gloo_version() { return fmt::format("gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH); }

}  // namespace trivet::comm
