// Runs the built program `trivet` in the background: a test watches what it prints and sends it signals.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/program.h"

namespace trivet::test {

class RunningProgram {
 public:
  // -1: a file in the folder, "out" or "err".
  struct Streams {
    int output = -1, error = -1;
  };
  // Starts trivet ARGUMENTS in `folder`.
  RunningProgram(const Folder& folder, const std::vector<std::string>& arguments,
                 const std::vector<std::pair<std::string, std::string>>& environment = {}, Streams streams = {-1, -1})
      : folder_(folder) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    // A shell that runs the tests in the background ignores SIGINT, which this program would inherit.
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGXCPU}) ::signal(signal, SIG_DFL);
    if (::chdir(folder.path().c_str()) != 0) ::_exit(120);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::dup2(streams.output >= 0 ? streams.output : ::open("out", O_WRONLY | O_CREAT | O_TRUNC, 0644), STDOUT_FILENO);
    ::dup2(streams.error >= 0 ? streams.error : ::open("err", O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
    std::vector<char*> argv{const_cast<char*>("trivet")};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(TRIVET_BINARY_DIR "/trivet", argv.data());
    ::_exit(121);
  }
  ~RunningProgram() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // Waits until `file` in the folder contains `text`. Returns false if the program ends first.
  bool wait_for(const std::string& file, const std::string& text) {
    while (folder_.read(file).find(text) == std::string::npos) {
      siginfo_t info{};
      if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  void send(int signal) const { ::kill(pid_, signal); }

  // Waits for the end and returns the exit code, or minus the signal that killed the program.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  const Folder& folder_;
  pid_t pid_ = 0;
};

}  // namespace trivet::test
