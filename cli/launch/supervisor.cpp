#include "cli/launch/supervisor.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace trivet::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSelfEnding{2000}, kTermination{10000};

sigset_t watched_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set, signal);
  return set;
}

}  // namespace

Supervisor::Supervisor(bool quiet) : quiet_(quiet) {
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  signals_ = comm::Descriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

Supervisor::~Supervisor() {
  kill_all();
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

void Supervisor::watch(int rank, int pid) { ranks_.push_back({rank, pid}); }

Verdict Supervisor::run() {
  while (any_running()) {
    wait_for_news();
    relay_.step();
    read_signals();
    collect_ended();
    next_phase(Clock::now());
  }
  relay_.finish();
  return verdict();
}

bool Supervisor::any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
}

void Supervisor::wait_for_news() {
  std::vector<pollfd> entries{{signals_.number(), POLLIN, 0}};
  relay_.add_to(entries);
  int timeout_ms = -1;
  if (phase_ != Phase::Running) {
    const auto left = std::chrono::ceil<milliseconds>(phase_ends_ - Clock::now()).count();
    timeout_ms = static_cast<int>(std::clamp<int64_t>(left, 0, 60000));
  }
  ::poll(entries.data(), entries.size(), timeout_ms);
}

void Supervisor::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.number(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    const bool again = received_signal_ != 0;
    received_signal_ = signal;
    report(fmt::format("signal {} received, {} all ranks", signal, again ? "killing" : "passing it on to"));
    again ? enter(Phase::Killing, SIGKILL) : enter(Phase::Terminating, signal);
  }
}

void Supervisor::collect_ended() {
  for (Rank& rank : ranks_) {
    siginfo_t info{};
    if (!rank.running || ::waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) continue;
    if (info.si_pid == 0) continue;
    ::kill(-rank.pid, SIGKILL);  // what it started; its number cannot be another's before it is waited for
    int status = 0;
    ::waitpid(rank.pid, &status, 0);
    rank.running = false;
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const int code = signal != 0 ? 128 + signal : WEXITSTATUS(status);
    note({rank.rank, rank.pid, code, signal, phase_ == Phase::Terminating || phase_ == Phase::Killing});
  }
}

void Supervisor::note(RankEnd end) {
  ends_.push_back(end);
  if (end.exit_code == 0) return;
  if (!end.by_us) report(describe(end));
  if (phase_ == Phase::Running) {
    phase_ = Phase::Waiting;
    phase_ends_ = Clock::now() + kSelfEnding;
  }
}

void Supervisor::next_phase(Clock::time_point now) {
  if (now < phase_ends_ || !any_running()) return;
  if (phase_ == Phase::Waiting) {
    report("ending the ranks that still run (SIGTERM)");
    enter(Phase::Terminating, SIGTERM);
  } else if (phase_ == Phase::Terminating) {
    report(fmt::format("killing the ranks that have not ended in {} s (SIGKILL)", kTermination.count() / 1000));
    enter(Phase::Killing, SIGKILL);
  }
}

void Supervisor::enter(Phase phase, int signal) {
  phase_ = phase;
  phase_ends_ = phase == Phase::Killing ? Clock::time_point::max() : Clock::now() + kTermination;
  send_all(signal);
}

void Supervisor::send_all(int signal) {
  for (const Rank& rank : ranks_) {
    if (!rank.running) continue;
    ::kill(-rank.pid, signal);
    if (signal != SIGKILL) ::kill(-rank.pid, SIGCONT);  // a stopped one could not obey
  }
}

void Supervisor::kill_all() {
  send_all(SIGKILL);
  for (Rank& rank : ranks_) {
    if (rank.running) ::waitpid(rank.pid, nullptr, 0);
    rank.running = false;
  }
}

void Supervisor::report(const std::string& text) const {
  if (!quiet_) write_all(STDERR_FILENO, "trivet launch: " + text + "\n");
}

Verdict Supervisor::verdict() const {
  if (received_signal_ != 0) return {128 + received_signal_, fmt::format("launch: ended by signal {}", received_signal_)};
  const RankEnd* cause = root_cause(ends_);
  if (cause == nullptr) return {};
  return {cause->exit_code, "launch: " + describe(*cause)};
}

}  // namespace trivet::cli
