// A request to a training run, from outside its ranks: save, or save and end.
//
// Filled by one thread (cli/stop_signals.h), read by the ranks of the process. Lock-free, so that a signal handler may fill it,
// too. A library that embeds the trainer can use it likewise: nothing here installs anything.
#pragma once

#include <atomic>
#include <cstdint>

namespace trivet {

class StopRequest {
 public:
  // The run is to end after its running step; `signal` tells why. The first one counts.
  void end(int signal) noexcept {
    int none = 0;
    signal_.compare_exchange_strong(none, signal);
  }
  void save() noexcept { ++saves_; }

  int signal() const noexcept { return signal_; }  // 0: go on
  int64_t saves() const noexcept { return saves_; }

  // Between these two a rank heeds requests; at other times there is nothing that could be saved. Each rank of the process says
  // it for itself.
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
