#include "comm/control/node.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/store.h"

namespace trivet::comm::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// An appeal may have to be sent again: TCP waits a second before it sends the first packet of a connection once more.
constexpr milliseconds kVerdictPatience{300}, kAppealPatience{1300};
constexpr LinkId kSelf = -1;
constexpr size_t kMostMeetings = 64;  // at a time

}  // namespace

void Node::receive(LinkId id, const Message& message, TimePoint now) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;  // this node has ended the connection
  found->second.last_heard = std::max(found->second.last_heard, now);
  try {
    std::visit([&](const auto& content) { on(id, found->second, content, now); }, message);
  } catch (const CommError& error) {
    reject(id, error, now);
  }
}

void Node::require(bool holds, const Message& message) const {
  if (holds) return;
  const char* when = std::holds_alternative<Bye>(message) ? "while the job is running"
                     : running()                          ? "after all ranks had joined"
                                                          : "before all ranks had joined";
  throw CommError(ExitCode::Rendezvous, fmt::format("sent {} {}", name_of(message), when));
}

void Node::require_rank(int rank, const Message& message) const {
  if (rank < 0 || rank >= options_.self.member.world_size)
    throw CommError(ExitCode::Rendezvous, fmt::format("sent {} of rank {}; it must be 0 to {}", name_of(message), rank,
                                                      options_.self.member.world_size - 1));
}

void Node::require_few_meetings(const Message& message) const {
  if (meetings_.open() > kMostMeetings || askers_.size() > kMostMeetings)
    throw CommError(ExitCode::Rendezvous,
                    fmt::format("sent {}; at most {} meetings at a time are accepted", name_of(message), kMostMeetings));
}

void Node::reject(LinkId id, const CommError& why, TimePoint now) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  const Link link = found->second;
  drop(id);
  if (link.role == Role::Visitor || link.role == Role::Orphan || link.said_bye) return;
  if (!running()) return reject_while_joining(link, why);
  Accusation accusation{link.rank, {}, why.exit_code(), why.what()};
  if (link.role == Role::Parent && link.rank == 0) return decide(accusation);
  if (link.role == Role::Parent) return appeal(accusation, now);
  propose(accusation, now);
}

void Node::ended(LinkId id, const std::string& cause, TimePoint now) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  const Link link = found->second;
  links_.erase(found);
  if (link.said_bye || failed_) return;
  if (running()) {
    lost(link, cause, now);
  } else {
    ended_while_joining(link, link.role == Role::Below ? "left during the rendezvous" : "closed the connection");
  }
}

void Node::lose(int rank, const std::string& cause, TimePoint now) {
  for (const auto& [id, link] : links_) {
    if (link.rank == rank && !link.said_bye && running()) return lost(Link(link), cause, now);
  }
}

void Node::lost(const Link& link, const std::string& cause, TimePoint now) {
  if (verdict_) return;
  const Accusation accusation{link.rank, {}, ExitCode::PeerLost, cause};
  switch (link.role) {
    case Role::Below:
    case Role::Moving: return propose(accusation, now);
    case Role::Parent:
      send_up(Accuse{accusation});  // if it was stopped and goes on later, it knows why those below it have left
      return link.rank == 0 ? decide(accusation) : appeal(accusation, now);
    case Role::Appeal: return decide(*appealed_);  // the root has left
    case Role::Visitor:
    case Role::Entrance:
    case Role::Orphan: return;
  }
}

void Node::accuse(const Accusation& accusation, TimePoint now) {
  if (running()) propose(accusation, now);
}

void Node::propose(const Accusation& accusation, TimePoint now) {
  if (verdict_ || left_) return;
  if (is_root()) return decide(accusation);
  if (proposed_ || appealed_) return;
  proposed_ = accusation;
  proposed_at_ = now;
  send_up(Accuse{accusation});
}

void Node::appeal(const Accusation& accusation, TimePoint now) {
  if (verdict_ || appealed_ || left_) return;
  appealed_ = accusation;
  appealed_at_ = now;
  call(Purpose::Appeal, options_.root);
}

void Node::decide(Accusation accusation) {
  if (verdict_ || left_) return;
  if (accusation.world_rank >= 0 && accusation.world_rank < table_->tree.size())
    accusation.host = table_->seats[accusation.world_rank].member.where();
  verdict_ = std::move(accusation);
  for (const auto& [id, link] : links_) {
    if (link.role == Role::Below || link.role == Role::Moving || link.role == Role::Orphan) send(id, Accuse{*verdict_});
  }
  actions_.events.emplace_back(Accuse{*verdict_});
}

