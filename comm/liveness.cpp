#include "comm/liveness.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>

#include "comm/process_state.h"
#include "comm/wire_messages.h"
#include "core/log.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFarewell{1000};  // how long a closing rank waits for the others' last messages
constexpr milliseconds kTelling{200};

// Heartbeats must get through however many threads compute. This needs a privilege; without it, only the long deadline for
// silence helps.
void raise_own_priority() { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), -10); }

std::string where(const std::vector<Member>& members, int rank) {
  return rank >= 0 && rank < static_cast<int>(members.size()) ? members[rank].where() : "unknown";
}

}  // namespace

// Interrupts poll. Shared with the JobState, which may live longer.
class Liveness::Wake {
 public:
  Wake() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  int number() const { return event_.number(); }
  void ring() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(event_.number(), &one, sizeof one);
  }
  void silence() const {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(event_.number(), &count, sizeof count);
  }

 private:
  Descriptor event_;
};

Liveness::Liveness(Joined joined, int rank, LivenessOptions options, std::shared_ptr<JobState> job)
    : rank_(rank),
      options_(std::move(options)),
      members_(std::move(joined.members)),
      job_(std::move(job)),
      admission_(std::move(joined.admission)),
      wake_(std::make_shared<Wake>()),
      store_([this](const std::string& key, const std::string& value) {
        post(encode_set({key, value}));
      }) {
  const TimePoint now = steady_clock::now();
  for (size_t i = 0; i < joined.connections.size(); ++i) {
    if (joined.connections[i]) peers_.push_back({static_cast<int>(i), std::move(joined.connections[i]), now});
  }
  next_beat_ = now;
  if (rank_ != 0) job_->heard_rank_zero();
  job_->subscribe([wake = wake_](const Accusation&) { wake->ring(); });
  thread_ = std::thread([this] { run(); });
}

Liveness::~Liveness() { stop(); }

void Liveness::stop() {
  stopping_ = true;
  wake_->ring();
  if (thread_.joinable()) thread_.join();
}

void Liveness::meet(const std::string& name, milliseconds deadline) {
  const auto key = [&](int rank) { return fmt::format("meet/{}/{}", name, rank); };
  std::vector<std::string> keys;
  for (const Member& member : members_) keys.push_back(key(member.rank));
  store_.set(key(rank_), "");
  if (store_.wait_for(keys, deadline).empty()) return;
  if (const auto accusation = job_->accusation()) throw CommError(accusation->code, lost_message(*accusation, name));
  std::vector<int> missing;
  for (const Member& member : members_) {
    if (!store_.get(key(member.rank), milliseconds(0))) missing.push_back(member.rank);
  }
  const bool one = missing.size() == 1;
  throw CommError(ExitCode::NoProgress,
                  fmt::format("{} {} {} alive but {} not reached \"{}\" within {:.3g} s: computing or stuck",
                              one ? "rank" : "ranks", fmt::join(missing, ","), one ? "is" : "are", one ? "has" : "have", name,
                              static_cast<double>(deadline.count()) / 1000));
}

void Liveness::close(milliseconds deadline) {
  if (left_.exchange(true)) return;
  meet("close", deadline);
  closing_ = true;
  stop();
}

void Liveness::accuse(Accusation accusation) noexcept {
  job_->accuse(std::move(accusation));
  const TimePoint deadline = steady_clock::now() + kTelling;
  while (!told_ && steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
}

void Liveness::run() {
  raise_own_priority();
  while (!stopping_) {
    wait_for_news(next_beat_);
    const TimePoint now = steady_clock::now();
    forgive_own_lateness(next_beat_, now);
    take_outbox();
    for (Peer& peer : peers_) read(peer, now);
    turn_away_latecomers();
    look_for_silence(now);
    look_for_stopped(now);
    announce_accusation();
    beat(now);
    for (Peer& peer : peers_) peer.connection.flush();
    if (announced_ && std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.connection.has_unsent(); }))
      told_ = true;
    call_on_lost(now);
  }
  finish();
}

void Liveness::wait_for_news(TimePoint until) {
  std::vector<pollfd> entries{{wake_->number(), POLLIN, 0}};
  for (const Peer& peer : peers_) {
    if (!peer.connection) continue;
    const bool unsent = peer.connection.has_unsent();
    entries.push_back({peer.connection.number(), static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN), 0});
  }
  if (admission_) admission_->add_to(entries);
  const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
  ::poll(entries.data(), entries.size(), static_cast<int>(std::max<int64_t>(0, left.count())));
  wake_->silence();
}

// A monitor that got no processor time, or was stopped, must not blame the others for its own absence.
void Liveness::forgive_own_lateness(TimePoint planned, TimePoint now) {
  const auto late = now - planned;
  if (late < options_.beat) return;
  for (Peer& peer : peers_) peer.last_heard += late;
}

void Liveness::read(Peer& peer, TimePoint now) {
  if (!peer.connection) return;
  const Connection::State state = peer.connection.fill();
  try {
    while (const auto frame = peer.connection.next()) {
      peer.last_heard = std::max(peer.last_heard, now);
      if (peer.rank == 0) job_->heard_rank_zero();
      handle(peer, *frame);
    }
  } catch (const CommError& error) {  // it sent something wrong, so nothing more from it is trusted
    job_->accuse({peer.rank, where(members_, peer.rank), error.exit_code(), error.what()});
    peer.connection.reset();
    return;
  }
  if (state == Connection::State::Open) return;
  peer.connection.reset();
  if (!peer.said_bye) lose(peer, state == Connection::State::Ended ? "eof" : "reset");
}

