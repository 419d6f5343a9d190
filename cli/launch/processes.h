// The processes below this one, as /proc shows them. With PR_SET_CHILD_SUBREAPER nothing that they start can leave the tree, by
// setsid or in any other way: a process whose parent ends becomes a child of this one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace trivet::cli {

struct Process {
  pid_t pid = 0, parent = 0, group = 0;
  char state = '?';         // as in /proc/PID/stat: R, S, D, T (stopped), Z (has ended, nobody has waited for it) ...
  uint64_t started_at = 0;  // tells it from a later process of the same number
  std::string name;
};

// Without those that have ended, and without `others` and everything below them.
std::vector<Process> descendants(const std::vector<Process>& others = {});
bool is_stopped(pid_t pid);
// False if the process has ended in the meantime, or belongs to somebody else.
bool send_signal(const Process& process, int signal);
// A handler is installed, or the signal is blocked to be taken by sigwait or signalfd: it does not simply end the process.
bool handles(const Process& process, int signal);

// Kills every descendant but `others` and what is below them, and waits until they have ended. Returns those that are left:
// processes of other users, which nobody waits for, and those that had not ended in this time.
std::vector<Process> kill_descendants(std::chrono::milliseconds most, const std::vector<Process>& others = {});
// "pid 4711 (sleep), pid 4712 (trivet)"; of more than eight only the first.
std::string list_of(const std::vector<Process>& processes);

}  // namespace trivet::cli
