// Records how ranks ended, and decides the outcome of the job. Its exit code is that of the rank with which the failure began.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/launcher_link.h"

namespace trivet::cli {

struct RankEnd {
  int rank = 0;
  int pid = 0;
  int exit_code = 0;      // 128 + n when killed by signal n
  int signal = 0;         // 0: it ended by itself
  bool by_us = false;     // after the launcher had sent it a signal
  bool stopped = false;   // it was stopped (SIGSTOP) when the launcher sent that signal
  int look = 0;           // ranks seen in the same look ended so close together that their order is not known
  std::string host = {};  // empty: this host
};

// Writes the end as one line of text, for another process. rank_end_from_message returns nullopt for any other message.
std::string to_message(const RankEnd& end);
std::optional<RankEnd> rank_end_from_message(const std::string& message);

// The message, sent as a rank's end, that something of the job had to be killed because it did not end in time.
inline constexpr const char* kHadToKillMessage = "had to kill";

struct JobOutcome {
  int exit_code = 0;
  std::string text;
  bool ended_by_signal = false;                  // to the launcher
  std::vector<std::string> lost_hosts = {};      // in the course of it, or that did not answer when it was to start
  std::vector<std::string> returned_hosts = {};  // awaited ones (LaunchRequest) that answer again; the job was ended for them
};

// A host whose agent ended, or fell silent, before it had said how all of its ranks ended.
struct HostLoss {
  std::string host;
  int first_rank = 0, last_rank = 0;
  std::string cause;
  int look = 0;  // as in RankEnd
};

// Everything that the launcher has observed about the end of a job.
struct JobRecord {
  std::vector<RankEnd> ends = {};       // in the order in which they were seen
  std::vector<HostLoss> hosts = {};     // in the order in which they were lost
  std::vector<comm::Loss> losses = {};  // losses that ranks reported, in order of arrival
  int signal = 0;                       // signal that the launcher received; 0: none
  bool killed_by_second_signal = false;
  bool had_to_kill = false;  // something of the job still ran after patience_s, or at the second signal
  int patience_s = 0;        // time that ranks have after a signal
};

// The end that caused the failure; null if all ranks exited with code 0. It is the first rank that failed by itself. If there
// is none, it is the first rank that could not join (exit code 13); failing that, the first rank that reported the loss of
// another rank (exit code 10); and only then a rank that the launcher ended.
const RankEnd* root_cause(const std::vector<RankEnd>& ends);

// If all failures are consequences, the outcome names the rank that was lost: the one the ranks named, else the one that had to
// be ended. A loss that ranks have named counts even if all exited with code 0, as a shell does if it prints something after
// its trainer failed.
JobOutcome outcome_of(const JobRecord& job);

// "rank 3 (pid 4711) was killed by signal 9 (SIGKILL)", "rank 2 (pid 4712) ended with exit code 16"
std::string describe(const RankEnd& end);
// "15 (SIGTERM)"
std::string name_of_signal(int signal);

}  // namespace trivet::cli
