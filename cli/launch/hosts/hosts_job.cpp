#include "cli/launch/hosts/hosts_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "cli/launch/guardian.h"
#include "cli/launch/hosts/awaited_hosts.h"
#include "cli/launch/hosts/exported_environment.h"
#include "cli/launch/hosts/host_agent.h"
#include "cli/launch/hosts/hosts_verdict.h"
#include "cli/launch/hosts/preflight.h"
#include "cli/launch/hosts/program_copy.h"
#include "cli/launch/hosts/remote_command.h"
#include "cli/launch/output.h"
#include "cli/launch/relay.h"
#include "cli/launch/running_time.h"
#include "cli/repeated_signals.h"
#include "comm/member.h"
#include "comm/secret.h"
#include "core/printable.h"
#include "core/shell_words.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kOneSignal{250};
// The time to report, to listen, and to reach rank 0's host.
constexpr seconds kPreparation{30};
// The time from a failure until all agents have ended their ranks (2 s + 10 s + 10 s, supervisor.h) and said so.
constexpr seconds kEnding{25};
// An agent that is to end its ranks and says nothing for so long is lost, if that is less than --host-timeout.
constexpr seconds kSilenceAtTheEnd{5};
// After a failure, for somebody who reads the output.
constexpr seconds kUnreadOutputOfHosts{5};

constexpr const char* kNoProgram = "; install trivet there under the same path, or give --copy_program";

struct HostOfJob {
  HostState state;
  std::unique_ptr<HostAgent> link;
  std::optional<int> port;  // port of rank 0's socket
  bool is_greeted = false;
  bool reached = false;
  bool over = false;  // it has said how all of its ranks ended, or it was lost
  RunningTime::Duration heard_at = {};
  std::array<std::string, 2> printed = {};  // text that has not been passed on yet, by Relay::Target
  bool has_failed_rank = false;
};

class HostsJob {
 public:
  HostsJob(const LaunchRequest& request, const std::vector<HostRanks>& hosts, const comm::Environment& inherited,
           GuardianEnds ends);
  JobOutcome run();

 private:
  void start_agents(const std::vector<HostRanks>& hosts);
  void describe_task();
  // Throws the error for what keeps hosts from running their ranks.
  void prepare();
  JobOutcome not_started(const Error& error) const;
  std::string address_of_rank_zero() const;
  void check_hosts();
  // Handles what comes until `condition` holds for all hosts without a problem. False after `most` of running time, or at a
  // signal.
  bool wait_until(const std::function<bool(const HostOfJob&)>& condition, Clock::duration most);
  void step(milliseconds most);
  void handle(HostOfJob& host, const AgentMessage& message);
  void handle(HostOfJob& host, const Control& control);
  // The agent has said which build it is.
  void greet(HostOfJob& host);
  void take_event(HostOfJob& host, const std::string& event);
  // While there is room for it. Until an agent is told, it lets its ranks print only so much.
  void pass_on_what_was_printed(HostOfJob& host);
  void drain();
  void read_orders();
  void obey(int signal);
  void end_for_a_host_that_returned();
  void fail();
  void lose(HostOfJob& host, const std::string& why);
  void lose_the_silent();
  std::vector<HostRanks> hosts_and_ranks() const;
  bool all_over() const;
  void send_to_all(const Control& control);

  const LaunchRequest& request_;
  const comm::Environment& inherited_;
  const GuardianEnds ends_;
  const std::string job_id_ = comm::hexadecimal(comm::random_bytes(8));
  Relay relay_;
  HostTask task_;  // without the part of a host
  std::vector<HostOfJob> hosts_;
  std::optional<AwaitedHosts> awaited_;
  std::optional<std::string> returned_;  // the host for which the job was ended
  JobRecord record_;
  std::optional<JobOutcome> unexplained_;  // outcome of the first agent that failed although none of its ranks had
  int look_ = 0;
  bool running_ = false;  // the ranks were told to start
  bool failed_ = false;
  bool launcher_is_gone_ = false;
  RunningTime running_time_{2 * kAliveEvery};  // in which the agents' silence is measured
  RunningTime::Duration gives_up_at_ = RunningTime::Duration::max();
  Clock::time_point said_alive_at_ = Clock::now(), signal_came_at_ = {};
};

