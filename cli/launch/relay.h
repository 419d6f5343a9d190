// Passes on what ranks print. Lines of ranks other than the first have their rank in front and are passed on whole; what rank 0
// prints is passed on as it comes.
//
//   rank 1 stdout --pipe--+
//   rank 2 stdout --pipe--+--> Output --> stdout
//
//   rank 1 stderr --pipe--+
//   rank 2 stderr --pipe--+--> Output --> stderr
//
// While standard output is full because nobody reads it, the pipes of ranks that print there are not read either, so that these
// ranks wait as they would at a terminal. Ranks that are to end never wait: then all is read, and what is too much is dropped
// and counted.
#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cli/launch/output.h"
#include "comm/descriptor.h"

namespace trivet::cli {

class Relay {
 public:
  Relay();

  struct Streams {
    comm::Descriptor output, error;  // to be the rank's stdout and stderr; none: it gets the launcher's own
  };
  // Rank 0 gets the launcher's own where these are a terminal or a file, and keeps the order of the two where they are one
  // pipe.
  Streams streams_of(int rank, bool several);

  // A message of the launcher itself: to stderr, after what is already on its way there.
  void say(const std::string& text);

  void add_to(std::vector<pollfd>& entries, bool ranks_are_to_end) const;
  // Passes on what is there.
  void step(bool ranks_are_to_end);
  // What the ranks still hold open is not read any more.
  void close();
  bool has_open_pipes() const;
  size_t waiting_bytes() const;
  size_t dropped_bytes() const;

 private:
  struct Source {
    comm::Descriptor pipe;
    std::string prefix;  // empty: passed on as it comes
    Output* target;
    std::string line;
  };
  comm::Descriptor add(int rank, Output& target);
  static bool is_to_be_read(const Source& source, bool ranks_are_to_end);
  void read(Source& source);
  static void end(Source& source, std::string& out);
  void report_fault(const Output& output, const char* name, bool& reported);

  std::unique_ptr<Output> output_, separate_error_;
  Output* error_;  // the same as output_ where stdout and stderr are one pipe
  std::vector<Source> sources_;
  bool output_fault_reported_ = false, error_fault_reported_ = false;
};

}  // namespace trivet::cli
