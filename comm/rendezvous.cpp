#include "comm/rendezvous.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>

#include "comm/network_interface.h"
#include "comm/process_state.h"
#include "comm/stopped_for_long.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kStep{100};
constexpr milliseconds kTellingAll{1000};  // time that a rank that gives up may take to tell those below it
constexpr size_t kVisitors = 256,
                 kMostVisitors = 2048;  // at a listener; all hosts' nodes may come to the root at the same time

double seconds(milliseconds time) { return static_cast<double>(time.count()) / 1000; }

// Looks for ranks that were stopped before they joined, and says so if one of the awaited ranks was stopped for long.
class StoppedWatch {
 public:
  explicit StoppedWatch(const RendezvousOptions& options) : options_(options) {}

  std::optional<std::string> look(const std::vector<int>& awaited) {
    const TimePoint now = steady_clock::now();
    if (!options_.find_stopped || now < next_look_) return std::nullopt;
    next_look_ = now + kLookEvery;
    std::map<int, int64_t> stopped;
    for (const StoppedRank& found : options_.find_stopped()) stopped[found.rank] = found.pid;
    for (int rank : awaited) {
      const auto found = stopped.find(rank);
      if (!stopped_for_long_[rank].look(found != stopped.end(), now)) continue;
      return fmt::format(
          "rank {} (pid {}) was stopped (SIGSTOP or Ctrl-Z) before it joined; continue it with kill -CONT "
          "{}, or end it, and start the job again",
          rank, found->second, found->second);
    }
    return std::nullopt;
  }

 private:
  static constexpr milliseconds kLookEvery{200};
  const RendezvousOptions& options_;
  std::map<int, StoppedForLong> stopped_for_long_;
  TimePoint next_look_ = steady_clock::now() + kLookEvery;  // most jobs are complete by then
};

// Allows this process so many more open files, if it may: many systems allow 1,024, and visitors must not use up what the rest
// of the program needs.
void allow_more_open_files(size_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, limit.rlim_cur + count);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string address_of(const std::string& host, int port) { return fmt::format("{}:{}", host, port); }

Descriptor listener_of_root(RendezvousOptions& options) {
  if (options.listener) return std::move(options.listener);
  wait_for_name(options.address, {steady_clock::now() + options.join_deadline});
  return listen_on(options.address, options.port);
}

// Local rank 0 of a host in a large job.
void become_node(const RendezvousOptions& options, control::DriverOptions& driver) {
  wait_for_name(options.address, {steady_clock::now() + options.join_deadline});
  const std::string here = choose_network_interface(options.network_interface, options.address).address;
  Descriptor listener = listen_on(here, 0);
  driver.node.self.node = options.self.rank;
  driver.node.self.address = address_of(here, port_of(listener));
  driver.listeners.push_back(std::move(listener));
}

control::DriverOptions driver_options(RendezvousOptions& options) {
  const Member& self = options.self;
  control::DriverOptions driver{.node = {}, .secret = options.secret, .listeners = {}};
  driver.most_visitors = kVisitors;
  driver.node.root = address_of(options.address, options.port);
  driver.node.entrance = driver.node.root;
  driver.node.fan_out = options.fan_out;
  driver.node.beat = options.beat;
  driver.node.silence = options.silence;
  driver.node.join_deadline = options.join_deadline;
  driver.node.node_deadline = options.node_deadline;
  if (self.rank == 0) {
    driver.listeners.push_back(listener_of_root(options));
    driver.node.self.node = 0;
    driver.most_visitors = std::clamp(static_cast<size_t>(self.world_size), kVisitors, kMostVisitors);
    allow_more_open_files(static_cast<size_t>(self.world_size));  // while they join, all hosts' nodes are connected to the root
  }
  if (options.host && self.world_size > options.star_ranks) {
    if (self.rank != 0 && options.host->local_rank == 0) become_node(options, driver);
    if (driver.node.self.node >= 0) {
      driver.node.ranks_here = options.host->local_size;
      if (auto door = listen_on_this_host(name_of_node(options)))
        driver.listeners.push_back(std::move(*door));
      else
        Log(self.rank).warning(
            "rendezvous: the name at which the ranks of this host look for this one is taken; they join at rank 0 instead");
    } else {
      driver.node.entrance = "@" + name_of_node(options);
    }
  }
  allow_more_open_files(driver.listeners.size() * driver.most_visitors);
  driver.node.self.member = self;
  if (self.rank == 0 && self.job_id.empty()) driver.node.self.member.job_id = hexadecimal(random_bytes(8));
  return driver;
}

