#include "comm/gloo/gloo_transport.h"

#include <fmt/format.h>
#include <gloo/config.h>

#include <algorithm>
#include <utility>

#include "comm/gloo/gloo_peers.h"
#include "core/pipe_signal.h"

namespace trivet::comm {
namespace {

constexpr std::chrono::milliseconds kFarewell{300};  // time that a leaving rank gives others to read what it sent
constexpr int kExpected = 4;  // announcements of a rank that can arrive before the first of them was read

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

GlooTransport::GlooTransport(std::unique_ptr<GlooMesh> mesh, const std::vector<std::string>& problems)
    : peers_(problems.size()), mesh_(std::move(mesh)) {
  const NoPipeSignal no_signal;  // for the threads
  for (size_t i = 0; i < peers_.size(); ++i) {
    peers_[i] = std::make_unique<GlooPeer>();
    GlooPeer& peer = *peers_[i];
    peer.rank = static_cast<int>(i);
    peer.why_gone = problems[i];
    if (peer.rank == mesh_->rank() || peer.gone()) continue;
    for (int k = 0; k < kExpected; ++k) {
      std::vector<std::byte> memory(sizeof(GlooAnnouncement) + kShortBytes);
      auto buffer = mesh_->buffer(memory);
      peer.expected.push_back({std::move(memory), std::move(buffer)});
    }
    try {
      for (GlooCarrier& carrier : peer.expected) carrier.buffer->receive(mesh_->connection(peer.rank), kAnnouncements);
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
      for (GlooCarrier& carrier : peer->expected) carrier.buffer->interrupt();
  }
  for (const auto& peer : peers_)
    if (peer->listener.joinable()) peer->listener.join();
  mesh_.reset();
}

// If something arrives at a closed connection, the system drops what it has not sent over it yet. So a rank closes its
// connections when the others say that they have read everything.
void GlooTransport::say_farewell() {
  std::unique_lock lock(mutex_);
  const auto listens = [&](const GlooPeer& peer) { return peer.rank != rank() && peer.open(); };
  for (const auto& peer : peers_)
    if (listens(*peer)) try_to_announce(*peer, {.slot = kLeaving});
  changed_.wait_until(lock, std::chrono::steady_clock::now() + kFarewell, [&] {
    return std::none_of(peers_.begin(), peers_.end(), [&](const auto& peer) { return listens(*peer) && !peer->has_read; });
  });
}

// The connection cannot be used any more; the listener finds out whether something has arrived over it.
void GlooTransport::end(GlooPeer& peer, const std::string& why) {
  if (peer.ending.empty()) peer.ending = why;
  mesh_->close(peer.rank);
  for (GlooCarrier& carrier : peer.expected) carrier.buffer->interrupt();
}

void GlooTransport::lose(GlooPeer& peer, const std::string& why) {
  if (peer.gone()) return;
  peer.why_gone = why;
  mesh_->close(peer.rank);
  for (GlooOperation* operation : peer.receives) operation->state = MessageState::PeerGone;
  peer.receives.clear();
  for (const GlooOperation* operation : peer.with_gloo) operation->buffer->interrupt();
  for (GlooCarrier& carrier : peer.expected) carrier.buffer->interrupt();
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

std::unique_ptr<UnconnectedTransport> open_gloo(const NetworkInterface& interface, int rank, int size) {
  return std::make_unique<GlooBeforeConnecting>(interface, rank, size);
}

std::string gloo_version() { return fmt::format("gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH); }

}  // namespace trivet::comm
