// Reads what the kernel reports about a process of this host. A process that was stopped (SIGSTOP, SIGTSTP) is in state T in
// /proc/PID/stat; one that only waits for a processor never is. This is evidence, while a missing heartbeat is only a hint.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trivet::comm {

struct ProcessState {
  char state = '?';     // R, S, D, T (stopped), t (held by a debugger), Z ...
  int64_t started = 0;  // clock ticks since the host's start; identifies a process together with its pid
};

// Parses the text of a /proc/PID/stat; returns nullopt if it is not one.
std::optional<ProcessState> parse_process_state(std::string_view stat);
// Returns nullopt if there is no such process, or if it cannot be seen from here.
std::optional<ProcessState> state_of_process(int64_t pid);
// Returns false, too, if the process cannot be seen, or if `pid` is a different process by now.
bool is_stopped(int64_t pid, int64_t started);

}  // namespace trivet::comm
