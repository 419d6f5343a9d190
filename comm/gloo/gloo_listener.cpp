#include <algorithm>
#include <cstring>

#include "comm/gloo/gloo_peers.h"

namespace trivet::comm {
namespace {

constexpr std::chrono::milliseconds kForLong{60000};  // until a thread that nobody interrupts looks again

}  // namespace

// The thread that waits for a rank's announcements. gloo tells of a connection that has ended only whoever waits for a message
// that has not begun, so this thread is also the one that hears of it; announcements that had arrived before are read first.
void GlooTransport::listen(GlooPeer& peer) {
  for (size_t next = 0;; next = (next + 1) % peer.expected.size()) {
    GlooCarrier& carrier = peer.expected[next];
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

bool GlooTransport::take_announcement(GlooPeer& peer, GlooCarrier& carrier) {
  GlooAnnouncement announcement;
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

void GlooTransport::take_message(GlooPeer& peer, const GlooAnnouncement& announcement, std::span<const std::byte> bytes) {
  const auto posted = std::find_if(peer.receives.begin(), peer.receives.end(),
                                   [&](const GlooOperation* known) { return known->tag == announcement.tag; });
  if (posted == peer.receives.end()) {
    peer.arrived.push_back({announcement, {bytes.begin(), bytes.end()}});
    return;
  }
  GlooOperation& operation = **posted;
  peer.receives.erase(posted);
  deliver(operation, announcement, bytes);
}

}  // namespace trivet::comm
