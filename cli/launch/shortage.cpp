#include "cli/launch/shortage.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace trivet::cli {
namespace {

std::string limit(__rlimit_resource which) {
  rlimit value{};
  ::getrlimit(which, &value);
  return value.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(value.rlim_cur);
}

std::string advice(int number) {
  if (number == EMFILE) return fmt::format("; raise the limit of open files (ulimit -n, now {})", limit(RLIMIT_NOFILE));
  if (number == ENFILE) return "; the machine has no open files left";
  if (number == EFBIG) return "; raise the limit of the size of files (ulimit -f)";
  if (number == ENOMEM) return "; the machine, or a limit (ulimit -v, a cgroup), has no memory left";
  rlimit memory{};
  ::getrlimit(RLIMIT_AS, &memory);
  return fmt::format(
      "; start fewer ranks, or raise the limit of processes and threads (ulimit -u, now {}; pids.max of the cgroup){}",
      limit(RLIMIT_NPROC),
      memory.rlim_cur == RLIM_INFINITY
          ? ""
          : fmt::format(" or of memory (ulimit -v, now {}), which threads need, too", memory.rlim_cur / 1024));
}

}  // namespace

bool is_shortage(int number) { return number == EAGAIN || number == EMFILE || number == ENFILE || number == ENOMEM; }

Error shortage(const std::string& what, int number) {
  return Error(ExitCode::OutOfMemory, fmt::format("{}: {}{}", what, std::strerror(number), advice(number)));
}

}  // namespace trivet::cli