// One rank's part in the rendezvous.
class Joining {
 public:
  explicit Joining(RendezvousOptions& options)
      : options_(options),
        started_(steady_clock::now()),
        report_(started_ + options.progress_every),
        stopped_(options),
        driver_(std::make_unique<control::Driver>(driver_options(options))) {}

  Joined run() {
    for (;;) {
      for (const control::Message& event : driver_->step(steady_clock::now() + kStep)) {
        if (std::holds_alternative<control::Announce>(event)) return joined();
        if (const auto* refuse = std::get_if<control::Refuse>(&event)) fail(refuse->refusal);
      }
      if (options_.self.world_size > options_.star_ranks) driver_->look_up_root();
      if (driver_->node().is_root()) {
        report_progress();
      } else {
        look_at_deadline();
      }
      look_for_stopped();
    }
  }

 private:
  Joined joined() {
    const control::Table& table = driver_->node().table();
    warn_of_many_at_the_root(table);
    driver_->has_joined();
    Joined joined{.members = {}, .job_id = table.job_id, .driver = nullptr};
    for (const control::Seat& seat : table.seats) joined.members.push_back(seat.member);
    joined.driver = std::move(driver_);
    return joined;
  }

  void warn_of_many_at_the_root(const control::Table& table) const {
    const auto is_alone = [&](const control::Seat& seat) {
      return seat.node == 0 && !same_host(seat.member, table.seats[0].member);
    };
    const auto count = std::count_if(table.seats.begin(), table.seats.end(), is_alone);
    if (options_.self.rank == 0 && count > options_.star_ranks)
      Log(0).warning(
          fmt::format("rendezvous: {} ranks of other hosts are connected to rank 0 itself, because they do not know their "
                      "place on their hosts; set LOCAL_RANK and LOCAL_WORLD_SIZE, as launchers do",
                      count));
  }

  [[noreturn]] void fail(const Refusal& refusal) {
    driver_->finish(steady_clock::now() + kTellingAll, false);
    throw CommError(refusal.code, "rendezvous: " + escape_control(refusal.reason));
  }

  void report_progress() {
    const control::Gathering* gathering = driver_->node().gathering();
    const auto now = steady_clock::now();
    if (now < report_) return;
    report_ += options_.progress_every;
    Log(0).info(fmt::format("rendezvous: {}, waiting up to {} s",
                            gathering->missing_text(std::chrono::duration_cast<milliseconds>(now - started_)),
                            seconds(options_.join_deadline)));
  }

  // Whoever is not connected by then says why; the others wait for what the root says.
  void look_at_deadline() {
    if (driver_->node().has_way_in() || steady_clock::now() < started_ + options_.join_deadline) return;
    driver_->node().give_up({ExitCode::Rendezvous, driver_->why_not_joined(options_.join_deadline)});
  }

  void look_for_stopped() {
    control::Node& node = driver_->node();
    std::optional<std::string> stopped;
    if (const auto& welcome = node.welcome()) {
      const bool is_lost = same_host(*welcome, options_.self) &&
                           host_stopped_.look(is_stopped(welcome->pid, welcome->started), steady_clock::now());
      if (is_lost)
        stopped = fmt::format(
            "rank {} ({}) was stopped (SIGSTOP or Ctrl-Z); continue it with kill -CONT {}, or end it, and "
            "start the job again",
            welcome->rank, welcome->where(), welcome->pid);
    } else {
      stopped = stopped_.look(node.is_root() ? node.gathering()->missing() : std::vector{0});
    }
    if (stopped) node.give_up({ExitCode::Rendezvous, *stopped});
  }

  RendezvousOptions& options_;
  const TimePoint started_;
  TimePoint report_;
  StoppedWatch stopped_;
  StoppedForLong host_stopped_;  // host of the rank that has received this one's Join
  std::unique_ptr<control::Driver> driver_;
};

}  // namespace

std::string name_of_node(const RendezvousOptions& options) {
  const Member& self = options.self;
  return "trivet-" + hidden_name(options.secret, fmt::format("{}|{}|{}|{}|{}|{}", options.address, options.port, self.job_id,
                                                             self.epoch, self.host, self.boot_id));
}

Joined rendezvous(RendezvousOptions options) {
  if (options.secret.empty()) {
    throw ConfigError(
        fmt::format("MASTER_ADDR: {} is not this machine's loopback address, and there is no secret, so anybody could "
                    "join; set TRIVET_SECRET_FILE to a file of mode 600, or MASTER_ADDR to 127.0.0.1",
                    escape_control(options.address)));
  }
  return Joining(options).run();
}

}  // namespace trivet::comm