HostsJob::HostsJob(const LaunchRequest& request, const std::vector<HostRanks>& hosts, const comm::Environment& inherited,
                   GuardianEnds ends)
    : request_(request), inherited_(inherited), ends_(ends) {
  describe_task();
  start_agents(hosts);
}

void HostsJob::start_agents(const std::vector<HostRanks>& hosts) {
  for (const HostRanks& on : hosts) {
    HostOfJob host{.state = {.on = on}};
    comm::Environment environment = inherited_;
    // An agent on this host would take the user's own connection for the launcher's.
    if (is_this_host(on.host.name)) environment.erase("SSH_CONNECTION");
    host.link = std::make_unique<HostAgent>(agent_command(request_, on.host), environment);
    host.heard_at = running_time_.so_far();
    hosts_.push_back(std::move(host));
  }
}

void HostsJob::describe_task() {
  task_ = {.on = {},
           .directory = fs::current_path(),
           .environment = exported_environment(inherited_),
           .files = {},
           .one_output = relay_.has_one_output(),
           .job_id = job_id_,
           .secret = comm::random_bytes(32),
           .request = request_};
  // A word after a flag may name a file that the program writes.
  for (size_t i = 1; i < request_.program.size(); ++i) {
    std::error_code ignored;
    if (!request_.program[i - 1].starts_with("-") && fs::is_regular_file(request_.program[i], ignored))
      task_.files.push_back(request_.program[i]);
  }
}

JobOutcome HostsJob::run() {
  try {
    prepare();
  } catch (const Error& error) {
    return not_started(error);
  }
  running_ = true;
  for (HostOfJob& host : hosts_) host.heard_at = running_time_.so_far();
  awaited_.emplace(request_, inherited_, task_);
  while (!all_over() && !launcher_is_gone_) {
    step(kAliveEvery);
    lose_the_silent();
    end_for_a_host_that_returned();
  }
  awaited_.reset();
  drain();
  return verdict_of(record_, {.unexplained = unexplained_, .returned = returned_, .hosts = hosts_and_ranks()});
}

// Waits as on one host (supervisor.h): after a success for the reader; otherwise it gives up when nobody reads.
void HostsJob::drain() {
  const int signal = record_.signal;
  const auto waiting = [&] {
    size_t bytes = relay_.waiting_bytes();
    for (const HostOfJob& host : hosts_) bytes += host.printed[0].size() + host.printed[1].size();
    return bytes;
  };
  auto progress = Clock::now();
  for (size_t left = waiting(); left > 0;) {
    step(milliseconds(100));
    if (launcher_is_gone_ || record_.killed_by_second_signal || record_.signal != signal) break;
    if (std::exchange(left, waiting()) != waiting()) progress = Clock::now();
    if (failed_ && Clock::now() - progress > kUnreadOutputOfHosts) break;
  }
  const size_t lost = relay_.dropped_bytes() + waiting();
  if (lost > 0) relay_.say(fmt::format("{} bytes that the ranks printed were dropped: nobody read them", lost));
  relay_.close();
}

void HostsJob::prepare() {
  wait_until([](const HostOfJob& host) { return host.state.report.has_value(); }, kPreparation);
  std::vector<HostState> states;
  for (HostOfJob& host : hosts_) {
    if (!host.state.report && host.state.problems.empty())
      add_problem(host.state, ExitCode::Rendezvous, fmt::format("has not answered within {} s", kPreparation.count()));
    states.push_back(host.state);
  }
  compare_reports(states);
  for (size_t i = 0; i < states.size(); ++i) hosts_[i].state = std::move(states[i]);
  check_hosts();

  HostOfJob& first = hosts_[0];
  Address zero{address_of_rank_zero(), request_.master_port};
  first.link->send({.listen = zero});
  wait_until([&](const HostOfJob& host) { return &host != &first || host.port.has_value(); }, kPreparation);
  if (!first.port && first.state.problems.empty())
    add_problem(first.state, ExitCode::Rendezvous,
                fmt::format("has not said within {} s whether rank 0 can listen there", kPreparation.count()));
  check_hosts();
  zero.port = *first.port;
  for (HostOfJob& host : hosts_)
    if (&host != &first) host.link->send({.reach = zero});
  wait_until([&](const HostOfJob& host) { return &host == &first || host.reached; }, kPreparation);
  for (HostOfJob& host : hosts_) {
    if (&host == &first || host.reached || !host.state.problems.empty()) continue;
    add_problem(host.state, ExitCode::Rendezvous,
                fmt::format("has not said within {} s whether it reaches {}:{}", kPreparation.count(), zero.host, zero.port));
  }
  check_hosts();
  send_to_all({.start = zero});
}

