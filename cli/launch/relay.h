// Passes on what ranks print: text of rank 0 as it comes; text of the other ranks in complete lines with the rank in
// front.
//
//   rank 1 stdout --pipe--+
//   rank 2 stdout --pipe--+--> Output --> stdout
//
//   rank 1 stderr --pipe--+
//   rank 2 stderr --pipe--+--> Output --> stderr
//
// While standard output is full because nobody reads it, the pipes of ranks that print there are not read either, so that these
// ranks wait as they would at a terminal. Ranks that are being ended never wait: then everything is read, and what does not fit
// is dropped and counted.
#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/output.h"
#include "core/descriptor.h"

namespace trivet::cli {

class Relay {
 public:
  // `speaker` comes first in what say() prints.
  explicit Relay(std::string speaker = "trivet launch");

  struct Streams {
    Descriptor output, error;  // become the rank's stdout and stderr; none: it gets the launcher's own
  };
  // Rank 0 gets the launcher's own streams if these are a terminal or a file. If both are the same pipe, rank 0 gets one pipe
  // for both, which keeps the order of what it prints.
  Streams streams_of(int rank);

  // Prints a line of the launcher itself to stderr, after what is already on its way there.
  void say(const std::string& text);

  // Prints what arrived in another way than through a pipe made here. More may be passed on while there is room.
  enum class Target { Output, Error };
  void pass_on(Target target, std::string_view text);
  bool has_room(Target target) const;
  // True if stdout and stderr are the same file, so that what is printed to both must keep its order.
  bool has_one_output() const { return !separate_error_; }

  void add_to(std::vector<pollfd>& entries, bool ranks_are_to_end) const;
  // Passes on what has arrived.
  void step(bool ranks_are_to_end);
  // Passes on the last incomplete lines. Pipes that ranks still hold open are not read any more.
  void close();
  bool has_open_pipes() const;
  size_t waiting_bytes() const;
  size_t dropped_bytes() const;

 private:
  struct Source {
    Descriptor pipe;
    std::string prefix;  // empty: passed on as it comes
    Output* target;
    std::string line;
  };
  Descriptor add(int rank, Output& target);
  static bool is_to_be_read(const Source& source, bool ranks_are_to_end);
  void read(Source& source);
  static void end(Source& source, std::string& out);
  void report_fault(const Output& output, const char* name, bool& reported);

  const std::string speaker_;
  std::unique_ptr<Output> output_, separate_error_;
  Output* error_;  // the same as output_ if stdout and stderr are one pipe
  std::vector<Source> sources_;
  bool output_fault_reported_ = false, error_fault_reported_ = false;
};

}  // namespace trivet::cli
