// The rendezvous part of Node.
#include <fmt/format.h>

#include <algorithm>

#include "comm/control/node.h"

namespace trivet::comm::control {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGather{100};  // time that a node waits for more ranks of its host before it sends a Join
constexpr milliseconds kPause{100};   // between two attempts to connect
// The other ranks wait this much longer than the root, so that the root is the one to report which ranks are missing; and those
// below a node wait this much longer than the node, which may know why.
constexpr milliseconds kLonger{3000};
constexpr milliseconds kParentDeadline{10000};

}  // namespace

Node::Node(NodeOptions options, TimePoint now)
    : options_(std::move(options)), next_tick_(now + options_.beat), started_(now), send_join_at_(now + kGather) {
  if (is_root()) {
    gathering_.emplace(options_.self);
    return;
  }
  seats_.push_back(options_.self);
  call(Purpose::Join, options_.entrance);
}

void Node::call(Purpose purpose, const std::string& address) {
  if (!calling_.insert(purpose).second) return;
  if (purpose == Purpose::Join) joining_at_ = address;
  actions_.calls.push_back({purpose, address});
}

void Node::accepted(LinkId link, TimePoint now) {
  if (left_) return actions_.ends.push_back(link);
  links_[link] = {.last_heard = now};
}

void Node::connected(Purpose purpose, LinkId id, TimePoint now) {
  calling_.erase(purpose);
  if (failed_ || left_ || verdict_) return actions_.ends.push_back(id);
  Link& link = links_[id] = {.last_heard = now};
  switch (purpose) {
    case Purpose::Join:
      link.role = Role::Entrance;
      found_entrance_ = true;
      return send_join(now);
    case Purpose::Parent:
      link.role = Role::Parent;
      link.rank = parent_rank_;
      return send(id, Attach{rank(), std::nullopt});
    case Purpose::Appeal:
      link.role = Role::Appeal;
      link.rank = 0;
      return send(id, Attach{rank(), appealed_});
  }
}

void Node::not_connected(Purpose purpose, bool refused, TimePoint now) {
  calling_.erase(purpose);
  if (purpose != Purpose::Appeal) {
    call_again_at_[static_cast<int>(purpose)] = now + kPause;
    return;
  }
  if (refused) return decide(*appealed_);  // the root has left
  decide({0, {}, ExitCode::PeerLost, fmt::format("cannot be reached, after rank {} was lost", appealed_->world_rank)});
}

// Sends the ranks that the other end does not know yet: when all of this host are here, or after a while those that are.
void Node::send_join(TimePoint now) {
  const LinkId entrance = link_of(Role::Entrance);
  if (entrance < 0 || seats_sent_ == seats_.size()) return;
  const bool all_here = options_.self.node < 0 || static_cast<int>(seats_.size()) == options_.ranks_here;
  if (!all_here && now < send_join_at_) return;
  while (seats_sent_ < seats_.size()) {
    const auto from = seats_.begin() + static_cast<std::ptrdiff_t>(seats_sent_);
    seats_sent_ = std::min(seats_sent_ + kMostSeats, seats_.size());
    send(entrance, Join{{from, seats_.begin() + static_cast<std::ptrdiff_t>(seats_sent_)}});
  }
}

// The ranks of a Join either hang below the receiver (one rank, which says no node) or are of a host of their own.
std::optional<std::string> Node::fault_of(const Link& link, const Join& join) const {
  if (join.seats.empty()) return "of nobody";
  const int node = join.seats.front().node;
  if (node < 0)
    return join.seats.size() == 1 && link.role == Role::Visitor ? std::nullopt
                                                                : std::optional("of several ranks without a node");
  if (!is_root()) return "of another host's node";
  const int of_link = link.role == Role::Visitor ? join.seats.front().member.rank : link.rank;
  for (const Seat& seat : join.seats) {
    if (seat.node != of_link) return "whose ranks have different nodes";
  }
  return std::nullopt;
}

