#include "cli/launch/guardian.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "cli/launch/processes.h"
#include "cli/launch/shortage.h"
#include "comm/launcher_link.h"
#include "core/descriptor.h"
#include "core/error.h"

namespace trivet::cli {
namespace {

// It needs as long as it takes to kill everything (supervisor.h).
constexpr std::chrono::milliseconds kGuardianKilling{10000}, kGuardianEnding{15000};
constexpr size_t kLongestText = 1 << 14;
// A launcher waits so long before it lets a stopped guardian go on.
constexpr std::chrono::milliseconds kMostPatience{1000};

// The signals that the launcher passes on, except those it was started to ignore, as under nohup: blocking an ignored signal
// would deliver it.
sigset_t signals_to_pass_on() {
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&set, signal);
  }
  return set;
}

bool ends_a_job(int signal) { return signal != SIGUSR1 && signal != SIGUSR2; }

}  // namespace

class SignalQueue {
 public:
  SignalQueue() : set_(signals_to_pass_on()), descriptor_(::signalfd(-1, &set_, SFD_NONBLOCK | SFD_CLOEXEC)) {
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~SignalQueue() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int number() const { return descriptor_.number(); }
  std::optional<int> next() const {
    signalfd_siginfo info{};
    if (::read(descriptor_.number(), &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t set_, before_{};
  Descriptor descriptor_;
};

namespace {

std::pair<Descriptor, Descriptor> socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw shortage("cannot make a pair of sockets", errno);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Sets the name by which ps, pkill and killall know this process. The kernel reports where the arguments are in its memory.
void rename_this_process(const std::string& name, const std::string& command_line) {
  ::prctl(PR_SET_NAME, name.c_str());
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  uintptr_t begin = 0, end = 0;
  std::string skipped;
  for (int field = 3; field < 48; ++field) fields >> skipped;
  if (!(fields >> begin >> end) || end <= begin) return;
  const size_t size = end - begin;
  auto* arguments = reinterpret_cast<char*>(begin);
  std::memset(arguments, 0, size);
  std::copy_n(command_line.data(), std::min(size - 1, command_line.size()), arguments);
}

// The guardian's messages to the launcher begin with one of these.
constexpr char kOutcome = 'o', kEvent = 'e';

void tell(int to, char kind, const std::string& text) {
  const std::string message = kind + text.substr(0, kLongestText);
  ::send(to, message.data(), message.size(), MSG_NOSIGNAL);
}

// Sends "CODE BY_SIGNAL LOST,HOSTS RETURNED,HOSTS TEXT". An outcome is sent in the same way as an error that ended the job
// before it had an outcome.
void send_outcome(int to, const JobOutcome& outcome) {
  tell(to, kOutcome,
       fmt::format("{} {} {} {} {}", outcome.exit_code, int{outcome.ended_by_signal}, fmt::join(outcome.lost_hosts, ","),
                   fmt::join(outcome.returned_hosts, ","), outcome.text));
}

std::optional<JobOutcome> read_outcome(const std::string& message) {
  JobOutcome outcome;
  std::istringstream words(message);
  if (!(words >> outcome.exit_code >> outcome.ended_by_signal) || words.get() != ' ') return std::nullopt;
  for (std::vector<std::string>* hosts : {&outcome.lost_hosts, &outcome.returned_hosts}) {
    std::string list;
    if (!std::getline(words, list, ' ')) return std::nullopt;
    std::istringstream names(list);
    for (std::string name; std::getline(names, name, ',');) hosts->push_back(name);
  }
  outcome.text = message.substr(words.eof() ? message.size() : static_cast<size_t>(words.tellg()));
  return outcome;
}

JobOutcome outcome_or_error(const std::function<JobOutcome(const GuardianEnds&)>& job, const GuardianEnds& ends) {
  try {
    return job(ends);
  } catch (const Error& error) {
    return {static_cast<int>(error.exit_code()), error.what()};
  } catch (const std::bad_alloc&) {
    return {static_cast<int>(ExitCode::OutOfMemory), "launch: out of host memory"};
  } catch (const std::exception& error) {
    return {static_cast<int>(ExitCode::Internal), error.what()};
  }
}

[[noreturn]] void be_guardian(const std::function<JobOutcome(const GuardianEnds&)>& job, const GuardianEnds& ends,
                              pid_t launcher) {
  ::setpgid(0, 0);  // signals of the terminal reach the launcher, which passes them on
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  rename_this_process(comm::kGuardianName, fmt::format("{} of pid {}", comm::kGuardianName, launcher));
  send_outcome(ends.orders, outcome_or_error(job, ends));
  ::_exit(0);
}

void order(int guardian, int what) { ::send(guardian, &what, sizeof what, MSG_NOSIGNAL | MSG_DONTWAIT); }

// A guardian that is stopped (SIGSTOP) would neither end the job nor notice that ranks have ended, so the launcher lets it go
// on after a while. The keys of a terminal do not stop it, because it is in a group of its own; whoever stops the whole job
// stops the launcher, too.
class StoppedGuardian {
 public:
  explicit StoppedGuardian(pid_t guardian) : guardian_(guardian) {}

  void look() {
    const auto now = std::chrono::steady_clock::now();
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(guardian_), &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
        info.si_pid == guardian_) {
      is_stopped_ = info.si_code == CLD_STOPPED;
      since_ = now;
    }
    if (!is_stopped_ || now - since_ < kMostPatience) return;
    is_stopped_ = false;
    fmt::print(stderr, "launch: the process that watches over the ranks (pid {}) was stopped; it goes on\n", guardian_);
    ::kill(guardian_, SIGCONT);
  }

 private:
  pid_t guardian_;
  bool is_stopped_ = false;
  std::chrono::steady_clock::time_point since_;
};

// Waits until the guardian reports how the job ended; none if the guardian ended without a report, or if nobody wants the job.
std::optional<JobOutcome> wait_for_outcome(const SignalQueue& signals, int guardian, pid_t pid, LauncherSide& side) {
  StoppedGuardian stopped(pid);
  while (!side.is_abandoned()) {
    std::vector<pollfd> entries{{signals.number(), POLLIN, 0}, {guardian, POLLIN, 0}};
    side.add_to(entries);
    const int patience_ms = side.patience_ms(), most_ms = static_cast<int>(kMostPatience.count());
    ::poll(entries.data(), entries.size(), patience_ms < 0 ? most_ms : std::min(patience_ms, most_ms));
    stopped.look();
    while (const auto signal = signals.next()) {
      side.ended_by_signal = side.ended_by_signal || ends_a_job(*signal);
      order(guardian, *signal);
    }
    side.step();
    for (const int what : side.orders()) order(guardian, what);
    std::string message(kLongestText + 64, '\0');
    const ssize_t got = ::recv(guardian, message.data(), message.size(), MSG_DONTWAIT);
    // The kernel says ECONNRESET once, before what is still to be read, if the guardian ended without reading its last order.
    if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET)) continue;
    if (got <= 0) return std::nullopt;
    message.resize(got);
    if (message[0] == kOutcome) return read_outcome(message.substr(1));
    side.hear(message.substr(1));
  }
  return std::nullopt;
}

// Returns how the guardian ended. One that has not reported may be stopped, and so not have seen that the job must end.
int status_at_end_of(pid_t guardian, bool has_reported) {
  int status = 0;
  if (!has_reported) {
    ::kill(guardian, SIGCONT);
    const auto end = std::chrono::steady_clock::now() + kGuardianEnding;
    while (std::chrono::steady_clock::now() < end) {
      if (::waitpid(guardian, &status, WNOHANG) == guardian) return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ::kill(guardian, SIGKILL);
  }
  while (::waitpid(guardian, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

JobOutcome guardian_ended(pid_t guardian, int status, const std::vector<Process>& left) {
  const bool killed = WIFSIGNALED(status);
  const int code = killed ? 128 + WTERMSIG(status) : static_cast<int>(ExitCode::Internal);
  const std::string how = killed ? "was killed by signal " + name_of_signal(WTERMSIG(status)) : "ended without an outcome";
  return {code, fmt::format("launch: the process that watches over the ranks (pid {}) {}; {}", guardian, how,
                            left.empty() ? "all ranks were killed" : "these could not be killed: " + list_of(left))};
}

}  // namespace

SignalsBetweenJobs::SignalsBetweenJobs() : queue_(std::make_unique<SignalQueue>()) {}
SignalsBetweenJobs::~SignalsBetweenJobs() = default;

std::optional<int> SignalsBetweenJobs::pause(std::chrono::milliseconds how_long, const std::function<void(int)>& lost) const {
  const auto end = std::chrono::steady_clock::now() + how_long;
  while (true) {
    while (const auto signal = queue_->next()) {
      if (ends_a_job(*signal)) return signal;
      lost(*signal);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return std::nullopt;
    pollfd entry{queue_->number(), POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(left.count()) + 1);
  }
}

void announce(const GuardianEnds& ends, const std::string& event) { tell(ends.orders, kEvent, event); }

JobOutcome run_guarded(const std::function<JobOutcome(const GuardianEnds&)>& job, LauncherSide& side) {
  const SignalQueue signals;
  ::signal(SIGCHLD, SIG_DFL);  // some parents ignore it; then the kernel does not report how a child ended
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto [orders, orders_of_guardian] = socket_pair();
  auto [reports, for_ranks] = socket_pair();
  // Children that this process already had when it became the launcher, because exec does not end them (sleep 30 & exec trivet
  // launch ...).
  const std::vector<Process> not_ours = descendants();
  std::fflush(nullptr);
  const pid_t launcher = ::getpid(), guardian = ::fork();
  if (guardian < 0) throw shortage("cannot start the process that watches over the ranks", errno);
  if (guardian == 0) {
    orders.reset();
    side.in_guardian();
    be_guardian(job, {orders_of_guardian.number(), reports.number(), for_ranks.number()}, launcher);
  }
  orders_of_guardian.reset();
  for_ranks.reset();  // `reports` stays open: it closes when the guardian and this process are gone
  side.guardian_runs();
  const auto outcome = wait_for_outcome(signals, orders.number(), guardian, side);
  orders.reset();  // the guardian kills everything if it still runs
  const int status = status_at_end_of(guardian, outcome.has_value());
  const auto left = kill_descendants(kGuardianKilling, not_ours);
  JobOutcome end = outcome                               ? *outcome
                   : side.is_abandoned() && left.empty() ? side.when_abandoned()
                                                         : guardian_ended(guardian, status, left);
  end.ended_by_signal = end.ended_by_signal || side.ended_by_signal;
  return end;
}

}  // namespace trivet::cli
