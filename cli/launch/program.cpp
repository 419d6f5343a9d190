#include "cli/launch/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "cli/launch/output.h"
#include "cli/launch/pipe.h"
#include "cli/launch/shortage.h"
#include "core/descriptor.h"
#include "core/error.h"
#include "core/log.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

bool is_executable_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

cpu_set_t as_set(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores) CPU_SET(static_cast<unsigned>(core), &set);
  return set;
}

// Runs between fork and exec, so it makes only system calls. Returns only if execve fails.
void become_rank(const Start& how, pid_t launcher, const cpu_set_t& cores, int null, char* const* arguments,
                 char* const* environment) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(128 + SIGKILL);  // the launcher died before the line above
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  restore_signals_of_outputs();
  ::dup2(how.input >= 0 ? how.input : null, STDIN_FILENO);
  if (how.output >= 0) ::dup2(how.output, STDOUT_FILENO);
  if (how.error >= 0) ::dup2(how.error, STDERR_FILENO);
  for (int descriptor : how.inherited) ::fcntl(descriptor, F_SETFD, 0);
  if (!how.cores.empty()) ::sched_setaffinity(0, sizeof cores, &cores);
  ::execve(how.file.c_str(), arguments, environment);
}

// Advises what to do with a file of this folder that the system cannot start.
std::string how_to_start(const std::string& name) {
  const std::string path = name.find('/') == std::string::npos ? "./" + name : name;
  std::error_code absent;
  if (!std::filesystem::is_regular_file(path, absent)) return "";
  if (name.ends_with(".py")) return fmt::format("; for a script of Python write: python3 {}", printable(name));
  return is_executable_file(path) ? fmt::format("; for the program in this folder write {}", printable(path))
                                  : fmt::format("; if it is a program, make it executable: chmod +x {}", printable(path));
}

}  // namespace

std::string find_program(const std::string& name, const std::string& path_variable) {
  if (name == "trivet") return std::filesystem::read_symlink("/proc/self/exe");
  if (name.find('/') != std::string::npos) {
    if (is_executable_file(name)) return name;
    throw ConfigError(fmt::format("{}: is not an executable file{}", printable(name), how_to_start(name)));
  }
  std::istringstream folders(path_variable);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable_file(path)) return path;
  }
  if (name == "train" || name == "tune")
    throw ConfigError(fmt::format("{}: no such program in PATH; to train with this executable write trivet {}", name, name));
  const std::string advice = how_to_start(name);
  throw ConfigError(
      fmt::format("{}: no such program in PATH{}", printable(name),
                  advice.empty() ? fmt::format("; for a program in this folder write ./{}", printable(name)) : advice));
}

std::string path_of(const comm::Environment& environment) {
  const auto path = environment.find("PATH");
  return path == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
}

pid_t start(const Start& how) {
  std::vector<std::string> arguments = how.arguments, variables;
  for (const auto& [name, value] : how.environment) variables.push_back(name + "=" + value);
  const std::vector<char*> argument_pointers = pointers(arguments), variable_pointers = pointers(variables);
  const cpu_set_t cores = as_set(how.cores);
  const Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto [reading, writing] = make_pipe("for errors of exec");

  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw shortage(fmt::format("cannot start {}", printable(how.arguments[0])), errno);
  if (pid == 0) {
    become_rank(how, launcher, cores, null.number(), argument_pointers.data(), variable_pointers.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(writing.number(), &error, sizeof error);
    ::_exit(static_cast<int>(ExitCode::Usage));
  }
  ::setpgid(pid, pid);  // the child does the same; whichever runs first
  writing.reset();
  int error = 0;
  if (::read(reading.number(), &error, sizeof error) == sizeof error) {  // otherwise exec has closed it
    throw ConfigError(fmt::format("{}: cannot be executed: {}", printable(how.arguments[0]), std::strerror(error)));
  }
  return pid;
}

}  // namespace trivet::cli