void Liveness::handle(Peer& peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::Heartbeat: return;
    case FrameKind::Bye:
      // A rank sends Bye only after all ranks, including this one, have met in close().
      if (!left_) throw CommError(ExitCode::Rendezvous, "sent a Bye while the job is running");
      peer.said_bye = true;
      return;
    case FrameKind::Set: {
      const StoreEntry entry = decode_set(frame.payload);
      if (store_.apply(entry.key, entry.value)) send_to_others(frame, &peer);
      return;
    }
    case FrameKind::Accuse: {
      Accusation accusation = decode_accuse(frame.payload, static_cast<int>(members_.size()));
      accusation.host = where(members_, accusation.world_rank);
      job_->accuse(std::move(accusation));
      return;
    }
    case FrameKind::Join:
    case FrameKind::Table:
    case FrameKind::Refuse:
    case FrameKind::Welcome: break;
  }
  throw CommError(ExitCode::Rendezvous, fmt::format("sent {} after all ranks had joined", to_string(frame.kind)));
}

void Liveness::lose(const Peer& peer, const std::string& cause) {
  job_->accuse({peer.rank, where(members_, peer.rank), ExitCode::PeerLost, cause});
}

void Liveness::turn_away_latecomers() {
  if (!admission_) return;
  const std::vector<std::optional<Member>> held(members_.begin(), members_.end());
  for (auto& request : admission_->step()) {
    if (const auto refusal = refusal_of(request.member, held)) {
      refuse(request.connection, *refusal);
      Log(rank_).warning(fmt::format("rendezvous: pid {} was refused: {}", request.member.pid, refusal->reason));
    }
  }
}

void Liveness::send_to_others(const Frame& frame, const Peer* except) {
  for (Peer& peer : peers_) {
    if (peer.connection && &peer != except) peer.connection.send(frame);
  }
}

void Liveness::announce_accusation() {
  if (announced_) return;
  const auto accusation = job_->accusation();
  if (!accusation) return;
  announced_ = true;
  accused_at_ = steady_clock::now();
  store_.interrupt();
  send_to_others(encode_accuse(*accusation), nullptr);
}

void Liveness::beat(TimePoint now) {
  if (now < next_beat_) return;
  next_beat_ = now + options_.beat;
  send_to_others({FrameKind::Heartbeat, {}}, nullptr);
}

void Liveness::look_for_silence(TimePoint now) {
  for (const Peer& peer : peers_) {
    if (peer.connection && !peer.said_bye && now - peer.last_heard > options_.silence) lose(peer, "silent");
  }
}

void Liveness::look_for_stopped(TimePoint now) {
  if (now < next_beat_) return;
  for (Peer& peer : peers_) {
    const Member& member = members_[peer.rank];
    if (!peer.connection || peer.said_bye || !same_host(member, members_[rank_])) continue;
    if (peer.stopped.look(is_stopped(member.pid, member.started), now)) lose(peer, "stopped (SIGSTOP or Ctrl-Z)");
  }
}

void Liveness::call_on_lost(TimePoint now) {
  if (!announced_ || noticed_ || now - accused_at_ < options_.notice_grace) return;
  noticed_ = true;
  if (options_.on_lost) options_.on_lost(*job_->accusation());
}

// Sends the last messages: Bye after a close(), or the accusation that makes this rank leave.
void Liveness::finish() {
  take_outbox();
  announce_accusation();
  if (closing_) send_to_others({FrameKind::Bye, {}}, nullptr);
  const TimePoint deadline = steady_clock::now() + (closing_ ? kFarewell : kTelling);
  for (Peer& peer : peers_) {
    if (!peer.connection) continue;
    flush_until(peer.connection, deadline);
    peer.connection.finish_sending();
  }
  if (!closing_) return;
  for (Peer& peer : peers_) read_last_words(peer, deadline);
}

// Closing a connection that has unread data resets it, and a reset may overtake this rank's last messages.
void Liveness::read_last_words(Peer& peer, TimePoint deadline) {
  try {
    while (peer.connection && peer.connection.fill() == Connection::State::Open &&
           wait_readable(peer.connection.number(), deadline)) {
      while (peer.connection.next()) {
      }
    }
  } catch (const CommError&) {
    peer.connection.reset();  // not a message; the job is over, so this rank needs to hear nothing more
  }
}

void Liveness::post(Frame frame) {
  {
    std::lock_guard lock(outbox_mutex_);
    outbox_.push_back(std::move(frame));
  }
  wake_->ring();
}

void Liveness::take_outbox() {
  std::lock_guard lock(outbox_mutex_);
  for (const Frame& frame : outbox_) send_to_others(frame, nullptr);
  outbox_.clear();
}

std::string lost_message(const Accusation& accusation, const std::string& during) {
  return fmt::format("lost rank {} (host {}){}: {}", accusation.world_rank, accusation.host,
                     during.empty() ? "" : " during " + during, escape_control(accusation.cause));
}

}  // namespace trivet::comm
