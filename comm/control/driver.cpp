#include "comm/control/driver.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "comm/wire_messages.h"

namespace trivet::comm::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookUpAgain{1000};
constexpr size_t kMostUnsent = size_t{64} << 20;  // per connection; the table and the whole store are less
constexpr milliseconds kLastWords{1000};          // longest time that a connection that ends may take to send the rest

// A name of this host alone (socket.h).
bool is_of_this_host(const std::string& address) { return address.starts_with("@"); }

int remaining_time(TimePoint until) {
  const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

}  // namespace

Driver::Driver(DriverOptions options)
    : world_size_(options.node.self.member.world_size),
      root_(options.node.root),
      join_deadline_(steady_clock::now() + options.node.join_deadline),
      secret_(options.secret),
      log_(options.node.self.member.rank),
      node_(std::move(options.node), steady_clock::now()) {
  for (Descriptor& listener : options.listeners)
    admissions_.emplace_back(
        std::move(listener), secret_,
        Admission::Options{.world_size = world_size_, .most_visitors = options.most_visitors, .log = log_});
  act();
}

std::vector<Message> Driver::step(TimePoint until, int wake) {
  act();
  wait(events_.empty() ? std::min(until, node_.next_tick()) : TimePoint{}, wake);
  const TimePoint now = steady_clock::now();
  take_visitors(now);
  make_connections(now);
  for (const LinkId id : std::exchange(readable_, {})) read(id, now);
  if (now >= node_.next_tick()) node_.tick(now);
  act();
  step_endings(now);
  return take_events();
}

std::vector<Message> Driver::take_events() {
  const auto is_announce = [](const Message& event) { return std::holds_alternative<Announce>(event); };
  auto end = std::find_if(events_.begin(), events_.end(), is_announce);
  if (end != events_.end()) ++end;
  std::vector<Message> taken(std::make_move_iterator(events_.begin()), std::make_move_iterator(end));
  events_.erase(events_.begin(), end);
  return taken;
}

void Driver::wait(TimePoint until, int wake) {
  std::vector<pollfd> entries;
  if (wake >= 0) entries.push_back({wake, POLLIN, 0});
  for (const Admission& admission : admissions_) admission.add_to(entries);
  for (const Outgoing& call : calls_) entries.push_back({call.number(), call.events(), 0});
  for (const Ending& ending : endings_)
    entries.push_back(
        {ending.connection.number(), static_cast<short>((ending.ended ? 0 : POLLIN) | (ending.finished ? 0 : POLLOUT)), 0});
  const size_t first = entries.size();
  for (const auto& [id, link] : links_) {
    const bool unsent = link.connection.has_unsent();
    entries.push_back({link.connection.number(), static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN), 0});
  }
  ::poll(entries.data(), entries.size(), remaining_time(until));
  size_t entry = first;
  for (const auto& [id, link] : links_) {
    if (entries[entry++].revents != 0) readable_.push_back(id);
  }
}

void Driver::take_visitors(TimePoint now) {
  for (Admission& admission : admissions_) {
    for (Admission::Request& request : admission.step()) {
      const LinkId id = next_link_++;
      links_.emplace(id, Link{std::move(request.connection)});
      node_.accepted(id, now);
      node_.receive(id, request.message, now);
      act();
      read(id, now);
    }
  }
}

const std::vector<SocketAddress>& Driver::addresses_of(const std::string& address) {
  LookUp& known = known_addresses_[address];
  const TimePoint now = steady_clock::now();
  // A host that was started again may have another address. A rank that has joined does not wait for names.
  if (!node_.running() && now >= known.when + kLookUpAgain) known = {look_up(address), now};
  return known.addresses;
}

void Driver::look_up_root() {
  try {
    addresses_of(root_);
  } catch (const CommError&) {  // is reported if this rank ever has to connect to it
  }
}

void Driver::has_joined() {
  if (!node_.is_root() && node_.table().tree.parent(node_.rank()) == 0 && admissions_.empty()) secret_ = Secret();
}

void Driver::start_call(const Actions::Call& call) {
  const TimePoint now = steady_clock::now();
  const bool is_root = call.purpose == Purpose::Join && !is_of_this_host(call.address);
  const TimePoint deadline = is_root ? join_deadline_ : now + kProofDeadline;
  if (call.purpose == Purpose::Join) joining_at_ = call.address;
  std::vector<SocketAddress> addresses;
  try {
    addresses = addresses_of(call.address);
  } catch (const CommError& error) {
    if (call.purpose == Purpose::Join) node_.give_up({error.exit_code(), error.what()});
  }
  calls_.emplace_back(call, std::move(addresses), now, deadline);
}

void Driver::make_connections(TimePoint now) {
  for (auto call = calls_.begin(); call != calls_.end();) {
    const Outgoing::State state = call->step(secret_, now);
    if (state == Outgoing::State::Waiting) {
      ++call;
      continue;
    }
    std::list<Outgoing> done;
    done.splice(done.begin(), calls_, call++);
    const Purpose purpose = done.front().call().purpose;
    if (state == Outgoing::State::Failed) {
      connection_failed(done.front(), now);
    } else {
      const LinkId id = next_link_++;
      links_.emplace(id, Link{done.front().take({.world_size = world_size_, .table = true}), purpose == Purpose::Join});
      node_.connected(purpose, id, now);
    }
    act();
  }
}

void Driver::connection_failed(const Outgoing& call, TimePoint now) {
  using Failure = Outgoing::Failure;
  if (call.call().purpose == Purpose::Join) note_failed_join(call);
  const bool has_left =
      call.failure() == Failure::SentAway || (call.failure() == Failure::NotReached && call.error() == ECONNREFUSED);
  node_.not_connected(call.call().purpose, has_left, now);
}

