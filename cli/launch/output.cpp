#include "cli/launch/output.h"

#include <limits.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace trivet::cli {
namespace {

constexpr size_t kFull = size_t{1} << 20, kMost = size_t{4} << 20;
constexpr int kWritesAtOnce = 64;  // then the launcher attends to everything else
constexpr suseconds_t kLongestWriteMicroseconds = 20000;

void ignore(int) {}

// While it exists, it keeps interrupting system calls of this thread.
class Interrupter {
 public:
  Interrupter() {
    struct sigaction action {};
    action.sa_handler = ignore;  // without SA_RESTART
    ::sigaction(SIGALRM, &action, nullptr);
    set(kLongestWriteMicroseconds);
  }
  ~Interrupter() { set(0); }
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;

 private:
  static void set(suseconds_t microseconds) {
    const itimerval interval{{0, microseconds}, {0, microseconds}};
    ::setitimer(ITIMER_REAL, &interval, nullptr);
  }
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

}  // namespace trivet::cli
