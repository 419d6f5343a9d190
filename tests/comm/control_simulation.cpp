#include "tests/comm/control_simulation.h"

#include <fmt/format.h>

namespace trivet::comm::control {
namespace {

constexpr milliseconds kOneAttempt{1000}, kProof{2000};
constexpr int kBacklog = 1024;  // visitors that a listening socket holds; for the others, it is as if nothing answered
// How long a process stays after a verdict: the root long enough for those who appeal.
constexpr milliseconds kRootStays{500}, kOthersStay{300};

std::string address_of(int rank) { return std::to_string(rank); }

// Of a message on the wire, about.
double bytes_of(const Message& message) {
  if (const auto* announce = std::get_if<Announce>(&message)) return 140.0 * static_cast<double>(announce->table->seats.size());
  if (const auto* join = std::get_if<Join>(&message)) return 140.0 * static_cast<double>(join->seats.size());
  return 100;
}

}  // namespace

Simulation::Simulation(World world, uint64_t seed)
    : world_(std::move(world)),
      random_(seed),
      processes_(world_.ranks()),
      inboxes_(processes_.size()),
      wires_of_(processes_.size()),
      now_(start()) {
  for (int rank = 0; rank < ranks(); ++rank) {
    inboxes_[rank].free = inboxes_[rank].link_free = now_;
    schedule(now_ + random(world_.start_within), {.kind = Thing::Kind::Start, .process = rank});
  }
}

nanoseconds Simulation::random(nanoseconds most) {
  return nanoseconds(static_cast<int64_t>(random_() % static_cast<uint64_t>(std::max<int64_t>(most.count(), 1))));
}

void Simulation::at(nanoseconds after, std::function<void()> what) {
  schedule(start() + after, {.kind = Thing::Kind::Outside, .what = std::move(what)});
}

void Simulation::schedule(TimePoint when, Thing thing) {
  later_.push({when, sequence_++, std::make_shared<Thing>(std::move(thing)), -1});
}

void Simulation::run(nanoseconds until) {
  while (!later_.empty() && later_.top().when <= start() + until) {
    const Later next = later_.top();
    later_.pop();
    now_ = next.when;
    if (!next.thing) {
      work(next.process);
    } else if (next.thing->kind == Thing::Kind::Outside) {
      next.thing->what();
    } else {
      deliver(next.thing);
    }
  }
  now_ = start() + until;
}

// Puts the thing into the inbox of its process, which does one after another.
void Simulation::deliver(std::shared_ptr<Thing> thing) {
  const int rank = thing->process;
  const State state = processes_[rank].state;
  if (state == State::Ended || state == State::Vanished) return;
  Inbox& inbox = inboxes_[rank];
  inbox.things.push_back(std::move(thing));
  if (inbox.scheduled || state == State::Stopped) return;
  inbox.scheduled = true;
  later_.push({std::max(now_, inbox.free), sequence_++, nullptr, rank});
}

void Simulation::work(int rank) {
  Inbox& inbox = inboxes_[rank];
  inbox.scheduled = false;
  const State state = processes_[rank].state;
  if (inbox.things.empty() || state == State::Ended || state == State::Vanished || state == State::Stopped) return;
  const auto thing = inbox.things.front();
  inbox.things.pop_front();
  inbox.free = now_ + cost_of(*thing);
  handle(rank, *thing);
  if (inbox.things.empty()) return;
  inbox.scheduled = true;
  later_.push({inbox.free, sequence_++, nullptr, rank});
}

nanoseconds Simulation::cost_of(const Thing& thing) const {
  switch (thing.kind) {
    case Thing::Kind::Accept:
    case Thing::Kind::Connected: return world_.costs.handshake;
    case Thing::Kind::Received:
      return world_.costs.message + nanoseconds(static_cast<int64_t>(bytes_of(thing.message)));  // 1 GB/s to read it
    default: return microseconds(1);
  }
}

void Simulation::handle(int rank, const Thing& thing) {
  Process& process = processes_[rank];
  if (thing.kind == Thing::Kind::Start) return start(rank);
  if (!process.node) return;
  Node& node = *process.node;
  switch (thing.kind) {
    case Thing::Kind::Tick:
      node.tick(now_);
      schedule(node.next_tick(), {.kind = Thing::Kind::Tick, .process = rank});
      break;
    case Thing::Kind::Accept: return accept(rank, thing.wire);
    case Thing::Kind::Connected: node.connected(wires_[thing.wire].purpose, thing.wire, now_); break;
    case Thing::Kind::TimeOut:
      if (wires_[thing.wire].stage != Wire::Stage::Calling) return;
      [[fallthrough]];
    case Thing::Kind::NotConnected:
      wires_[thing.wire].stage = Wire::Stage::Over;
      node.not_connected(wires_[thing.wire].purpose, thing.refused, now_);
      break;
    case Thing::Kind::Received:
      if (rank == 0) count(thing.message);
      node.receive(thing.wire, thing.message, now_);
      break;
    case Thing::Kind::Ended: node.ended(thing.wire, "eof", now_); break;
    case Thing::Kind::Come: come_to_next_meeting(rank); break;
    case Thing::Kind::Leave: return end_process(rank, State::Ended);
    default: break;
  }
  do_actions(rank);
}

void Simulation::start(int rank) {
  Process& process = processes_[rank];
  if (never_.contains(rank) || process.state != State::NotStarted) return;
  process.state = State::Runs;
  process.started = now_;
  const int node = rank - rank % world_.ranks_per_host;
  NodeOptions options = world_.options;
  options.self.member = {.rank = rank,
                         .world_size = ranks(),
                         .job_id = "c0ffee",
                         .build = "b",
                         .host = fmt::format("h{}", host_of(rank)),
                         .pid = 1000 + rank};
  if (rank == node) {
    options.self.node = rank;
    options.self.address = address_of(rank);
    options.ranks_here = world_.ranks_per_host;
  }
  options.entrance = address_of(rank == node ? 0 : node);
  options.root = address_of(0);
  process.node = std::make_unique<Node>(std::move(options), now_);
  schedule(process.node->next_tick(), {.kind = Thing::Kind::Tick, .process = rank});
  do_actions(rank);
}

void Simulation::do_actions(int rank) {
  Process& process = processes_[rank];
  const Actions actions = process.node->take_actions();
  for (const auto& send_action : actions.sends) send(rank, send_action.link, send_action.message);
  for (const int wire : actions.ends) end_wire(rank, wire);
  for (const auto& call_action : actions.calls) call(rank, call_action);
  for (const Message& event : actions.events) happened(rank, event);
}

bool Simulation::reachable(int from, int to) const {
  return cut_off_.contains(host_of(from)) == cut_off_.contains(host_of(to));
}

nanoseconds Simulation::latency(int from, int to) {
  const bool same = host_of(from) == host_of(to);
  const nanoseconds least = same ? world_.costs.on_host : world_.costs.between_hosts;
  nanoseconds whole = least + random(least);
  if (!same && happens(trouble_.late)) whole += random(trouble_.delay);
  return whole;
}

void Simulation::call(int rank, const Actions::Call& call) {
  const int callee = std::stoi(call.address);
  const int id = static_cast<int>(wires_.size());
  wires_.push_back({.caller = rank, .callee = callee, .purpose = call.purpose, .arrives = {now_, now_}});
  const State state = processes_[callee].state;
  const bool lost = inboxes_[callee].visitors >= kBacklog || (host_of(rank) != host_of(callee) && happens(trouble_.lost));
  if (state == State::Vanished || !reachable(rank, callee) || lost)
    return schedule(now_ + kOneAttempt, {.kind = Thing::Kind::NotConnected, .process = rank, .wire = id});
  if (state == State::NotStarted || state == State::Ended)
    return schedule(now_ + 2 * latency(rank, callee),
                    {.kind = Thing::Kind::NotConnected, .process = rank, .wire = id, .refused = true});
  ++inboxes_[callee].visitors;
  schedule(now_ + latency(rank, callee), {.kind = Thing::Kind::Accept, .process = callee, .wire = id});
  schedule(now_ + kProof, {.kind = Thing::Kind::TimeOut, .process = rank, .wire = id});
}

void Simulation::accept(int rank, int id) {
  Wire& wire = wires_[id];
  --inboxes_[rank].visitors;
  if (wire.stage != Wire::Stage::Calling) return;  // the caller has given up
  wire.stage = Wire::Stage::Open;
  wires_of_[wire.caller].insert(id);
  wires_of_[rank].insert(id);
  arrival(wire, wire.caller) = now_ + 2 * latency(rank, wire.caller);
  schedule(arrival(wire, wire.caller), {.kind = Thing::Kind::Connected, .process = wire.caller, .wire = id});
  if (wire.purpose == Purpose::Join && happens(trouble_.sent_away)) return end_wire(rank, id);
  processes_[rank].node->accepted(id, now_);
  do_actions(rank);
}

void Simulation::send(int rank, int id, const Message& message) {
  Wire& wire = wires_[id];
  const int to = other_end(wire, rank);
  if (wire.stage != Wire::Stage::Open || !reachable(rank, to)) return;
  TimePoint leaves = now_;
  if (host_of(rank) != host_of(to)) {
    TimePoint& free = inboxes_[rank].link_free;
    free = std::max(free, now_) + nanoseconds(static_cast<int64_t>(bytes_of(message) / world_.costs.bytes_per_second * 1e9));
    leaves = free;
  }
  TimePoint& arrives = arrival(wire, to);
  arrives = std::max(arrives, leaves + latency(rank, to));
  schedule(arrives, {.kind = Thing::Kind::Received, .process = to, .wire = id, .message = message});
}

void Simulation::end_wire(int rank, int id) {
  Wire& wire = wires_[id];
  if (wire.stage == Wire::Stage::Over) return;
  wire.stage = Wire::Stage::Over;
  const int to = other_end(wire, rank);
  wires_of_[rank].erase(id);
  wires_of_[to].erase(id);
  if (!reachable(rank, to)) return;
  TimePoint& arrives = arrival(wire, to);
  arrives = std::max(arrives, now_ + latency(rank, to));
  schedule(arrives, {.kind = Thing::Kind::Ended, .process = to, .wire = id});
}

void Simulation::end_process(int rank, State state) {
  Process& process = processes_[rank];
  if (process.state == State::Ended || process.state == State::Vanished) return;
  process.state = state;
  process.left = now_;
  inboxes_[rank].things.clear();
  if (state == State::Vanished) return;
  const std::set<int> open = wires_of_[rank];
  for (const int wire : open) end_wire(rank, wire);
}

void Simulation::kill(int rank) { end_process(rank, State::Ended); }

void Simulation::stop(int rank) {
  if (processes_[rank].state == State::Runs) processes_[rank].state = State::Stopped;
}

void Simulation::go_on(int rank) {
  if (processes_[rank].state != State::Stopped) return;
  processes_[rank].state = State::Runs;
  if (inboxes_[rank].things.empty() || inboxes_[rank].scheduled) return;
  inboxes_[rank].scheduled = true;
  later_.push({now_, sequence_++, nullptr, rank});
}

void Simulation::vanish(int host) {
  for (int line = 0; line < world_.ranks_per_host; ++line) end_process(host * world_.ranks_per_host + line, State::Vanished);
}

void Simulation::accuse(int rank, const Accusation& accusation) {
  if (!processes_[rank].node || processes_[rank].state != State::Runs) return;
  processes_[rank].node->accuse(accusation, now_);
  do_actions(rank);
}

void Simulation::ask(int rank) {
  if (!processes_[rank].node || processes_[rank].state != State::Runs) return;
  processes_[rank].node->ask(meeting(0));
  do_actions(rank);
}

std::string Simulation::meeting(int number) const {
  return number == world_.meetings ? kLastMeeting : fmt::format("meeting {}", number);
}

void Simulation::come_to_next_meeting(int rank) {
  Process& process = processes_[rank];
  if (absent_.contains(rank)) return;
  const std::string name = meeting(process.meetings++);
  if (world_.with_store) process.node->set(fmt::format("{} of {}", name, rank), name);
  ++arrived_[name];
  process.node->arrive(name, now_);
}

void Simulation::happened(int rank, const Message& event) {
  Process& process = processes_[rank];
  const auto later = [&](nanoseconds most, Thing::Kind kind) {
    schedule(now_ + random(most), {.kind = kind, .process = rank});
  };
  if (std::holds_alternative<Announce>(event)) {
    process.joined = now_;
    later(world_.work, Thing::Kind::Come);
  } else if (const auto* refuse = std::get_if<Refuse>(&event)) {
    process.refusal = refuse->refusal;
    process.told = now_;
    later(kOthersStay, Thing::Kind::Leave);
  } else if (const auto* accuse_event = std::get_if<Accuse>(&event)) {
    if (process.verdict) broken_.push_back(fmt::format("rank {} was told two verdicts", rank));
    process.verdict = accuse_event->accusation;
    process.told = now_;
    schedule(now_ + (rank == 0 ? kRootStays : nanoseconds(0)) + random(kOthersStay),
             {.kind = Thing::Kind::Leave, .process = rank});
  } else if (const auto* missing = std::get_if<Missing>(&event)) {
    process.missing = missing->ranks;
  } else if (std::holds_alternative<Set>(event)) {
    ++process.keys;
  } else if (const auto* met = std::get_if<Met>(&event)) {
    if (world_.with_store && process.keys < (ranks() - 1) * process.meetings)
      broken_.push_back(fmt::format("rank {} knows {} keys after meeting {}", rank, process.keys, process.meetings));
    if (arrived_[met->meeting] != ranks())
      broken_.push_back(fmt::format("rank {} was told that {} of {} ranks have met", rank, arrived_[met->meeting], ranks()));
    if (met->meeting != kLastMeeting) return later(world_.work, Thing::Kind::Come);
    process.closed = true;
    process.node->leave();
    do_actions(rank);
    end_process(rank, State::Ended);
  }
}

void Simulation::count(const Message& message) {
  if (!processes_[0].node->running()) return;
  const int64_t second = std::chrono::floor<std::chrono::seconds>(now_.time_since_epoch()).count();
  if (second != second_) heartbeats_ = messages_ = 0;
  second_ = second;
  heartbeats_ += std::holds_alternative<Heartbeat>(message) ? 1 : 0;
  ++messages_;
  most_heartbeats_ = std::max(most_heartbeats_, heartbeats_);
  most_messages_ = std::max(most_messages_, messages_);
}

}  // namespace trivet::comm::control