void Node::on(LinkId id, Link& link, const Join& join, TimePoint now) {
  const bool is_of_a_node = !join.seats.empty() && join.seats.front().node >= 0;
  require(link.role == Role::Visitor || link.role == Role::Moving ||
              (link.role == Role::Below && !link.attached && (is_of_a_node || !running())),
          join);
  if (const auto fault = fault_of(link, join)) return reject(id, "sent a Join " + *fault, now);
  if (running()) {
    for (const Seat& seat : join.seats) refuse_latecomer(id, seat.member);
    if (link.role == Role::Visitor) drop(id);  // otherwise it is a node that passes on who has come to it
    return;
  }
  if (failed_) return drop(id);
  if (is_root()) return add_at_root(id, link, join, now);
  const Member& member = join.seats.front().member;
  link = {.role = Role::Below, .rank = member.rank, .pid = member.pid, .last_heard = now};
  if (seats_sent_ == seats_.size()) send_join_at_ = now + kGather;
  seats_.push_back({member, rank(), {}});
  send(id, Welcome{options_.self.member});
  send_join(now);
}

void Node::refuse_latecomer(LinkId id, const Member& late) {
  std::vector<std::optional<Member>> held;
  for (const Seat& seat : table_->seats) held.emplace_back(seat.member);
  if (const auto refusal = refusal_of(late, held)) send(id, Refuse{late.rank, late.pid, *refusal});
}

void Node::add_at_root(LinkId id, Link& link, const Join& join, TimePoint now) {
  for (Seat seat : join.seats) {
    if (seat.node < 0) seat.node = 0;
    if (const auto refusal = gathering_->add(seat)) {
      send(id, Refuse{seat.member.rank, seat.member.pid, *refusal});
      if (refusal->ends_the_job) return end_rendezvous(*refusal);
      if (link.role == Role::Visitor) return drop(id);  // a rank by itself, or the node of a host
      continue;
    }
    if (link.role == Role::Below) continue;
    link = {.role = Role::Below, .rank = seat.member.rank, .pid = seat.member.pid, .last_heard = now};
    send(id, Welcome{options_.self.member});
  }
  if (gathering_->complete()) announce(now);
}

void Node::on(LinkId, Link& link, const Welcome& welcome, TimePoint) {
  require(link.role == Role::Entrance && !welcome_, welcome);
  welcome_ = welcome.by;
}

void Node::on(LinkId, Link& link, const Refuse& refuse, TimePoint) {
  const Member& self = options_.self.member;
  const bool is_of_this = refuse.rank < 0 || (refuse.rank == self.rank && refuse.pid == self.pid);
  require((link.role == Role::Entrance || link.role == Role::Parent) && !(running() && is_of_this), refuse);
  if (running()) return;  // it is of a latecomer, whom run() has refused
  if (is_of_this) return end_rendezvous(refuse.refusal);
  for (auto& [id, below] : links_) {
    if (below.role != Role::Below || below.rank != refuse.rank || below.pid != refuse.pid) continue;
    send(id, refuse);
    const auto is_refused = [&](const Seat& seat) { return seat.member.rank == refuse.rank && seat.member.pid == refuse.pid; };
    seats_sent_ -= std::erase_if(seats_, is_refused);
    return drop(id);
  }
}

void Node::on(LinkId, Link& link, const Parent& parent, TimePoint now) {
  require(link.role == Role::Entrance && !running() && parent_rank_ < 0, parent);
  parent_rank_ = parent.rank;
  parent_address_ = parent.address;
  started_ = now;
  call(Purpose::Parent, parent_address_);
}

