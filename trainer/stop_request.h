// A request to a training run, from outside its ranks: to save, or to save and end.
//
// One thread sets it (cli/stop_signals.h), and the ranks of the process read it. It is lock-free, so a signal handler may set
// it, too. A program that embeds the trainer can use it in the same way: nothing here installs signal handlers.
#pragma once

#include <atomic>
#include <cstdint>

namespace trivet {

class StopRequest {
 public:
  // Asks the run to end after the current step; `signal` is the reason. Only the first call counts.
  void end(int signal) noexcept {
    int none = 0;
    signal_.compare_exchange_strong(none, signal);
  }
  void save() noexcept { ++saves_; }

  int signal() const noexcept { return signal_; }  // 0: continue
  int64_t saves() const noexcept { return saves_; }

  // A rank responds to requests between these two calls; at other times there is nothing to save. Each rank of the process
  // makes both calls.
  void begin_listening() noexcept { ++listeners_; }
  void end_listening() noexcept { --listeners_; }
  bool is_heard() const noexcept { return listeners_ > 0; }

 private:
  std::atomic<int> signal_{0};
  std::atomic<int64_t> saves_{0};
  std::atomic<int> listeners_{0};
  static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);
};

}  // namespace trivet
