// A pipe, of which both ends are closed on exec.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "cli/launch/shortage.h"
#include "core/descriptor.h"

namespace trivet::cli {

struct Pipe {
  Descriptor reading, writing;
};

// Throws Error (exit code 19) that begins with "cannot make a pipe" and `what_for`.
inline Pipe make_pipe(const std::string& what_for) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw shortage("cannot make a pipe " + what_for, errno);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

inline void make_non_blocking(const Descriptor& descriptor) {
  ::fcntl(descriptor.number(), F_SETFL, ::fcntl(descriptor.number(), F_GETFL) | O_NONBLOCK);
}

}  // namespace trivet::cli
