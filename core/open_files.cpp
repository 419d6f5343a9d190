#include "core/open_files.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/printable.h"

namespace trivet {

void check_open_files(const std::string& path, int error) {
  if (error != EMFILE && error != ENFILE) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  throw Error(ExitCode::OutOfMemory,
              fmt::format("{}: cannot be opened: {}; {}", printable(path), std::strerror(error),
                          error == EMFILE ? fmt::format("raise the limit of open files (ulimit -n, now {})", limit.rlim_cur)
                                          : "the machine has no open files left"));
}

}  // namespace trivet
