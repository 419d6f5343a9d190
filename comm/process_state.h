// What the kernel says of a process of this host: a process that was stopped (SIGSTOP, SIGTSTP) is in state T in
// /proc/PID/stat, and one that only waits for a processor never is. So this is evidence, where a missing heartbeat is a guess.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trivet::comm {

struct ProcessState {
  char state = '?';     // R, S, D, T (stopped), t (held by a debugger), Z ...
  int64_t started = 0;  // clock ticks since the host's start; with the pid it names a process for good
};

// The text of a /proc/PID/stat; nothing when it is not one.
std::optional<ProcessState> parse_process_state(std::string_view stat);
// Nothing: no such process, or it cannot be seen from here.
std::optional<ProcessState> state_of_process(int64_t pid);
// False, too, when the process cannot be seen, or when `pid` is another process by now.
bool is_stopped(int64_t pid, int64_t started);

}  // namespace trivet::comm