// Returns an outcome that lists the hosts to leave out of the next start.
JobOutcome HostsJob::not_started(const Error& error) const {
  JobOutcome outcome{
      .exit_code = static_cast<int>(error.exit_code()), .text = error.what(), .ended_by_signal = record_.signal != 0};
  const auto is_missing = [](const HostOfJob& host) {
    return !host.state.problems.empty() && host.state.code == ExitCode::Rendezvous;
  };
  // If nobody reaches the first host, it is the one that is missing.
  const auto cannot_reach = [&](const HostOfJob& host) { return is_missing(host) && !host.over; };
  if (hosts_[0].port && hosts_.size() > 2 && std::all_of(hosts_.begin() + 1, hosts_.end(), cannot_reach)) {
    outcome.lost_hosts = {hosts_[0].state.on.host.name};
    return outcome;
  }
  for (const HostOfJob& host : hosts_)
    if (is_missing(host)) outcome.lost_hosts.push_back(host.state.on.host.name);
  return outcome;
}

void HostsJob::check_hosts() {
  if (record_.signal != 0)
    throw Error(static_cast<ExitCode>(128 + record_.signal),
                fmt::format("launch: ended by signal {} before the ranks started", name_of_signal(record_.signal)));
  std::vector<HostState> states;
  for (const HostOfJob& host : hosts_) states.push_back(host.state);
  const auto error = error_of(states);
  if (!error) return;
  if (!request_.quiet) relay_.pass_on(Relay::Target::Error, printable_lines(table_of(states)));
  relay_.close();
  throw *error;
}

// The first host knows under which address the launcher reached it; if the launcher reached it without the network, the others
// know which address of the launcher they were reached from.
std::string HostsJob::address_of_rank_zero() const {
  if (!request_.master_address.empty()) return request_.master_address;
  if (!hosts_[0].state.report->address.empty()) return hosts_[0].state.report->address;
  for (const HostOfJob& host : hosts_)
    if (!host.state.report->address_of_launcher.empty()) return host.state.report->address_of_launcher;
  return "127.0.0.1";
}

bool HostsJob::wait_until(const std::function<bool(const HostOfJob&)>& condition, Clock::duration most) {
  const auto end = running_time_.so_far() + most;
  while (record_.signal == 0 && !launcher_is_gone_ && running_time_.so_far() < end) {
    if (std::all_of(hosts_.begin(), hosts_.end(),
                    [&](const HostOfJob& host) { return !host.state.problems.empty() || condition(host); }))
      return true;
    step(milliseconds(100));
  }
  return false;
}

