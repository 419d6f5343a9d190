#include "cli/launch/output.h"

#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace trivet::cli {
namespace {

constexpr size_t kFull = size_t{1} << 20, kMost = size_t{4} << 20;
constexpr int kWritesAtOnce = 64;  // then the launcher attends to everything else
constexpr long kLongestWriteNanoseconds = 20'000'000;

void ignore(int) {}

// While it exists, it keeps interrupting system calls of the thread that made it, and of no other.
class Interrupter {
 public:
  Interrupter() {
    struct sigaction action {};
    action.sa_handler = ignore;  // without SA_RESTART
    ::sigaction(SIGALRM, &action, nullptr);
    ::sigemptyset(&alarm_);
    ::sigaddset(&alarm_, SIGALRM);
    ::pthread_sigmask(SIG_UNBLOCK, &alarm_, &before_);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGALRM;
    event._sigev_un._tid = ::gettid();
    runs_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    const itimerspec interval{{0, kLongestWriteNanoseconds}, {0, kLongestWriteNanoseconds}};
    if (runs_) ::timer_settime(timer_, 0, &interval, nullptr);
  }
  ~Interrupter() {
    if (runs_) ::timer_delete(timer_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;

 private:
  sigset_t alarm_{}, before_{};
  timer_t timer_{};
  bool runs_ = false;
};

bool has_room(int target, int patience_ms) {
  pollfd entry{target, POLLOUT, 0};
  return ::poll(&entry, 1, patience_ms) == 1;
}

void handle_signals_of_outputs(sighandler_t how) {
  ::signal(SIGPIPE, how);
  ::signal(SIGXFSZ, how);
}

}  // namespace

void ignore_signals_of_outputs() { handle_signals_of_outputs(SIG_IGN); }
void restore_signals_of_outputs() { handle_signals_of_outputs(SIG_DFL); }

bool are_the_same_file(int one, int other) {
  struct stat a {
  }, b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void Output::add(std::string_view text) {
  if (!fault_.empty()) return;
  if (waiting_bytes() + text.size() > kMost) {
    dropped_bytes_ += text.size();
    return;
  }
  if (done_ > queue_.size() / 2) {
    queue_.erase(0, done_);
    done_ = 0;
  }
  queue_ += text;
}

bool Output::is_full() const { return waiting_bytes() >= kFull; }

void Output::add_to(std::vector<pollfd>& entries) const {
  if (waiting_bytes() > 0) entries.push_back({target_, POLLOUT, 0});
}

// See [Note: writing without waiting].
void Output::flush() {
  for (int i = 0; i < kWritesAtOnce && waiting_bytes() > 0 && has_room(target_, 0); ++i) {
    ssize_t written = 0;
    {
      const Interrupter interrupter;
      written = ::write(target_, queue_.data() + done_, std::min<size_t>(waiting_bytes(), PIPE_BUF));
    }
    if (written >= 0) {
      done_ += written;
    } else if (errno == EINTR || errno == EAGAIN) {
      return;
    } else {
      fault_ = std::strerror(errno);
      reader_has_gone_ = errno == EPIPE || errno == ECONNRESET;
      done_ = queue_.size();
    }
  }
}

void Output::flush_within(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (waiting_bytes() > 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) return;
    if (has_room(target_, static_cast<int>(left))) flush();
  }
}

void print_error_in_time(std::string_view text) {
  Output error(STDERR_FILENO);
  error.add(text);
  error.flush_within(std::chrono::seconds(1));
}

}  // namespace trivet::cli
