#include "comm/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "comm/wire_messages.h"

namespace trivet::comm {
namespace {

constexpr int kMaxAcceptedAtOnce = 64;  // the accepted ones are then served before more are accepted
constexpr int kMaxComplaints = 10;
constexpr std::chrono::milliseconds kPause{100};

}  // namespace

Admission::Admission(Descriptor listener, Secret secret, Options options)
    : listener_(std::move(listener)), secret_(std::move(secret)), options_(options) {}

void Admission::add_to(std::vector<pollfd>& entries) const {
  if (std::chrono::steady_clock::now() >= accepts_again_) entries.push_back({listener_.number(), POLLIN, 0});
  for (const Visitor& visitor : visitors_) {
    entries.push_back({visitor.connection ? visitor.connection.number() : visitor.unproven.number(), POLLIN, 0});
  }
}

std::vector<Admission::Request> Admission::step() {
  const TimePoint now = std::chrono::steady_clock::now();
  accept_visitors(now);
  std::vector<Request> requests;
  for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
    visitor = advance(*visitor, now, requests) ? visitors_.erase(visitor) : std::next(visitor);
  }
  return requests;
}

void Admission::accept_visitors(TimePoint now) {
  if (now < accepts_again_) return;
  for (int accepted = 0; accepted < kMaxAcceptedAtOnce; ++accepted) {
    auto connection = accept_from(listener_);
    if (!connection) {
      if (errno != EMFILE && errno != ENFILE) return;
      // The visitor still waits, so poll would return at once, again and again.
      accepts_again_ = now + kPause;
      if (!visitors_.empty()) make_room();
      return;
    }
    if (visitors_.size() >= options_.most_visitors) make_room();
    visitors_.push_back({std::move(*connection), {}, Doorkeeper(now + kProofDeadline), now + 2 * kProofDeadline});
  }
}

// Drops the oldest visitor that has proven nothing or, if all have proven themselves, the oldest of all. An honest joiner that
// is dropped tries again (control/node_join.cpp).
void Admission::make_room() {
  const auto stranger =
      std::find_if(visitors_.begin(), visitors_.end(), [](const Visitor& visitor) { return !visitor.connection; });
  visitors_.erase(stranger != visitors_.end() ? stranger : visitors_.begin());
}

bool Admission::advance(Visitor& visitor, TimePoint now, std::vector<Request>& requests) {
  if (!visitor.connection) {
    const auto state = visitor.doorkeeper.step(visitor.unproven, secret_, now);
    if (state == Doorkeeper::State::Waiting) return false;
    if (state == Doorkeeper::State::Refused) {
      complain(visitor, visitor.doorkeeper.why());
      return true;
    }
    visitor.connection =
        Connection(std::move(visitor.unproven), visitor.doorkeeper.keys(), {.world_size = options_.world_size});
  }
  try {
    const auto state = visitor.connection.fill();
    if (auto frame = visitor.connection.next()) {
      control::Message message = control::decode(*frame, options_.world_size);
      if (frame->kind != FrameKind::Join && frame->kind != FrameKind::Attach)
        throw CommError(ExitCode::Rendezvous, "did not ask to join but sent " + control::name_of(message));
      requests.push_back({std::move(visitor.connection), std::move(message)});
      return true;
    }
    if (state != Connection::State::Open || now >= visitor.deadline)
      throw CommError(ExitCode::Rendezvous, "left without asking to join");
  } catch (const CommError& error) {
    complain(visitor, error.what());
    return true;
  }
  return false;
}

void Admission::complain(const Visitor& visitor, const std::string& why) {
  if (++complaints_ > kMaxComplaints) return;
  const std::string peer = visitor.connection ? visitor.connection.peer() : peer_of(visitor.unproven);
  options_.log.warning(fmt::format("rendezvous: peer {} {}; refused{}", peer, escape_control(why),
                                   complaints_ == kMaxComplaints ? " (further refusals are not reported)" : ""));
}

}  // namespace trivet::comm