void HostsJob::step(milliseconds most) {
  std::vector<pollfd> entries;
  if (!launcher_is_gone_) entries.push_back({ends_.orders, POLLIN, 0});
  for (const HostOfJob& host : hosts_)
    if (!host.over) host.link->add_to(entries);
  if (awaited_) awaited_->add_to(entries);
  relay_.add_to(entries, failed_);
  ::poll(entries.data(), entries.size(), static_cast<int>(most.count()));
  running_time_.look();
  ++look_;
  const bool alive = Clock::now() - said_alive_at_ >= kAliveEvery;
  if (alive) said_alive_at_ = Clock::now();
  for (HostOfJob& host : hosts_) {
    if (host.over) continue;
    host.link->step();
    if (!host.is_greeted && host.link->build()) greet(host);
    if (alive && host.is_greeted) host.link->send({.alive = true});
    try {
      while (const auto message = host.link->next()) handle(host, *message);
    } catch (const CommError& error) {
      lose(host, error.what());
    }
    while (const auto complaint = host.link->next_complaint())
      if (running_) relay_.pass_on(Relay::Target::Error, fmt::format("[{}] {}\n", host.state.on.host.name, *complaint));
    if (!host.over && host.link->has_ended()) {
      const std::string why = host.link->why_it_ended();
      lose(host, why + (host.link->found_no_program() ? kNoProgram : ""));
    }
  }
  for (HostOfJob& host : hosts_) pass_on_what_was_printed(host);
  relay_.step(failed_);
  read_orders();
}

void HostsJob::handle(HostOfJob& host, const AgentMessage& message) {
  host.heard_at = running_time_.so_far();
  switch (message.kind) {
    case AgentMessage::Kind::Control: return handle(host, decode_control(message.text));
    case AgentMessage::Kind::Event: return take_event(host, message.text);
    case AgentMessage::Kind::Output: host.printed[0] += message.text; return;
    case AgentMessage::Kind::Error: host.printed[1] += message.text; return;
  }
}

void HostsJob::handle(HostOfJob& host, const Control& control) {
  if (control.report) {
    host.state.report = control.report;
    host.state.clock_ahead_s =
        control.report->time - std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    for (const std::string& problem : control.report->problems) add_problem(host.state, ExitCode::Usage, problem);
  }
  if (control.listening) host.port = control.listening;
  if (control.reached) {
    host.reached = control.reached->empty();
    if (!host.reached) add_problem(host.state, ExitCode::Rendezvous, *control.reached);
  }
  if (control.failed) add_problem(host.state, ExitCode::Rendezvous, *control.failed);
  if (control.ended) {
    host.over = true;
    if (control.ended->exit_code == 0) return;
    if (!host.has_failed_rank && !unexplained_)
      unexplained_ = {.exit_code = control.ended->exit_code,
                      .text = fmt::format("launch: host {}: {}", host.state.on.host.name, control.ended->text)};
    fail();
  }
}

void HostsJob::greet(HostOfJob& host) {
  host.is_greeted = true;
  if (*host.link->build() != comm::build_digest()) {
    add_problem(host.state, ExitCode::VersionSkew,
                fmt::format("runs build {}, and the launcher build {}; install the same there, or give --copy_program",
                            printable(*host.link->build()), comm::build_digest()));
    return;
  }
  task_.on = host.state.on;
  host.link->send({.task = task_});
}

void HostsJob::take_event(HostOfJob& host, const std::string& event) {
  if (event == kHadToKillMessage) {
    record_.had_to_kill = true;
  } else if (auto end = rank_end_from_message(event)) {
    end->look = look_;
    end->host = host.state.on.host.name;
    record_.ends.push_back(*end);
    if (end->exit_code == 0) return;
    host.has_failed_rank = true;
    fail();
  } else if (auto loss = comm::loss_from_message(event)) {
    record_.losses.push_back(std::move(*loss));
  }
}

void HostsJob::pass_on_what_was_printed(HostOfJob& host) {
  std::array<int64_t, 2> printed{};
  for (const auto target : {Relay::Target::Output, Relay::Target::Error}) {
    std::string& text = host.printed[static_cast<size_t>(target)];
    if (text.empty() || !(failed_ || relay_.has_room(target))) continue;
    relay_.pass_on(target, text);
    printed[static_cast<size_t>(target)] = static_cast<int64_t>(text.size());
    text.clear();
  }
  if (!host.over && printed[0] + printed[1] > 0) host.link->send({.printed = printed});
}

void HostsJob::read_orders() {
  for (;;) {
    int signal = 0;
    const ssize_t got = ::recv(ends_.orders, &signal, sizeof signal, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got != sizeof signal) {
      launcher_is_gone_ = true;  // the agents end everything when their input ends
      return;
    }
    obey(signal);
  }
}

