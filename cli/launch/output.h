// What the launcher writes to one descriptor. Never waits for whoever reads it: what is not taken stays in a queue. A reader
// that is gone (`trivet launch ... | head`), or a full disk, is a fault of the output and not of the job.
//
// [Note: writing without waiting] O_NONBLOCK would be set for everybody who shares the open file, such as the user's shell. So
// each write is of a few bytes, after poll has said that there is room, and a timer interrupts one that waits all the same.
#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::cli {

// A reader that is gone, or a file that may not grow, is an error of write() afterwards, and does not end this process by
// SIGPIPE or SIGXFSZ. The second function takes this back; it may be called between fork and exec.
void ignore_signals_of_outputs();
void restore_signals_of_outputs();

class Output {
 public:
  explicit Output(int target) : target_(target) {}

  // Beyond the most that is kept, and after a fault, text is dropped; the former is counted.
  void add(std::string_view text);
  // So much waits that nothing more should be read for this output.
  bool is_full() const;
  size_t waiting_bytes() const { return queue_.size() - done_; }
  size_t dropped_bytes() const { return dropped_bytes_; }
  // Why nothing can be written any more ("Broken pipe"); empty: all is well.
  const std::string& fault() const { return fault_; }

  void add_to(std::vector<pollfd>& entries) const;
  // Writes what is taken at once.
  void flush();
  // Writes until nothing waits, or this time is over.
  void flush_within(std::chrono::milliseconds time);

 private:
  const int target_;
  std::string queue_;
  size_t done_ = 0;  // bytes at the queue's beginning that were written
  size_t dropped_bytes_ = 0;
  std::string fault_;
};

}  // namespace trivet::cli
