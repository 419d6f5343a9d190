#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "comm/gloo/gloo_peers.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kFewSent = 16;  // announcements that are kept without asking whether gloo still needs them

class GlooMessage final : public PendingMessage {
 public:
  explicit GlooMessage(GlooTransport& transport) : transport_(transport) {}
  ~GlooMessage() override { transport_.cancel(operation); }
  MessageState wait(milliseconds slice) override { return transport_.wait(operation, slice); }

  GlooOperation operation;

 private:
  GlooTransport& transport_;
};

}  // namespace

std::unique_ptr<PendingMessage> GlooTransport::send(int to, uint64_t tag, std::span<const std::byte> bytes) {
  auto message = std::make_unique<GlooMessage>(*this);
  const std::lock_guard lock(mutex_);
  GlooOperation& operation = message->operation;
  operation.peer = to;
  GlooPeer& peer = *peers_.at(to);
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
  GlooOperation& operation = message->operation;
  operation.peer = from;
  operation.is_receive = true;
  operation.tag = tag;
  operation.bytes = bytes;
  GlooPeer& peer = *peers_.at(from);
  const auto arrival = std::find_if(peer.arrived.begin(), peer.arrived.end(),
                                    [&](const GlooArrival& known) { return known.announcement.tag == tag; });
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

void GlooTransport::announce(GlooPeer& peer, const GlooAnnouncement& announcement, std::span<const std::byte> bytes) {
  while (peer.sent.size() >= kFewSent && peer.sent.front().buffer->look() == GlooBuffer::State::Complete) peer.sent.pop_front();
  GlooCarrier& carrier = peer.sent.emplace_back();
  carrier.memory.resize(sizeof announcement + bytes.size());
  std::memcpy(carrier.memory.data(), &announcement, sizeof announcement);
  std::copy(bytes.begin(), bytes.end(), carrier.memory.begin() + sizeof announcement);
  carrier.buffer = mesh_->buffer(carrier.memory);
  carrier.buffer->send(mesh_->connection(peer.rank), kAnnouncements);
}

void GlooTransport::try_to_announce(GlooPeer& peer, const GlooAnnouncement& announcement) {
  try {
    announce(peer, announcement, {});
  } catch (const std::exception& error) {
    end(peer, said_by_gloo(error));
  }
}

// gloo has taken what it has to send, and what it has received is in `operation.bytes`, only when its buffer says so.
void GlooTransport::hand_to_gloo(GlooOperation& operation, std::span<std::byte> bytes, uint64_t slot) {
  operation.buffer = mesh_->buffer(bytes);
  peers_[operation.peer]->with_gloo.push_back(&operation);
  ::gloo::transport::Pair& connection = mesh_->connection(operation.peer);
  if (operation.is_receive)
    operation.buffer->receive(connection, slot);
  else
    operation.buffer->send(connection, slot);
}

void GlooTransport::deliver(GlooOperation& operation, const GlooAnnouncement& announcement, std::span<const std::byte> bytes) {
  GlooPeer& peer = *peers_[operation.peer];
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

MessageState GlooTransport::wait(GlooOperation& operation, milliseconds slice) {
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
void GlooTransport::look_again(GlooOperation& operation, std::unique_lock<std::mutex>& lock, milliseconds slice) {
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

void GlooTransport::finish(GlooOperation& operation, MessageState state) {
  operation.state = state;
  peers_[operation.peer]->with_gloo.remove(&operation);
  changed_.notify_all();
}

// gloo cannot take back a message that it knows. Only closed connections make sure that it does not access the bytes any more;
// all of them, so that the others hear of it.
void GlooTransport::cancel(GlooOperation& operation) {
  std::unique_lock lock(mutex_);
  GlooPeer& peer = *peers_[operation.peer];
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

}  // namespace trivet::comm