void Node::on(LinkId id, Link& link, const Attach& attach, TimePoint now) {
  require(link.role == Role::Visitor && !failed_, attach);
  require_rank(attach.rank, attach);
  if (attach.lost) {
    require(is_root() && running(), attach);
    require_rank(attach.lost->world_rank, attach);
    link.role = Role::Orphan;
    link.rank = attach.rank;
    if (verdict_) return send(id, Accuse{*verdict_});
    return propose(*attach.lost, now);
  }
  if (running() && table_->tree.parent(attach.rank) != rank())
    return reject(id, fmt::format("sent an Attach of rank {}, whose parent is not rank {}", attach.rank, rank()), now);
  const auto holds = [&](const auto& entry) { return entry.second.role == Role::Below && entry.second.rank == attach.rank; };
  if (std::any_of(links_.begin(), links_.end(), holds))
    return reject(id, fmt::format("sent an Attach of rank {}, which is attached already", attach.rank), now);
  link = {.role = Role::Below, .rank = attach.rank, .attached = true, .last_heard = now};
  if (running()) bring_up_to_date(id);
}

// Announces, at the root, that everybody has joined.
void Node::announce(TimePoint now) {
  auto table = gathering_->table(options_.fan_out);
  for (auto& [id, link] : links_) {
    if (link.role != Role::Below || table->tree.parent(link.rank) == 0) continue;
    link.role = Role::Moving;
    link.last_heard = now;
    const int parent = table->tree.parent(link.rank);
    send(id, Parent{parent, table->seats[parent].address});
  }
  run(std::move(table), now);
}

void Node::on(LinkId id, Link& link, const Announce& announced, TimePoint now) {
  require((link.role == Role::Entrance || link.role == Role::Parent) && !running(), announced);
  check(announced);
  const LinkId entrance = link_of(Role::Entrance);
  link.role = Role::Parent;
  link.rank = announced.table->tree.parent(rank());
  link.last_heard = now;
  if (entrance != id && entrance >= 0) {
    send(entrance, Bye{});
    drop(entrance);
  }
  run(announced.table, now);
}

// Compares the table with what this rank knows. Nothing that decides about the others is checked: the root has the say.
void Node::check(const Announce& announced) const {
  const auto refuse = [](const std::string& why) { throw CommError(ExitCode::Rendezvous, "sent an Announce " + why); };
  const Member& self = options_.self.member;
  const Table& table = *announced.table;
  if (static_cast<int>(table.seats.size()) != self.world_size)
    refuse(fmt::format("of {} ranks; this rank expects {}", table.seats.size(), self.world_size));
  const Member& here = table.seats[self.rank].member;
  if (here.pid != self.pid || here.host != self.host || here.epoch != self.epoch || here.build != self.build)
    refuse(fmt::format("in which this rank is {} instead of {}", here.where(), self.where()));
  if (!self.job_id.empty() && table.job_id != self.job_id) refuse("of a different job (TRIVET_JOB_ID differs)");
}

void Node::run(std::shared_ptr<const Table> table, TimePoint now) {
  table_ = std::move(table);
  root_heard_ = now;
  meetings_ = Meetings(table_->tree.below(rank()));
  std::vector<LinkId> strangers;
  for (auto& [id, link] : links_) {
    if (link.role != Role::Below) continue;
    link.last_heard = now;
    if (is_child(link)) {
      bring_up_to_date(id);
    } else {
      strangers.push_back(id);
    }
  }
  for (const LinkId id : strangers) {
    const Link stranger = links_.at(id);
    for (const Seat& seat : seats_)
      if (seat.member.rank == stranger.rank && seat.member.pid == stranger.pid) refuse_latecomer(id, seat.member);
    drop(id);
  }
  actions_.events.emplace_back(Announce{table_});
}

// Checks whether the table has it, and below this node. Another process may have come as the same rank.
bool Node::is_child(const Link& link) const {
  if (link.rank < 0 || link.rank >= table_->tree.size() || table_->tree.parent(link.rank) != rank()) return false;
  return link.attached || link.pid == table_->seats[link.rank].member.pid;
}

// A child may attach after others have begun to work.
void Node::bring_up_to_date(LinkId id) {
  if (verdict_) return send(id, Accuse{*verdict_});
  send(id, Announce{table_});
  for (const auto& [key, value] : store_) send(id, Set{key, value});
}