void HostsJob::obey(int signal) {
  const auto now = Clock::now();
  if (signal == SIGUSR1 || signal == SIGUSR2) return send_to_all({.order = signal});
  const bool again = record_.signal != 0;
  if (again && (may_be_repeated(signal) || (signal == record_.signal && now - signal_came_at_ < kOneSignal))) return;
  record_.signal = signal;
  record_.patience_s = request_.shutdown_timeout_s;
  record_.killed_by_second_signal = again;
  signal_came_at_ = now;
  gives_up_at_ = running_time_.so_far() + (again ? kEnding : seconds(request_.shutdown_timeout_s) + kEnding);
  failed_ = true;                   // nothing waits for a reader any more
  if (returned_ && !again) return;  // the ranks are ending already, and would take another signal for the second
  // The same signal twice would be taken for one if it arrives there within a moment.
  send_to_all({.order = again ? SIGKILL : signal});
}

// Ends the ranks as after a signal to the launcher, but their end is not the job's end.
void HostsJob::end_for_a_host_that_returned() {
  if (failed_) awaited_.reset();
  if (!awaited_) return;
  awaited_->step();
  if (!awaited_->returned()) return;
  returned_ = awaited_->returned();
  if (!request_.quiet)
    relay_.say(fmt::format("host {} answers again; the ranks save and end, and start again with it", *returned_));
  failed_ = true;
  gives_up_at_ = running_time_.so_far() + seconds(request_.shutdown_timeout_s) + kEnding;
  send_to_all({.order = SIGTERM});
}

void HostsJob::fail() {
  if (failed_) return;
  failed_ = true;
  gives_up_at_ = running_time_.so_far() + kEnding;
  send_to_all({.order = kFailedElsewhere});
}

void HostsJob::lose(HostOfJob& host, const std::string& why) {
  if (!running_) {
    if (host.state.problems.empty()) add_problem(host.state, ExitCode::Rendezvous, why);
    host.over = true;
    return;
  }
  host.over = true;
  const HostRanks& on = host.state.on;
  record_.hosts.push_back({on.host.name, on.first_rank, on.last_rank(), printable(why), look_});
  if (!request_.quiet) relay_.say(fmt::format("host {} was lost: {}", on.host.name, printable(why)));
  fail();
}

void HostsJob::lose_the_silent() {
  for (HostOfJob& host : hosts_) {
    if (host.over) continue;
    const auto silent = running_time_.so_far() - host.heard_at;
    const seconds most(request_.host_timeout_s);
    if (silent > (failed_ ? std::min(most, kSilenceAtTheEnd) : most))
      lose(host, fmt::format("its agent has said nothing for {} s", std::chrono::duration_cast<seconds>(silent).count()));
    else if (failed_ && running_time_.so_far() > gives_up_at_)
      lose(host, "its agent has not ended its ranks in time");
  }
}

std::vector<HostRanks> HostsJob::hosts_and_ranks() const {
  std::vector<HostRanks> all;
  for (const HostOfJob& host : hosts_) all.push_back(host.state.on);
  return all;
}

bool HostsJob::all_over() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const HostOfJob& host) { return host.over; });
}

void HostsJob::send_to_all(const Control& control) {
  for (HostOfJob& host : hosts_)
    if (!host.over && host.is_greeted) host.link->send(control);
}

}  // namespace

std::vector<std::string> agent_command(const LaunchRequest& request, const Host& host) {
  if (is_this_host(host.name)) return {"trivet", "launch-agent"};
  const std::string program = request.copy_program ? copied_program() : quoted(fs::read_symlink("/proc/self/exe").string());
  return ssh_command(request, host.login(), "exec " + program + " launch-agent");
}

JobOutcome run_on_hosts(const LaunchRequest& request, const std::vector<HostRanks>& hosts, const comm::Environment& inherited) {
  ignore_signals_of_outputs();
  LauncherSide side;
  return run_guarded(
      [&](const GuardianEnds& ends) {
        if (request.copy_program) copy_program(request, hosts, inherited, ends);
        return HostsJob(request, hosts, inherited, ends).run();
      },
      side);
}

}  // namespace trivet::cli
