#include "cli/launch/processes.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "core/descriptor.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxListed = 8;

// /proc/PID/stat: "PID (NAME) STATE PARENT GROUP ...", where NAME may hold anything, even ") ".
std::optional<Process> read_process(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text, '\0')) return std::nullopt;
  const size_t name = text.find('('), name_end = text.rfind(')');
  if (name == std::string::npos || name_end == std::string::npos || name_end < name) return std::nullopt;
  Process process{.pid = pid, .name = text.substr(name + 1, name_end - name - 1)};
  std::istringstream fields(text.substr(name_end + 1));
  fields >> process.state >> process.parent >> process.group;
  std::string skipped;
  for (int field = 6; field < 22; ++field) fields >> skipped;
  fields >> process.started_at;
  if (!fields) return std::nullopt;
  return process;
}

std::vector<Process> all_processes() {
  std::vector<Process> all;
  std::error_code ignored;
  for (auto entry = fs::directory_iterator("/proc", ignored); entry != fs::directory_iterator(); entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (auto process = read_process(static_cast<pid_t>(std::stol(name)))) all.push_back(std::move(*process));
  }
  return all;
}

// A line of /proc/PID/status with a set of signals: "SigCgt:\t0000000000000200".
bool is_in_set(const std::string& line, const std::string& set, int signal) {
  return line.starts_with(set) && ((std::stoull(line.substr(set.size()), nullptr, 16) >> (signal - 1)) & 1) != 0;
}

bool handles(const Process& process, int signal) {
  std::ifstream file(fmt::format("/proc/{}/status", process.pid));
  for (std::string line; std::getline(file, line);) {
    if (is_in_set(line, "SigCgt:\t", signal) || is_in_set(line, "SigBlk:\t", signal)) return true;
  }
  return false;
}

std::string command_line(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid));
  return {std::istreambuf_iterator<char>(file), {}};
}

// Until a process starts a program of its own, it has the command line of its parent.
bool runs_its_own_program(const Process& process) { return command_line(process.pid) != command_line(process.parent); }

bool has_ended(const Process& process) { return process.state == 'Z' || process.state == 'X'; }

bool is_among(const std::vector<Process>& processes, const Process& one) {
  return std::any_of(processes.begin(), processes.end(),
                     [&](const Process& process) { return process.pid == one.pid && process.started_at == one.started_at; });
}

// Includes processes that have ended but that nobody has waited for. It misses processes that start meanwhile, but it is never
// empty while there are any: a child of this process remains one until this process waits for it.
std::vector<Process> tree(const std::vector<Process>& others) {
  const std::vector<Process> all = all_processes();
  std::vector<Process> found;
  std::vector<pid_t> parents{::getpid()};
  for (size_t i = 0; i < parents.size(); ++i) {
    for (const Process& process : all) {
      if (process.parent != parents[i] || is_among(others, process)) continue;
      parents.push_back(process.pid);
      found.push_back(process);
    }
  }
  return found;
}

enum class Sent { Yes, HasEnded, Forbidden };

Sent try_to_send(const Process& process, int signal) {
  const Descriptor held(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!held) return Sent::HasEnded;
  const auto now = read_process(process.pid);
  if (!now || now->started_at != process.started_at) return Sent::HasEnded;
  if (::syscall(SYS_pidfd_send_signal, held.number(), signal, nullptr, 0) == 0) return Sent::Yes;
  return errno == EPERM ? Sent::Forbidden : Sent::HasEnded;
}

}  // namespace

std::vector<Process> descendants(const std::vector<Process>& others) {
  std::vector<Process> found = tree(others);
  std::erase_if(found, has_ended);
  return found;
}

bool is_stopped(pid_t pid) {
  const auto process = read_process(pid);
  return process && (process->state == 'T' || process->state == 't');
}

bool send_signal(const Process& process, int signal) { return try_to_send(process, signal) == Sent::Yes; }

std::vector<Process> those_that_handle(int signal, const std::vector<Process>& processes) {
  std::vector<Process> found = processes;
  // In this order: a process that starts its program in between may no longer handle the signal.
  std::erase_if(found, [&](const Process& process) { return !runs_its_own_program(process) || !handles(process, signal); });
  return found;
}

std::vector<Process> kill_descendants(std::chrono::milliseconds most, const std::vector<Process>& others) {
  const auto end = std::chrono::steady_clock::now() + most;
  for (;;) {
    pid_t reaped = 0;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (reaped < 0) return {};  // no child is left, so no descendant is
    std::vector<Process> left;
    bool may_end = false;
    for (const Process& process : tree(others)) {
      if (has_ended(process)) {
        may_end = may_end || process.parent == ::getpid();
        continue;
      }
      left.push_back(process);
      may_end = try_to_send(process, SIGKILL) != Sent::Forbidden || may_end;
    }
    if (!may_end || std::chrono::steady_clock::now() > end) return left;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::string list_of(const std::vector<Process>& processes) {
  std::string out;
  for (size_t i = 0; i < processes.size() && i < kMaxListed; ++i)
    out += fmt::format("{}pid {} ({})", i == 0 ? "" : ", ", processes[i].pid, printable(processes[i].name));
  return processes.size() > kMaxListed ? out + fmt::format(" and {} more", processes.size() - kMaxListed) : out;
}

}  // namespace trivet::cli
