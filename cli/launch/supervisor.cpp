#include "cli/launch/supervisor.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cli/launch/processes.h"
#include "cli/repeated_signals.h"

namespace trivet::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSelfEnding{2000}, kTermination{10000}, kKilling{10000};
// timeout(1) sends its signal twice: to the launcher and to the launcher's process group.
constexpr milliseconds kSameSignal{250};
constexpr milliseconds kUnreadOutput{5000}, kForever{1 << 30};
// The most time between two looks for a sign of the launcher.
constexpr milliseconds kLookForLauncher{1000};

sigset_t signal_of_children() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  return set;
}

bool is_warning(int signal) { return signal == SIGUSR1 || signal == SIGUSR2; }

}  // namespace

Supervisor::Supervisor(SupervisorOptions options, GuardianEnds ends)
    : options_(std::move(options)), ends_(ends), relay_(options_.speaker), running_(2 * kLookForLauncher) {
  const sigset_t set = signal_of_children();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  child_news_ = Descriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

Supervisor::~Supervisor() { kill_all(); }

void Supervisor::watch(int rank, int pid) { ranks_.push_back({rank, pid}); }

JobOutcome Supervisor::run() {
  while (!is_over()) {
    wait_for_news(kForever);
    relay_.step(ranks_are_to_end());
    collect_ended();  // before the orders: a rank that ended before a signal came ended by itself
    read_reports();
    read_orders();
    lose_a_silent_launcher();
    next_phase(Clock::now());
  }
  read_reports();
  drain(kill_what_is_left());
  return outcome_of(record_);
}

bool Supervisor::any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
}

// While ranks are being ended, the processes that they started have as much time as the ranks.
bool Supervisor::is_over() const {
  if (any_running()) return false;
  siginfo_t info{};
  return phase_ != Phase::Terminating || ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0;
}

void Supervisor::wait_for_news(milliseconds most) {
  std::vector<pollfd> entries{{child_news_.number(), POLLIN, 0}, {ends_.reports, POLLIN, 0}};
  if (!launcher_is_gone_) entries.push_back({ends_.orders, POLLIN, 0});
  relay_.add_to(entries, ranks_are_to_end());
  if (phase_ == Phase::Waiting || phase_ == Phase::Terminating)
    most = std::clamp(std::chrono::ceil<milliseconds>(phase_ends_ - Clock::now()), milliseconds(0), most);
  if (options_.launcher_silence.count() > 0) most = std::min(most, kLookForLauncher);
  ::poll(entries.data(), entries.size(), static_cast<int>(most.count()));
  signalfd_siginfo ignored{};
  while (::read(child_news_.number(), &ignored, sizeof ignored) == sizeof ignored) {
  }
}

void Supervisor::read_orders() {
  for (;;) {
    int signal = 0;
    const ssize_t got = ::recv(ends_.orders, &signal, sizeof signal, MSG_DONTWAIT);
    if (got == sizeof signal) {
      launcher_heard_at_ = running_.so_far();
      if (signal == kStillHere) continue;
      if (signal == kFailedElsewhere) {
        expect_the_end();
      } else {
        is_warning(signal) ? pass_warning_on(signal) : obey(signal);
      }
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    } else {
      if (!launcher_is_gone_) give_up("the launcher has died; killing all ranks");
      return;
    }
  }
}

void Supervisor::lose_a_silent_launcher() {
  const auto silence = running_.look() - launcher_heard_at_;
  if (options_.launcher_silence.count() == 0 || silence < options_.launcher_silence || launcher_is_gone_) return;
  give_up("the agent has said nothing for too long, as if it were stopped; killing all ranks");
}

void Supervisor::give_up(const char* why) {
  launcher_is_gone_ = true;
  report(why);
  enter(Phase::Killing, SIGKILL, kForever);
}

void Supervisor::read_reports() {
  char buffer[1024];
  for (ssize_t got = 0; (got = ::recv(ends_.reports, buffer, sizeof buffer, MSG_DONTWAIT)) > 0;) {
    auto loss = comm::loss_from_message({buffer, static_cast<size_t>(got)});
    // Each rank names one that it has lost, and perhaps itself.
    if (!loss || record_.losses.size() >= 2 * ranks_.size()) continue;
    if (options_.announces) announce(ends_, comm::to_message(*loss));
    record_.losses.push_back(std::move(*loss));
  }
}

void Supervisor::obey(int signal) {
  const auto now = Clock::now();
  const bool again = record_.signal != 0;
  if (again && may_be_repeated(signal)) return;
  if (signal == record_.signal && now - signal_came_at_ < kSameSignal) return;
  record_.signal = signal;
  record_.patience_s = static_cast<int>(options_.shutdown_timeout.count());
  signal_came_at_ = now;
  report(fmt::format("signal {} received, {} all ranks", signal, again ? "killing" : "passing it on to"));
  if (again) {
    record_.killed_by_second_signal = true;
    if (!is_over()) note_that_it_had_to_kill();
  }
  again ? enter(Phase::Killing, SIGKILL, kForever) : enter(Phase::Terminating, signal, options_.shutdown_timeout);
}

// Sent only to processes that handle it: it would kill the others, such as a shell that waits for a trainer.
void Supervisor::pass_warning_on(int signal) {
  int told = 0;
  for (const Process& process : those_that_handle(signal, descendants())) told += send_signal(process, signal) ? 1 : 0;
  report(fmt::format("signal {} received, {}", name_of_signal(signal),
                     told == 0 ? "no process of the job handles it, so it is not passed on"
                               : fmt::format("passing it on to the {} processes of the job that handle it", told)));
}