void Node::on(LinkId, Link& link, const Accuse& accuse, TimePoint now) {
  const Accusation& accusation = accuse.accusation;
  require_rank(accusation.world_rank, accuse);
  if (running()) {
    if (link.role == Role::Parent || link.role == Role::Appeal) return decide(accusation);
    require(link.role == Role::Below || link.role == Role::Moving, accuse);
    return propose(accusation, now);
  }
  if (link.role == Role::Entrance || link.role == Role::Parent)
    return end_rendezvous({accusation.code, fmt::format("rank {}: {}", accusation.world_rank, accusation.cause)});
  require(is_root() && link.role == Role::Below, accuse);
  if (!gathering_->has(accusation.world_rank)) return;
  end_rendezvous({accusation.code, fmt::format("rank {} ({}) {}", accusation.world_rank,
                                               gathering_->where(accusation.world_rank), accusation.cause)});
}

void Node::on(LinkId, Link& link, const Heartbeat& heartbeat, TimePoint now) {
  require(running() && (link.role == Role::Parent || link.role == Role::Below), heartbeat);
  if (link.role == Role::Parent) root_heard_ = std::max(root_heard_, now - heartbeat.since_root);
}

void Node::on(LinkId, Link& link, const Bye& bye, TimePoint) {
  require(last_meeting_over_ || verdict_ || link.role == Role::Moving, bye);
  link.said_bye = true;
}

void Node::on(LinkId id, Link& link, const Set& set, TimePoint) {
  require(running() && (link.role == Role::Parent || link.role == Role::Below), set);
  if (!apply(set.key, set.value)) return;
  send_below(set, id);
  if (link.role != Role::Parent) send_up(set);
  actions_.events.emplace_back(set);
}

void Node::set(const std::string& key, const std::string& value) {
  if (!apply(key, value)) return;
  send_below(Set{key, value});
  send_up(Set{key, value});
}

// False if the key was known.
bool Node::apply(const std::string& key, const std::string& value) {
  const auto [known, is_new] = store_.emplace(key, value);
  if (!is_new && known->second != value) {
    throw CommError(ExitCode::RanksDisagree,
                    fmt::format("store: ranks disagree on \"{}\": \"{}\" and \"{}\"", key, known->second, value));
  }
  if (is_new) store_bytes_ += key.size() + value.size();
  if (store_bytes_ > Store::kMaxBytes)
    throw CommError(ExitCode::Rendezvous, fmt::format("sent more than {} MiB of keys for the store", Store::kMaxBytes >> 20));
  return is_new;
}

void Node::arrive(const std::string& meeting, TimePoint) {
  if (!running() || !meetings_.arrive(meeting, {rank()})) return;
  tell_arrivals(true);
}

void Node::on(LinkId id, Link& link, const Arrive& arrive, TimePoint now) {
  require(running() && link.role == Role::Below, arrive);
  for (int rank : arrive.ranks) {
    if (rank < 0 || rank >= table_->tree.size() || !table_->tree.is_below(rank, link.rank))
      return reject(id, fmt::format("sent an Arrive of rank {}, which is not below it", rank), now);
  }
  if (!meetings_.arrive(arrive.meeting, arrive.ranks)) return reject(id, "sent an Arrive twice", now);
  require_few_meetings(arrive);
  tell_arrivals(true);
}

void Node::tell_arrivals(bool only_complete) {
  for (Arrive& arrivals : meetings_.take_untold(only_complete)) {
    if (!is_root()) {
      send_up(std::move(arrivals));
    } else if (meetings_.complete(arrivals.meeting)) {
      end_meeting(arrivals.meeting);
    }
  }
}

void Node::on(LinkId, Link& link, const Met& met, TimePoint) {
  require(running() && link.role == Role::Parent, met);
  end_meeting(met.meeting);
}

void Node::end_meeting(const std::string& meeting) {
  if (meeting == kLastMeeting) last_meeting_over_ = true;
  meetings_.end(meeting);
  askers_.erase(meeting);
  send_below(Met{meeting});
  actions_.events.emplace_back(Met{meeting});
}

