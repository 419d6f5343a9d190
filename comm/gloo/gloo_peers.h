// Holds what a rank knows of the others over gloo, and the transport that works with it; gloo_transport.h says how a message
// travels.
//
//   gloo_transport.cpp   the ends of connections: opening, leaving, losing a rank
//   gloo_messages.cpp    sends, receives, and waits for them
//   gloo_listener.cpp    what other ranks announce, each read by a thread of its own
//
// One mutex guards everything but the waits in gloo's buffers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/gloo/gloo_buffer.h"
#include "comm/gloo/gloo_mesh.h"
#include "comm/transport/transport.h"

namespace trivet::comm {

inline constexpr size_t kShortBytes = 8 << 10;  // size up to which an announcement contains its message
inline constexpr uint64_t kAnnouncements = GlooMesh::kFirstFreeSlot, kFirstData = kAnnouncements + 1;  // gloo's numbers

// Values of an announcement's slot if no data follows under a slot of its own.
inline constexpr uint64_t kBytesFollow = 0, kLeaving = 1, kHasRead = 2;

struct GlooAnnouncement {
  uint64_t tag = 0;
  uint64_t bytes = 0;
  uint64_t slot = 0;  // slot of the data, or kBytesFollow, kLeaving, kHasRead
};

// An announcement in memory of its own, on its way.
struct GlooCarrier {
  std::vector<std::byte> memory;
  std::unique_ptr<GlooBuffer> buffer;
};

// A message whose receive is not posted yet.
struct GlooArrival {
  GlooAnnouncement announcement;
  std::vector<std::byte> bytes;  // if it is short
};

// A message that this rank sends or receives.
struct GlooOperation {
  int peer = 0;
  bool is_receive = false;
  uint64_t tag = 0;
  std::span<std::byte> bytes;          // memory of a receive
  std::unique_ptr<GlooBuffer> buffer;  // once gloo knows the bytes
  MessageState state = MessageState::Pending;
  bool wrong_size = false;
  bool failed = false;      // gloo will not complete it
  bool waited_for = false;  // a thread waits in the buffer
};

// Another rank, and what is on its way between it and this one.
struct GlooPeer {
  int rank = 0;
  std::string why_gone;  // empty: it is not gone
  std::string ending;    // why the connection was closed; it is gone once the announcements that had arrived are read
  uint64_t next_data = kFirstData;
  std::deque<GlooCarrier> sent;
  std::vector<GlooCarrier> expected;
  std::list<GlooOperation*> receives;   // posted; nothing has arrived for them
  std::list<GlooArrival> arrived;       // nobody has asked for them
  std::list<GlooOperation*> with_gloo;  // pending, and gloo knows their bytes
  bool has_read = false;                // all that was sent to it before this rank began to leave
  std::thread listener;
  bool gone() const { return !why_gone.empty(); }
  bool open() const { return !gone() && ending.empty(); }
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

  MessageState wait(GlooOperation& operation, std::chrono::milliseconds slice);
  void cancel(GlooOperation& operation);

 private:
  void say_farewell();
  void announce(GlooPeer& peer, const GlooAnnouncement& announcement, std::span<const std::byte> bytes);
  void try_to_announce(GlooPeer& peer, const GlooAnnouncement& announcement);
  void listen(GlooPeer& peer);
  // Checks whether there may be more.
  bool take_announcement(GlooPeer& peer, GlooCarrier& carrier);
  void take_message(GlooPeer& peer, const GlooAnnouncement& announcement, std::span<const std::byte> bytes);
  void deliver(GlooOperation& operation, const GlooAnnouncement& announcement, std::span<const std::byte> bytes);
  void hand_to_gloo(GlooOperation& operation, std::span<std::byte> bytes, uint64_t slot);
  void look_again(GlooOperation& operation, std::unique_lock<std::mutex>& lock, std::chrono::milliseconds slice);
  void finish(GlooOperation& operation, MessageState state);
  void end(GlooPeer& peer, const std::string& why);
  void lose(GlooPeer& peer, const std::string& why);

  std::vector<std::unique_ptr<GlooPeer>> peers_;
  mutable std::mutex mutex_;  // guards everything but waits in gloo's buffers
  std::condition_variable changed_;
  bool gave_up_ = false;  // although no peer was gone
  bool leaving_ = false;
  std::unique_ptr<GlooMesh> mesh_;  // destroyed before the buffers
};

}  // namespace trivet::comm
