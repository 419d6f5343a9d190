// Writes the output of a program that has other things to do (the launcher, a training run) to one descriptor, and never waits
// for its reader: text that is not taken stays in a queue. A reader that has gone (`trivet launch ... | head`), or a full disk,
// is a fault of the output and not of the job. One thread at a time.
//
// [Note: writing without waiting] O_NONBLOCK would be set for everybody who shares the open file, such as the user's shell. So
// each write is at most PIPE_BUF bytes, after poll has reported room, and a timer interrupts a write that waits all the same.
// The timer is one of this thread (SIGALRM), so that other threads' system calls are left alone.
#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::cli {

// After the first function, write() reports a reader that has gone or a file that may not grow as an error, instead of ending
// this process by SIGPIPE or SIGXFSZ. The second function undoes this; it may be called between fork and exec.
void ignore_signals_of_outputs();
void restore_signals_of_outputs();

// True if both descriptors lead to one file, so that what is written to both must keep its order.
bool are_the_same_file(int one, int other);

class Output {
 public:
  explicit Output(int target) : target_(target) {}

  // Drops the text after a fault. Drops and counts it if the queue has no room.
  void add(std::string_view text);
  // True if so much text waits that nothing more should be read for this output.
  bool is_full() const;
  size_t waiting_bytes() const { return queue_.size() - done_; }
  size_t dropped_bytes() const { return dropped_bytes_; }
  // Returns why nothing can be written any more ("Broken pipe"); empty: all is well.
  const std::string& fault() const { return fault_; }
  // Checks whether that is because nobody reads any more.
  bool reader_has_gone() const { return reader_has_gone_; }

  void add_to(std::vector<pollfd>& entries) const;
  // Writes what the reader takes without waiting.
  void flush();
  // Writes until nothing waits, or `time` has passed.
  void flush_within(std::chrono::milliseconds time);

 private:
  const int target_;
  std::string queue_;
  size_t done_ = 0;  // bytes at the queue's beginning that were written
  size_t dropped_bytes_ = 0;
  std::string fault_;
  bool reader_has_gone_ = false;
};

// Prints to standard error, and waits at most a second for a reader.
void print_error_in_time(std::string_view text);

}  // namespace trivet::cli
