// How ranks ended, and what the launcher's own exit code is then: that of the rank with which it began.
#pragma once

#include <string>
#include <vector>

namespace trivet::cli {

struct RankEnd {
  int rank = 0;
  int pid = 0;
  int exit_code = 0;   // 128 + n when killed by signal n
  int signal = 0;      // 0: it ended by itself
  bool by_us = false;  // after the launcher had sent it a signal
};

struct Verdict {
  int exit_code = 0;
  std::string text;
};

// `ends` in the order in which they were seen. Null: all ended with 0. Ranks that say that they lost another one (exit code
// 10), or that were ended by the launcher, are not the cause if there is any other.
const RankEnd* root_cause(const std::vector<RankEnd>& ends);

// "rank 3 (pid 4711) was killed by signal 9 (SIGKILL)", "rank 2 (pid 4712) ended with exit code 16"
std::string describe(const RankEnd& end);

}  // namespace trivet::cli