void Supervisor::collect_ended() {
  ++look_;
  siginfo_t info{};
  while (info.si_pid = 0, ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    const auto rank =
        std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& r) { return r.running && r.pid == info.si_pid; });
    if (rank != ranks_.end()) {
      collect(*rank);
    } else {
      ::waitpid(info.si_pid, nullptr, 0);  // started by a rank that did not wait for it
    }
  }
}

void Supervisor::collect(Rank& rank) {
  // Its pid cannot become the id of another group before the waitpid below.
  if (phase_ != Phase::Terminating) ::kill(-rank.pid, SIGKILL);
  int status = 0;
  ::waitpid(rank.pid, &status, 0);
  rank.running = false;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const int code = signal != 0 ? 128 + signal : WEXITSTATUS(status);
  const bool by_us = phase_ == Phase::Terminating || phase_ == Phase::Killing;
  note({rank.rank, rank.pid, code, signal, by_us, rank.stopped, look_});
}

void Supervisor::note(const RankEnd& end) {
  record_.ends.push_back(end);
  if (options_.announces) announce(ends_, to_message(end));
  if (end.exit_code == 0) return;
  if (!end.by_us) report(describe(end));
  expect_the_end();
}

void Supervisor::note_that_it_had_to_kill() {
  record_.had_to_kill = true;
  if (options_.announces) announce(ends_, kHadToKillMessage);
}

void Supervisor::expect_the_end() {
  if (phase_ != Phase::Running) return;
  phase_ = Phase::Waiting;
  phase_ends_ = Clock::now() + kSelfEnding;
}

void Supervisor::next_phase(Clock::time_point now) {
  if (now < phase_ends_ || is_over()) return;
  if (phase_ == Phase::Waiting) {
    report("ending the ranks that still run (SIGTERM)");
    enter(Phase::Terminating, SIGTERM, std::min<milliseconds>(kTermination, options_.shutdown_timeout));
  } else if (phase_ == Phase::Terminating) {
    const auto patience = record_.signal != 0 ? milliseconds(options_.shutdown_timeout)
                                              : std::min<milliseconds>(kTermination, options_.shutdown_timeout);
    report(fmt::format("killing the ranks that have not ended in {} s (SIGKILL)", patience.count() / 1000));
    note_that_it_had_to_kill();
    enter(Phase::Killing, SIGKILL, kForever);
  }
}

void Supervisor::enter(Phase phase, int signal, milliseconds patience) {
  phase_ = phase;
  phase_ends_ = phase == Phase::Killing ? Clock::time_point::max() : Clock::now() + patience;
  send_all(signal);
}

void Supervisor::send_all(int signal) {
  for (Rank& rank : ranks_) {
    if (!rank.running) continue;
    rank.stopped = rank.stopped || is_stopped(rank.pid);
    ::kill(-rank.pid, signal);
    if (signal != SIGKILL) ::kill(-rank.pid, SIGCONT);  // a stopped process could not react
  }
  const auto reached = [&](const Process& process) {
    return std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& r) { return r.running && r.pid == process.group; });
  };
  for (const Process& process : descendants()) {  // in other process groups
    if (reached(process)) continue;
    send_signal(process, signal);
    if (signal != SIGKILL) send_signal(process, SIGCONT);
  }
}

void Supervisor::kill_all() {
  if (any_running()) send_all(SIGKILL);
  kill_descendants(kKilling);
  for (Rank& rank : ranks_) rank.running = false;
}

// Processes in the group of a rank were killed with it or were told to end. Processes that have left that group deserve a
// message.
bool Supervisor::kill_what_is_left() {
  std::vector<Process> left = descendants();
  std::erase_if(left, [&](const Process& process) {
    return std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return rank.pid == process.group; });
  });
  if (!left.empty() && !launcher_is_gone_) report(fmt::format("killing what the ranks have left running: {}", list_of(left)));
  const std::vector<Process> stayed = kill_descendants(kKilling);
  if (!stayed.empty()) report(fmt::format("these cannot be killed: {}", list_of(stayed)));
  return !stayed.empty();
}

// Passes on what the ranks printed last. After a success it waits for the reader like any program; otherwise it gives up when
// nobody reads. A process that cannot be killed may hold a pipe open forever; then only what has already arrived is passed on.
void Supervisor::drain(bool somebody_stays) {
  const bool failed = outcome_of(record_).exit_code != 0;
  const int signal = record_.signal;
  size_t waiting = relay_.waiting_bytes();
  auto progress = Clock::now();
  phase_ends_ = Clock::time_point::max();
  if (somebody_stays) {
    relay_.step(true);
    relay_.close();
  }
  while (relay_.has_open_pipes() || relay_.waiting_bytes() > 0) {
    relay_.step(failed);
    read_orders();
    lose_a_silent_launcher();
    if (launcher_is_gone_ || record_.killed_by_second_signal || record_.signal != signal) break;
    if (!relay_.has_open_pipes() && relay_.waiting_bytes() == 0) break;
    if (relay_.waiting_bytes() != std::exchange(waiting, relay_.waiting_bytes())) progress = Clock::now();
    if (failed && Clock::now() - progress > kUnreadOutput) break;
    wait_for_news(milliseconds(100));
  }
  const size_t lost = relay_.dropped_bytes() + relay_.waiting_bytes();
  if (lost > 0) relay_.say(fmt::format("{} bytes that the ranks printed were dropped: nobody read them", lost));
  relay_.close();
}

void Supervisor::report(const std::string& text) {
  if (!options_.quiet) relay_.say(text);
}

}  // namespace trivet::cli
