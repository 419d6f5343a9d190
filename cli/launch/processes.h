// The processes below this one, as /proc shows them. With PR_SET_CHILD_SUBREAPER nothing that they start can leave the tree,
// whether by setsid or in any other way: a process whose parent ends becomes a child of this process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace trivet::cli {

struct Process {
  pid_t pid = 0, parent = 0, group = 0;
  char state = '?';         // as in /proc/PID/stat: R, S, D, T (stopped), Z (has ended, nobody has waited for it) ...
  uint64_t started_at = 0;  // distinguishes it from a later process with the same pid
  std::string name;
};

// Excludes processes that have ended, and `others` with everything below them.
std::vector<Process> descendants(const std::vector<Process>& others = {});
bool is_stopped(pid_t pid);
// False if the process has ended in the meantime, or belongs to somebody else.
bool send_signal(const Process& process, int signal);
// Returns processes that have a handler for the signal, or block it so that sigwait or signalfd can take it: it does
// not simply end them. Leaves out those that still run their parent's program: they may be about to start another one, and have
// its handlers and blocked signals until then.
std::vector<Process> those_that_handle(int signal, const std::vector<Process>& processes);

// Kills every descendant except `others` and everything below them, and waits until they have ended. Returns those that are
// left: processes of other users, for which it does not wait, and processes that did not end within `most`.
std::vector<Process> kill_descendants(std::chrono::milliseconds most, const std::vector<Process>& others = {});
// "pid 4711 (sleep), pid 4712 (trivet)"; names at most eight and counts the rest.
std::string list_of(const std::vector<Process>& processes);

}  // namespace trivet::cli