void Driver::note_failed_join(const Outgoing& call) {
  using Failure = Outgoing::Failure;
  const std::string& address = call.call().address;
  // Whoever answers at the name of a node may be a stranger, or of another start of the job; then this rank goes to the root.
  if (call.failure() == Failure::Stranger && !is_of_this_host(address))
    node_.give_up({ExitCode::Rendezvous,
                   fmt::format("{} failed the key proof: it does not know this job's secret, so it is not this job's rank 0; "
                               "give all ranks the same TRIVET_SECRET_FILE and a port that no other program uses",
                               address)});
  sent_away_ += call.failure() == Failure::SentAway ? 1 : 0;
  joining_error_ = call.failure() == Failure::NotReached ? std::strerror(call.error()) : "";
}

std::string Driver::why_not_joined(milliseconds after) const {
  try {
    if (is_of_this_host(joining_at_))
      return "the first rank of this host, which connects to rank 0 for the others, does not answer";
    wait_for_name(joining_at_.substr(0, joining_at_.rfind(':')), {TimePoint{}});
  } catch (const CommError& error) {
    return error.what();
  }
  if (!joining_error_.empty())
    return fmt::format(
        "rank 0 does not answer at {}: {}; is it started, and are MASTER_ADDR and MASTER_PORT the same on all "
        "ranks?",
        joining_at_, joining_error_);
  if (sent_away_ > 0)
    return fmt::format(
        "{} closed the connection before it answered, {} times in {} s; is it this job's rank 0, and is "
        "something flooding its port?",
        joining_at_, sent_away_, static_cast<double>(after.count()) / 1000);
  return fmt::format("{} does not answer the key proof; is it this job's rank 0?", joining_at_);
}

void Driver::read(LinkId id, TimePoint now) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  found->second.connection.flush();
  const Connection::State state = found->second.connection.fill();
  read_messages(id, now);
  if (state == Connection::State::Open || !links_.contains(id)) return;
  if (links_.at(id).joins && !node_.welcome()) {
    ++sent_away_;
    joining_error_.clear();
  }
  links_.erase(id);
  node_.ended(id, state == Connection::State::Ended ? "eof" : "reset", now);
  act();
}

// The node may end the connection while its messages are read.
void Driver::read_messages(LinkId id, TimePoint now) {
  try {
    while (links_.contains(id)) {
      const auto frame = links_.at(id).connection.next();
      if (!frame) return;
      node_.receive(id, decode(*frame, world_size_), now);
      act();
    }
  } catch (const CommError& error) {
    node_.reject(id, error, now);
    act();
    if (links_.contains(id)) end(id);
  }
}

void Driver::act() {
  const TimePoint now = steady_clock::now();
  bool acts = true;
  while (acts) {  // an action may lead to further ones
    Actions actions = node_.take_actions();
    acts = !actions.sends.empty() || !actions.ends.empty() || !actions.calls.empty();
    for (const auto& action : actions.sends) send(action, now);
    for (auto& [id, link] : links_) {
      if (link.connection.has_unsent()) link.connection.flush();
    }
    for (const LinkId id : actions.ends) end(id);
    for (const auto& call : actions.calls) start_call(call);
    for (Message& event : actions.events) events_.push_back(std::move(event));
  }
}

void Driver::send(const Actions::Send& action, TimePoint now) {
  const auto found = links_.find(action.link);
  if (found == links_.end()) return;
  const auto* refuse = std::get_if<Refuse>(&action.message);
  if (refuse != nullptr && refuse->pid != 0 && node_.is_root())
    log_.warning(fmt::format("rendezvous: pid {} was refused: {}", refuse->pid, refuse->refusal.reason));
  Connection& connection = found->second.connection;
  if (connection.unsent_bytes() > kMostUnsent) connection.flush();
  if (connection.unsent_bytes() > kMostUnsent) {
    links_.erase(found);
    return node_.ended(action.link, "does not read what it is sent", now);
  }
  connection.send(frame_of(action.message));
}

// Many children get the same table, which may have megabytes.
const Frame& Driver::frame_of(const Message& message) {
  const auto* announce = std::get_if<Announce>(&message);
  if (announce == nullptr) return frame_ = encode(message);
  if (encoded_ != announce->table) encoded_table_ = encode(message);
  encoded_ = announce->table;
  return encoded_table_;
}

bool Driver::has_unsent() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second.connection.has_unsent(); }) ||
         std::any_of(endings_.begin(), endings_.end(), [](const Ending& ending) { return !ending.finished; });
}

void Driver::end(LinkId id) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  endings_.push_back({std::move(found->second.connection), steady_clock::now() + kLastWords});
  links_.erase(found);
  step_endings(steady_clock::now());
}

void Driver::step_endings(TimePoint now) {
  for (auto ending = endings_.begin(); ending != endings_.end();) {
    Connection& connection = ending->connection;
    connection.flush();
    if (!ending->finished && !connection.has_unsent()) {
      connection.finish_sending();
      ending->finished = true;
    }
    const Connection::State state = connection.skip();
    ending->ended = state != Connection::State::Open;
    const bool over =
        state == Connection::State::Reset || (state == Connection::State::Ended && ending->finished) || now >= ending->deadline;
    ending = over ? endings_.erase(ending) : std::next(ending);
  }
}

void Driver::finish(TimePoint deadline, bool politely) {
  act();
  calls_.clear();
  admissions_.clear();
  while (!links_.empty()) end(links_.begin()->first);
  for (Ending& ending : endings_) ending.deadline = deadline;
  while (politely ? !endings_.empty() : has_unsent()) {
    if (steady_clock::now() >= deadline) break;
    wait(deadline, -1);
    step_endings(steady_clock::now());
  }
  endings_.clear();
}

}  // namespace trivet::comm::control
