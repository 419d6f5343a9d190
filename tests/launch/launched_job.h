// Runs a real `trivet launch` with real ranks. Its output goes to a file, and it has a folder of its own for temporary files.
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
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/descriptor.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

inline const std::string kTrivet = TRIVET_BINARY_DIR "/trivet";
inline const std::string kRankProgram = TRIVET_BINARY_DIR "/tests/rank_program";
// The variable in the environment by which a test finds the processes of its job.
inline constexpr const char* kMark = "TRIVET_TEST_MARK";

inline double ms_since(steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
}

// A number that a script passes to a test in an environment variable.
inline int64_t from_environment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

// Waits for the end of processes that are not children, to the millisecond.
inline Descriptor watch_process(int pid) { return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }
inline bool ends_within(const Descriptor& process, milliseconds time) {
  pollfd entry{process.number(), POLLIN, 0};
  return ::poll(&entry, 1, static_cast<int>(time.count())) == 1;
}

inline std::vector<int> children_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
  std::vector<int> children;
  for (int child = 0; file >> child;) children.push_back(child);
  return children;
}

inline std::map<std::string, std::string> environment_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
  std::map<std::string, std::string> variables;
  for (std::string entry; std::getline(file, entry, '\0');) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return variables;
}

// Processes with this variable in their environment: everything that a job has started, wherever it is in the process tree. A
// process that has ended has no environment any more, even if nobody has waited for it.
inline std::vector<int> processes_with(const std::string& name, const std::string& value) {
  std::vector<int> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto variables = environment_of(std::stoi(pid));
    const auto variable = variables.find(name);
    if (variable != variables.end() && variable->second == value) found.push_back(std::stoi(pid));
  }
  return found;
}

inline bool becomes_true(const std::function<bool()>& condition, milliseconds time = milliseconds(20000)) {
  for (const auto start = steady_clock::now(); steady_clock::now() - start < time;) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return condition();
}

class LaunchedProcess {
 public:
  using Variables = std::map<std::string, std::string>;

  // `standard_output`: a descriptor, if stdout is not to go to the same file as stderr.
  explicit LaunchedProcess(std::vector<std::string> arguments, const Variables& variables = {}, int standard_output = -1) {
    fs::create_directories(folder_ / "tmp");
    pid_ = ::fork();
    if (pid_ != 0) return;
    // A shell that runs the tests in the background ignores some of these signals, which this program would inherit.
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_DFL);
    const int out = ::open((folder_ / "output").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(standard_output >= 0 ? standard_output : out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::setenv("TMPDIR", (folder_ / "tmp").c_str(), 1);
    ::unsetenv("XDG_RUNTIME_DIR");
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
  }
  LaunchedProcess(const LaunchedProcess&) = delete;
  LaunchedProcess& operator=(const LaunchedProcess&) = delete;

  int pid() const { return pid_; }
  // The launcher's only child, whose children are the ranks; 0 before it exists.
  int guardian() const {
    const std::vector<int> children = children_of(pid_);
    return children.empty() ? 0 : children[0];
  }
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
  std::string last_line() const {
    const std::vector<std::string> lines = lines_with("");
    return lines.empty() ? "" : lines.back();
  }
  // Waits until `count` lines of the output contain `text`. Returns false after `time`.
  bool prints(const std::string& text, size_t count, milliseconds time = milliseconds(20000)) const {
    for (const auto start = steady_clock::now(); steady_clock::now() - start < time;) {
      if (lines_with(text).size() >= count) return true;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }
  // Returns the exit code, or 128 + n if the process was killed by signal n.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  bool has_temporary_files() const { return !fs::is_empty(folder_ / "tmp"); }
  fs::path folder() const { return folder_; }

 private:
  int pid_ = -1;
  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reading = Descriptor(ends[0]);
    writing = Descriptor(ends[1]);
  }
  // Reads until all writers have ended.
  std::string read_all() const {
    std::string all(1 << 16, '\0');
    std::string out;
    for (ssize_t got = 0; (got = ::read(reading.number(), all.data(), all.size())) > 0;)
      out.append(all.data(), static_cast<size_t>(got));
    return out;
  }
  Descriptor reading, writing;
};

// A launcher with N rank programs.
class LaunchedJob : public LaunchedProcess {
 public:
  LaunchedJob(int ranks, const std::vector<std::string>& rank_arguments, const std::vector<std::string>& flags = {})
      : LaunchedProcess(command(ranks, rank_arguments, flags)) {}

  // Waits until all ranks are connected, and finds their pids and the job's id.
  bool find_ranks(size_t count) {
    if (!prints("is connected", count)) return false;
    pids.assign(count, 0);
    for (int child : children_of(guardian())) {
      const auto variables = environment_of(child);
      if (!variables.contains("RANK")) continue;
      pids[std::stoi(variables.at("RANK"))] = child;
      job_id = variables.at("TRIVET_JOB_ID");
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

// Returns when each survivor ended, in ms after `start`. Those that have not ended within `patience` count as ended then.
inline std::vector<double> ends_of_survivors(const LaunchedJob& job, size_t victim, steady_clock::time_point start,
                                             milliseconds patience) {
  std::vector<std::thread> threads;
  std::vector<double> ends(job.watches.size());
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    threads.emplace_back([&, rank] {
      ends_within(job.watches[rank], rank == victim ? milliseconds(0) : patience);
      ends[rank] = ms_since(start);
    });
  }
  for (auto& thread : threads) thread.join();
  ends.erase(ends.begin() + static_cast<std::ptrdiff_t>(victim));
  return ends;
}

inline void expect_nothing_left(const LaunchedJob& job) {
  EXPECT_TRUE(job.all_gone());
  EXPECT_EQ(job.shared_memory(), std::vector<std::string>{});
  EXPECT_FALSE(job.has_temporary_files());
}

inline double percentile(std::vector<double> times, double p) {
  std::sort(times.begin(), times.end());
  return times[static_cast<size_t>(p * static_cast<double>(times.size() - 1))];
}

inline void print_summary(const std::string& what, const std::vector<double>& times) {
  if (times.empty()) return;
  std::printf("%s: %zu times, p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, max %.1f ms\n", what.c_str(), times.size(),
              percentile(times, 0.5), percentile(times, 0.9), percentile(times, 0.99), percentile(times, 1));
}

}  // namespace trivet::test
