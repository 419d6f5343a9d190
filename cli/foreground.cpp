#include "cli/foreground.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/error.h"

namespace trivet::cli {
namespace {

// Ignores the terminal's interrupts, and gives spawned programs what applied before.
class WithoutInterrupts {
 public:
  WithoutInterrupts() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &ignore, &before_[i]);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (int i = 0; i < 2; ++i)
      if (before_[i].sa_handler != SIG_IGN) sigaddset(&defaults, kSignals[i]);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF);
  }
  ~WithoutInterrupts() {
    for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before_[i], nullptr);
    posix_spawnattr_destroy(&attributes_);
  }
  WithoutInterrupts(const WithoutInterrupts&) = delete;
  WithoutInterrupts& operator=(const WithoutInterrupts&) = delete;
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  static constexpr int kSignals[2] = {SIGINT, SIGQUIT};
  struct sigaction before_[2];
  posix_spawnattr_t attributes_;
};

}  // namespace

int run_in_foreground(const std::string& file, const std::vector<std::string>& words, int output) {
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (output >= 0) posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  const WithoutInterrupts signals;
  pid_t pid = -1;
  const int error = posix_spawn(&pid, file.c_str(), &actions, signals.attributes(), arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw ConfigError(fmt::format("{} cannot be started: {}", file, std::strerror(error)));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace trivet::cli