void Node::end_rendezvous(const Refusal& refusal) {
  if (failed_ || running()) return;
  failed_ = true;
  send_below(Refuse{-1, 0, refusal});
  actions_.events.emplace_back(Refuse{-1, 0, refusal});
}

// A link that is gone before this node runs; `why` follows the name of its rank.
void Node::ended_while_joining(const Link& link, const std::string& why) {
  switch (link.role) {
    case Role::Entrance:
      if (welcome_) return end_rendezvous({ExitCode::Rendezvous, name_of_entrance() + " " + why});
      seats_sent_ = 0;
      call_again_at_[static_cast<int>(Purpose::Join)] = next_tick_;
      return;
    case Role::Parent: call_again_at_[static_cast<int>(Purpose::Parent)] = next_tick_; return;
    case Role::Below: break;
    default: return;
  }
  if (link.attached) return;  // the root watches it, too
  if (is_root())
    return end_rendezvous({ExitCode::Rendezvous, fmt::format("rank {} ({}) {}", link.rank, gathering_->where(link.rank), why)});
  const auto seat = std::find_if(seats_.begin(), seats_.end(),
                                 [&](const Seat& s) { return s.member.rank == link.rank && s.member.pid == link.pid; });
  if (seat == seats_.end()) return;
  if (seat - seats_.begin() >= static_cast<std::ptrdiff_t>(seats_sent_)) {
    seats_.erase(seat);
  } else if (const LinkId entrance = link_of(Role::Entrance); entrance >= 0) {
    send(entrance, Accuse{{link.rank, {}, ExitCode::Rendezvous, why}});
  }
}

// Data that a peer above this one has sent cannot be sent again, so there is no other attempt.
void Node::reject_while_joining(const Link& link, const CommError& why) {
  if (link.role == Role::Below) return ended_while_joining(link, why.what());
  const std::string who = link.role == Role::Entrance ? name_of_entrance() : fmt::format("rank {}", link.rank);
  end_rendezvous({why.exit_code(), fmt::format("{} {}", who, why.what())});
}

const std::string& Node::way_in(TimePoint now) const {
  const bool gives_up = !found_entrance_ && now >= started_ + options_.node_deadline;
  return gives_up ? options_.root : options_.entrance;
}

std::string Node::name_of_entrance() const {
  if (welcome_) return fmt::format("rank {} at {} ({})", welcome_->rank, joining_at_, welcome_->where());
  return (joining_at_ == options_.root ? "rank 0 at " : "the node of this host at ") + joining_at_;
}

void Node::tick_while_joining(TimePoint now) {
  if (failed_) return;
  if (is_root()) {
    if (now >= started_ + options_.join_deadline)
      end_rendezvous({ExitCode::Rendezvous, gathering_->missing_text(options_.join_deadline)});
    return;
  }
  const bool is_below_a_node = options_.self.node < 0 && options_.entrance != options_.root;
  if (now >= started_ + options_.join_deadline + (is_below_a_node ? 2 : 1) * kLonger)
    return end_rendezvous({ExitCode::Rendezvous, name_of_entrance() + " did not answer in time"});
  const LinkId entrance = link_of(Role::Entrance);
  if (entrance < 0 && now >= call_again_at_[static_cast<int>(Purpose::Join)]) call(Purpose::Join, way_in(now));
  if (parent_rank_ >= 0 && link_of(Role::Parent) < 0) {
    if (now >= started_ + kParentDeadline && entrance >= 0) {
      send(entrance, Accuse{{parent_rank_,
                             {},
                             ExitCode::PeerLost,
                             fmt::format("cannot be reached by rank {} at {}", rank(), parent_address_)}});
    } else if (now >= call_again_at_[static_cast<int>(Purpose::Parent)]) {
      call(Purpose::Parent, parent_address_);
    }
  }
  send_join(now);
}

}  // namespace trivet::comm::control
