#include "cli/launch/verdict.h"

#include <fmt/format.h>

#include <cstring>

#include "core/error.h"

namespace trivet::cli {

const RankEnd* root_cause(const std::vector<RankEnd>& ends) {
  const RankEnd* follower = nullptr;
  for (const RankEnd& end : ends) {
    if (end.exit_code == 0) continue;
    if (!end.by_us && end.exit_code != static_cast<int>(ExitCode::PeerLost)) return &end;
    if (follower == nullptr || (follower->by_us && !end.by_us)) follower = &end;
  }
  return follower;
}

std::string describe(const RankEnd& end) {
  if (end.signal == 0) return fmt::format("rank {} (pid {}) ended with exit code {}", end.rank, end.pid, end.exit_code);
  const char* name = ::sigabbrev_np(end.signal);
  return fmt::format("rank {} (pid {}) was killed by signal {} (SIG{})", end.rank, end.pid, end.signal, name ? name : "?");
}

}  // namespace trivet::cli
