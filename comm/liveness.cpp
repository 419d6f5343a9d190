#include "comm/liveness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
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

constexpr milliseconds kFarewell{1000};  // longest time that a closing rank waits for the others' last messages
constexpr milliseconds kTelling{200};
constexpr milliseconds kStep{100};       // the longest step, and the time between two looks for stopped ranks
constexpr milliseconds kRootStays{500};  // after an accusation, if others may have lost the ranks between them and the root
constexpr milliseconds kAnswer{1000};    // for the root's answer to who is missing

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
      driver_(std::move(joined.driver)),
      wake_(std::make_shared<Wake>()),
      store_([this](const std::string& key, const std::string& value) {
        control::encode(control::Set{key, value});  // throws here if it is too long
        post([=, this](control::Node& node, TimePoint now) {
          try {
            node.set(key, value);
          } catch (const CommError& error) {  // another rank has set it meanwhile
            node.accuse({rank_, where(members_, rank_), error.exit_code(), error.what()}, now);
          }
        });
      }),
      next_look_(steady_clock::now()) {
  if (rank_ != 0) job_->heard_rank_zero(steady_clock::now());
  job_->subscribe([wake = wake_](const Accusation&) { wake->ring(); });
  thread_ = std::thread([this] { run(); });
}

Liveness::~Liveness() { stop(); }

void Liveness::stop() {
  stopping_ = true;
  wake_->ring();
  if (thread_.joinable()) thread_.join();
}

bool Liveness::wait_until_met(const std::string& name, milliseconds time) {
  std::unique_lock lock(meetings_mutex_);
  meetings_changed_.wait_for(lock, time, [&] { return over_ || met_.contains(name); });
  return met_.erase(name) > 0;
}

void Liveness::meet(const std::string& name, milliseconds deadline) {
  post([name](control::Node& node, TimePoint now) { node.arrive(name, now); });
  if (wait_until_met(name, deadline)) return;
  if (const auto accusation = job_->accusation()) throw CommError(accusation->code, lost_message(*accusation, name));
  throw_missing(name, deadline);
}

// Empty if the root does not answer, or if all have come since.
std::vector<int> Liveness::ask_who_is_missing(const std::string& name) {
  post([name](control::Node& node, TimePoint) { node.ask(name); });
  std::unique_lock lock(meetings_mutex_);
  meetings_changed_.wait_for(lock, kAnswer, [&] { return over_ || met_.contains(name) || missing_.contains(name); });
  const auto answer = missing_.extract(name);
  return met_.contains(name) || answer.empty() ? std::vector<int>() : answer.mapped();
}

void Liveness::throw_missing(const std::string& name, milliseconds deadline) {
  const std::vector<int> missing = ask_who_is_missing(name);
  const double seconds = static_cast<double>(deadline.count()) / 1000;
  if (missing.empty())  // they may have come since
    throw CommError(ExitCode::NoProgress,
                    fmt::format("not all ranks had reached \"{}\" within {:.3g} s: computing or stuck", name, seconds));
  const bool one = missing.size() == 1;
  throw CommError(
      ExitCode::NoProgress,
      fmt::format("{} {} {} alive but {} not reached \"{}\" within {:.3g} s: computing or stuck", one ? "rank" : "ranks",
                  fmt::join(missing, ","), one ? "is" : "are", one ? "has" : "have", name, seconds));
}

void Liveness::close(milliseconds deadline) {
  if (left_.exchange(true)) return;
  meet(control::kLastMeeting, deadline);
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
    take_orders(steady_clock::now());
    const auto events = driver_->step(steady_clock::now() + kStep, wake_->number());
    wake_->silence();
    const TimePoint now = steady_clock::now();
    for (const control::Message& event : events) handle(event, now);
    if (rank_ != 0) job_->heard_rank_zero(driver_->node().root_heard());
    look_for_stopped(now);
    pass_on_accusation(now);
    if (announced_ && !driver_->has_unsent()) told_ = true;
    call_on_lost(now);
  }
  finish();
}

void Liveness::handle(const control::Message& event, TimePoint now) {
  if (const auto* accuse = std::get_if<control::Accuse>(&event)) return job_->accuse(accuse->accusation);
  if (const auto* set = std::get_if<control::Set>(&event)) return learn(*set, now);
  const auto* met = std::get_if<control::Met>(&event);
  const auto* missing = std::get_if<control::Missing>(&event);
  if (met == nullptr && missing == nullptr) return;
  std::lock_guard lock(meetings_mutex_);
  if (met != nullptr) met_.insert(met->meeting);
  if (missing != nullptr) missing_[missing->meeting] = missing->ranks;
  meetings_changed_.notify_all();
}

void Liveness::learn(const control::Set& set, TimePoint now) {
  try {
    store_.apply(set.key, set.value);
  } catch (const CommError& error) {  // this rank has just set another value
    driver_->node().accuse({rank_, where(members_, rank_), error.exit_code(), error.what()}, now);
  }
}

// The accusation may be the root's, or one that this process makes.
void Liveness::pass_on_accusation(TimePoint now) {
  if (announced_) return;
  const auto accusation = job_->accusation();
  if (!accusation) return;
  announced_ = true;
  accused_at_ = now;
  store_.interrupt();
  {
    std::lock_guard lock(meetings_mutex_);
    over_ = true;
    meetings_changed_.notify_all();
  }
  driver_->node().accuse(*accusation, now);
  driver_->act();
}

void Liveness::look_for_stopped(TimePoint now) {
  if (now < next_look_) return;
  next_look_ = now + kStep;
  for (const int rank : driver_->node().neighbours()) {
    const Member& member = members_[rank];
    if (!same_host(member, members_[rank_])) continue;
    if (stopped_[rank].look(is_stopped(member.pid, member.started), now))
      driver_->node().lose(rank, "stopped (SIGSTOP or Ctrl-Z)", now);
  }
}

TimePoint Liveness::stays_until() const {
  const bool others_may_ask = rank_ == 0 && announced_ && driver_->node().table().tree.levels() > 1;
  return others_may_ask ? accused_at_ + kRootStays : TimePoint{};
}

void Liveness::call_on_lost(TimePoint now) {
  if (!announced_ || noticed_ || now < std::max(accused_at_ + options_.notice_grace, stays_until())) return;
  noticed_ = true;
  if (options_.on_lost) options_.on_lost(*job_->accusation());
}

// Sends the last messages: Bye after a close(), or the accusation that makes this rank leave.
void Liveness::finish() {
  const TimePoint now = steady_clock::now();
  take_orders(now);
  pass_on_accusation(now);
  while (steady_clock::now() < stays_until()) driver_->step(stays_until());
  if (closing_) driver_->node().leave();
  driver_->finish(steady_clock::now() + (closing_ ? kFarewell : kTelling), closing_);
}

void Liveness::post(Order order) {
  {
    std::lock_guard lock(orders_mutex_);
    orders_.push_back(std::move(order));
  }
  wake_->ring();
}

void Liveness::take_orders(TimePoint now) {
  std::vector<Order> orders;
  {
    std::lock_guard lock(orders_mutex_);
    orders.swap(orders_);
  }
  for (const Order& order : orders) order(driver_->node(), now);
}

std::string lost_message(const Accusation& accusation, const std::string& during) {
  return fmt::format("lost rank {} (host {}){}: {}", accusation.world_rank, accusation.host,
                     during.empty() ? "" : " during " + during, escape_control(accusation.cause));
}

}  // namespace trivet::comm
