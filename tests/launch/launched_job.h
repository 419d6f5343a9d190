// A real `trivet launch` with real ranks, its output in a file, in a folder of its own for temporary files.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "comm/descriptor.h"

namespace trivet::test {

namespace fs = std::filesystem;
using comm::Descriptor;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

inline const std::string kTrivet = TRIVET_BINARY_DIR "/trivet";
inline const std::string kRankProgram = TRIVET_BINARY_DIR "/tests/rank_program";

inline double ms_since(steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
}

// Ends of processes that are not children, to the millisecond.
inline Descriptor watch_process(int pid) { return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }
inline bool ends_within(const Descriptor& process, milliseconds time) {
  pollfd entry{process.number(), POLLIN, 0};
  return ::poll(&entry, 1, static_cast<int>(time.count())) == 1;
}

class LaunchedProcess {
 public:
  using Variables = std::map<std::string, std::string>;

  explicit LaunchedProcess(std::vector<std::string> arguments, const Variables& variables = {}) {
    static int count = 0;
    folder_ = fs::temp_directory_path() / ("trivet_launch_test_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    fs::create_directories(folder_ / "tmp");
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int out = ::open((folder_ / "output").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::setenv("TMPDIR", (folder_ / "tmp").c_str(), 1);
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }
  ~LaunchedProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    fs::remove_all(folder_);
  }
  LaunchedProcess(const LaunchedProcess&) = delete;
  LaunchedProcess& operator=(const LaunchedProcess&) = delete;

  int pid() const { return pid_; }
  std::string output() const {
    std::ifstream file(folder_ / "output");
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::vector<std::string> lines_with(const std::string& text) const {
    std::istringstream lines(output());
    std::vector<std::string> found;
    for (std::string line; std::getline(lines, line);) {
      if (line.find(text) != std::string::npos) found.push_back(line);
    }
    return found;
  }
  // Until `text` stands there `count` times.
  bool prints(const std::string& text, size_t count, milliseconds time = milliseconds(20000)) const {
    for (const auto start = steady_clock::now(); steady_clock::now() - start < time;) {
      if (lines_with(text).size() >= count) return true;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }
  // 128 + n when killed by signal n.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  bool has_temporary_files() const { return !fs::is_empty(folder_ / "tmp"); }
  fs::path folder() const { return folder_; }

 private:
  int pid_ = -1;
  fs::path folder_;
};

// A launcher with N rank programs.
class LaunchedJob : public LaunchedProcess {
 public:
  LaunchedJob(int ranks, const std::vector<std::string>& rank_arguments, const std::vector<std::string>& flags = {})
      : LaunchedProcess(command(ranks, rank_arguments, flags)) {}

  // When all are connected: their pids by rank, and the job's id.
  bool find_ranks(size_t count) {
    if (!prints("is connected", count)) return false;
    std::ifstream children("/proc/" + std::to_string(pid()) + "/task/" + std::to_string(pid()) + "/children");
    pids.assign(count, 0);
    for (int child = 0; children >> child;) {
      std::ifstream environment("/proc/" + std::to_string(child) + "/environ");
      for (std::string entry; std::getline(environment, entry, '\0');) {
        if (entry.starts_with("RANK=")) pids[static_cast<size_t>(std::stoi(entry.substr(5)))] = child;
        if (entry.starts_with("TRIVET_JOB_ID=")) job_id = entry.substr(14);
      }
    }
    for (int child : pids) watches.push_back(watch_process(child));
    return std::find(pids.begin(), pids.end(), 0) == pids.end();
  }
  std::vector<std::string> shared_memory() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename();
      if (name.starts_with("trivet-" + job_id)) names.push_back(name);
    }
    return names;
  }
  bool all_gone() const {
    return std::none_of(pids.begin(), pids.end(), [](int rank) { return ::kill(rank, 0) == 0; });
  }

  std::vector<int> pids;
  std::vector<Descriptor> watches;
  std::string job_id;

 private:
  static std::vector<std::string> command(int ranks, const std::vector<std::string>& rank_arguments,
                                          const std::vector<std::string>& flags) {
    std::vector<std::string> all{kTrivet, "launch", "--num_gpus", std::to_string(ranks)};
    all.insert(all.end(), flags.begin(), flags.end());
    all.push_back(kRankProgram);
    all.insert(all.end(), rank_arguments.begin(), rank_arguments.end());
    return all;
  }
};

}  // namespace trivet::test
