// How ranks ended, and what the launcher says of it: its exit code is that of the rank with which it began.
#pragma once

#include <string>
#include <vector>

#include "comm/launcher_link.h"

namespace trivet::cli {

struct RankEnd {
  int rank = 0;
  int pid = 0;
  int exit_code = 0;     // 128 + n when killed by signal n
  int signal = 0;        // 0: it ended by itself
  bool by_us = false;    // after the launcher had sent it a signal
  bool stopped = false;  // it was stopped (SIGSTOP) when the launcher sent that signal
  int look = 0;          // those seen at the same look ended so close together that their order is not known
};

struct Verdict {
  int exit_code = 0;
  std::string text;
};

// All that the launcher has seen of a job.
struct JobRecord {
  std::vector<RankEnd> ends = {};       // in the order in which they were seen
  std::vector<comm::Loss> losses = {};  // what ranks said, in the order in which it came
  int signal = 0;                       // that the launcher was sent; 0: none
  bool killed_by_second_signal = false;
  bool had_to_kill = false;  // something of the job still ran after patience_s, or at the second signal
  int patience_s = 0;        // that ranks have after a signal
};

// Null: all ended with 0. Otherwise the rank that failed by itself first. A rank that says that it lost another one (exit code
// 10) is never the cause if any rank failed in another way, one that could not join (13) only if none failed in any third way.
// Ranks that the launcher ended are a cause only if no other failed.
const RankEnd* root_cause(const std::vector<RankEnd>& ends);

// If all failures are consequences, the verdict names the rank that was lost: the one the ranks named, else the one that had to
// be ended. A loss that ranks have named counts even if all ended with 0, as a shell does that prints something after a trainer
// that failed.
Verdict verdict_of(const JobRecord& job);

// "rank 3 (pid 4711) was killed by signal 9 (SIGKILL)", "rank 2 (pid 4712) ended with exit code 16"
std::string describe(const RankEnd& end);
// "15 (SIGTERM)"
std::string name_of_signal(int signal);

}  // namespace trivet::cli