void Node::ask(const std::string& meeting) {
  if (is_root()) {
    actions_.events.emplace_back(Missing{meeting, meetings_.missing(meeting, table_->tree.size())});
    return;
  }
  const bool first = askers_[meeting].empty();
  askers_[meeting].insert(kSelf);
  tell_arrivals(false);
  if (first) send_up(Ask{meeting});
}

void Node::on(LinkId id, Link& link, const Ask& ask, TimePoint) {
  require(running() && link.role == Role::Below, ask);
  if (is_root()) return send(id, Missing{ask.meeting, meetings_.missing(ask.meeting, table_->tree.size())});
  const bool first = askers_[ask.meeting].empty();
  askers_[ask.meeting].insert(id);
  require_few_meetings(ask);
  tell_arrivals(false);
  if (first) send_up(ask);
}

void Node::on(LinkId, Link& link, const Missing& missing, TimePoint) {
  require(running() && link.role == Role::Parent, missing);
  const auto asked = askers_.extract(missing.meeting);
  if (asked.empty()) return;
  for (const LinkId asker : asked.mapped()) {
    if (asker == kSelf) {
      actions_.events.emplace_back(missing);
    } else {
      send(asker, missing);
    }
  }
}

void Node::leave() {
  left_ = true;
  for (const auto& [id, link] : links_) {
    send(id, Bye{});
    actions_.ends.push_back(id);
  }
  links_.clear();
}

void Node::tick(TimePoint now) {
  // A node that got no processor time, or was stopped, must not blame the others for its own absence.
  const auto late = now - next_tick_;
  if (late >= options_.beat) {
    for (auto& [id, link] : links_) link.last_heard = std::min<TimePoint>(now, link.last_heard + late);
    proposed_at_ += late;
    appealed_at_ += late;
  }
  next_tick_ = now + options_.beat;
  if (left_) return;
  if (!running()) return tick_while_joining(now);
  tell_arrivals(false);
  if (is_root()) root_heard_ = now;
  const auto since_root = std::max(std::chrono::duration_cast<milliseconds>(now - root_heard_), milliseconds(0));
  for (const auto& [id, link] : links_) {
    if (link.role == Role::Parent) send(id, Heartbeat{});
    if (link.role == Role::Below) send(id, Heartbeat{since_root});
  }
  if (verdict_) return;
  look_for_silence(now);
  if (proposed_ && !appealed_ && now - proposed_at_ > kVerdictPatience && table_->tree.parent(rank()) != 0)
    appeal(*proposed_, now);
  if (appealed_ && now - appealed_at_ > kAppealPatience) not_connected(Purpose::Appeal, false, now);
}

void Node::look_for_silence(TimePoint now) {
  for (const auto& [id, link] : std::map<LinkId, Link>(links_)) {
    if (!link.said_bye && now - link.last_heard > patience_with(link)) lost(link, "silent", now);
  }
}

nanoseconds Node::patience_with(const Link& link) const {
  switch (link.role) {
    case Role::Below: return options_.silence;
    case Role::Parent: {
      const int levels = table_->tree.depth(rank()) - 1;
      return std::max<nanoseconds>(options_.silence - levels * options_.beat, options_.silence / 2);
    }
    case Role::Moving: return options_.join_deadline;
    default: return nanoseconds::max();
  }
}

void Node::send_below(const Message& message, LinkId except) {
  for (const auto& [id, link] : links_) {
    if (link.role == Role::Below && id != except) send(id, message);
  }
}

void Node::send_up(const Message& message) {
  if (const LinkId parent = link_of(Role::Parent); parent >= 0) send(parent, message);
}

std::vector<int> Node::neighbours() const {
  std::vector<int> ranks;
  for (const auto& [id, link] : links_) {
    if ((link.role == Role::Parent || link.role == Role::Below) && !link.said_bye) ranks.push_back(link.rank);
  }
  return ranks;
}

bool Node::has_way_in() const { return link_of(Role::Entrance) >= 0 || link_of(Role::Parent) >= 0; }

LinkId Node::link_of(Role role) const {
  const auto found = std::find_if(links_.begin(), links_.end(), [&](const auto& entry) { return entry.second.role == role; });
  return found != links_.end() ? found->first : -1;
}

void Node::drop(LinkId id) {
  links_.erase(id);
  actions_.ends.push_back(id);
}

}  // namespace trivet::comm::control
