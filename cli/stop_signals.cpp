#include "cli/stop_signals.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "cli/repeated_signals.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kSameRequest{500};

std::string short_name_of(int signal) {
  switch (signal) {
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    case SIGXCPU: return "SIGXCPU";
    case SIGUSR1: return "SIGUSR1";
    case SIGUSR2: return "SIGUSR2";
    default: return fmt::format("signal {}", signal);
  }
}

bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// A limit of processor time (ulimit -t) has two parts: SIGXCPU comes at the first, and the kernel kills at the second. Where
// they are equal, this makes the first one earlier, so that there is time to save.
void come_before_the_kill() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_max == RLIM_INFINITY || limit.rlim_cur < limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max - std::min(limit.rlim_max, std::clamp<rlim_t>(limit.rlim_max / 10, 1, 60));
  ::setrlimit(RLIMIT_CPU, &limit);
}

Descriptor checked(int descriptor, const char* what) {
  if (descriptor < 0) throw std::system_error(errno, std::generic_category(), what);
  return Descriptor(descriptor);
}

}  // namespace

StopSignalOptions stop_signal_options(const CheckpointConfig& config) {
  const std::array<int, 3> numbers{0, SIGUSR1, SIGUSR2};
  return {.warning = config.directory.empty() ? 0 : numbers.at(static_cast<size_t>(config.signal)),
          .warning_ends = config.signal_action == SignalAction::SaveAndStop,
          .deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(config.stop_seconds)),
          .directory = config.directory};
}

StopSignals::StopSignals(StopRequest& request, const StopSignalOptions& options) : request_(request), options_(options) {
  ::sigemptyset(&watched_);
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGXCPU})
    if (!is_ignored(signal)) ::sigaddset(&watched_, signal);
  if (options_.warning != 0) ::sigaddset(&watched_, options_.warning);
  if (!options_.directory.empty()) come_before_the_kill();
  signals_ = checked(::signalfd(-1, &watched_, SFD_NONBLOCK | SFD_CLOEXEC), "signalfd");
  wake_ = checked(::eventfd(0, EFD_CLOEXEC), "eventfd");
  ::pthread_sigmask(SIG_BLOCK, &watched_, &blocked_before_);
  thread_ = std::thread([this] { wait_for_signals(); });
}

StopSignals::~StopSignals() {
  ::eventfd_write(wake_.number(), 1);
  thread_.join();
  ::pthread_sigmask(SIG_SETMASK, &blocked_before_, nullptr);
}

void StopSignals::wait_for_signals() {
  std::array<pollfd, 2> entries{{{signals_.number(), POLLIN, 0}, {wake_.number(), POLLIN, 0}}};
  for (;;) {
    int timeout_ms = -1;
    if (first_ != 0 && options_.deadline.count() > 0) {
      const auto left = std::chrono::ceil<milliseconds>(first_at_ + options_.deadline - Clock::now()).count();
      if (left <= 0) end_at_deadline();
      timeout_ms = static_cast<int>(std::min<int64_t>(left, 60000));
    }
    ::poll(entries.data(), entries.size(), timeout_ms);
    signalfd_siginfo info{};
    while (::read(signals_.number(), &info, sizeof info) == sizeof info) received(static_cast<int>(info.ssi_signo));
    if (entries[1].revents != 0) return;
  }
}

void StopSignals::received(int signal) {
  // Checked first, because by the time the duplicate comes, a fast rank may have saved and stopped listening.
  if (first_ != 0 && (may_be_repeated(signal) || Clock::now() - first_at_ < kSameRequest)) return;
  const bool ends = signal != options_.warning || options_.warning_ends;
  if (!request_.is_heard()) {
    if (ends) end_at_once(signal);
    return options_.log.info(short_name_of(signal) + ": there is nothing to save now");
  }
  if (!ends) {
    options_.log.info(short_name_of(signal) + ": the running step will be finished and saved");
    return request_.save();
  }
  if (first_ == 0) return first(signal);
  end_at_once(signal);
}

void StopSignals::first(int signal) {
  first_ = signal;
  first_at_ = Clock::now();
  request_.end(signal);
  const double seconds = std::chrono::duration<double>(options_.deadline).count();
  const std::string limit = seconds > 0 ? fmt::format(" within {} s (checkpoint.stop_seconds)", seconds) : "";
  const std::string saved = options_.directory.empty() ? ", but not saved: checkpoint.directory is not set"
                                                       : " and saved to " + printable(options_.directory);
  options_.log.info(fmt::format("{}: the running step will be finished{}{}; then the run ends; a second signal ends it at once",
                                short_name_of(signal), limit, saved));
}

// Ends the process by the signal itself, so that whoever waits for the process sees that a signal ended it.
void StopSignals::end_at_once(int signal) const {
  ::signal(signal, SIG_DFL);
  sigset_t only{};
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal);
  std::_Exit(128 + signal);
}

// Ends the run; what it has saved is reported elsewhere. The deadline may also pass after the last save, while the run
// evaluates or ends.
void StopSignals::end_at_deadline() const {
  const std::string time = fmt::format("checkpoint.stop_seconds {}", std::chrono::duration<double>(options_.deadline).count());
  std::string what = fmt::format("the run was not over after {}; it ends now", time);
  if (request_.is_heard())
    what = fmt::format(
        "the running step, its evaluation or its save took longer than {}; the run ends now, and complete checkpoints stay "
        "as they are",
        time);
  options_.log.error(short_name_of(first_) + ": " + what);
  std::_Exit(128 + first_);
}

}  // namespace trivet::cli
