#include "cli/launch/hosts/program_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "cli/launch/hosts/remote_command.h"
#include "cli/launch/pipe.h"
#include "cli/launch/program.h"
#include "comm/member.h"
#include "core/descriptor.h"
#include "core/error.h"
#include "core/module_file.h"
#include "core/printable.h"
#include "core/shell_words.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostSaid = 4096;

std::string folder_of_copy() { return "\"$HOME\"/.cache/trivet/" + comm::build_digest(); }

// The executable and its modules, which the copy will look for next to itself.
std::vector<fs::path> files_to_copy() {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  std::vector<fs::path> files{program};
  for (const fs::path& folder : module_folders(program)) {
    for (const char* module : {"libtrivet_ucx.so", "libtrivet_gloo.so", "libtrivet_cuda.so"})
      if (refusal_of_module(program, folder / module).empty()) files.push_back(folder / module);
  }
  return files;
}

// The file gets its name only when it is complete. Where others can write to the home directory, a folder or file of somebody
// else (test -O) is not used.
std::string receiving_command(const std::string& name) {
  const std::string target = folder_of_copy() + "/" + name;
  return fmt::format(
      "umask 077 && mkdir -p {0} && test -O {0} && "
      "{{ {{ test -s {1} && test -O {1}; }} || {{ cat > {1}.new.$$ && chmod 755 {1}.new.$$ && mv -f {1}.new.$$ {1}; }}; }}",
      folder_of_copy(), target);
}

class Copy {
 public:
  Copy(const LaunchRequest& request, const std::string& host, const fs::path& file, const comm::Environment& inherited)
      : host_(host), file_(file) {
    const Descriptor input(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!input) throw ConfigError(fmt::format("--copy_program: {}: {}", file.string(), std::strerror(errno)));
    auto [said, says] = make_pipe("to another host");
    said_ = std::move(said);
    const auto command = ssh_command(request, host, "exec sh -c " + quoted(receiving_command(file.filename().string())));
    pid_ = start({.file = find_program(command[0], path_of(inherited)),
                  .arguments = command,
                  .environment = inherited,
                  .input = input.number(),
                  .output = says.number(),
                  .error = says.number()});
  }

  // Children that are left are killed when this process ends.
  void wait(const GuardianEnds& ends) const {
    std::string said;
    char text[1024];
    for (ssize_t got = 1; got != 0;) {
      pollfd entries[] = {{said_.number(), POLLIN, 0}, {ends.orders, POLLIN, 0}};
      ::poll(entries, 2, -1);
      if (entries[1].revents != 0) throw Error(ExitCode::Rendezvous, "launch: interrupted while the program was copied");
      got = ::read(said_.number(), text, sizeof text);
      if (got < 0 && errno != EINTR) break;
      if (got > 0 && said.size() < kMostSaid) said.append(text, static_cast<size_t>(got));
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    throw Error(ExitCode::Rendezvous, fmt::format("--copy_program: {} could not be copied to {}: {}", file_.filename().string(),
                                                  host_, printable(said.substr(0, said.find_last_not_of("\r\n") + 1))));
  }

 private:
  const std::string host_;
  const fs::path file_;
  Descriptor said_;
  pid_t pid_ = -1;
};

}  // namespace

std::string copied_program() { return folder_of_copy() + "/" + fs::read_symlink("/proc/self/exe").filename().string(); }

void copy_program(const LaunchRequest& request, const std::vector<HostRanks>& hosts, const comm::Environment& inherited,
                  const GuardianEnds& ends) {
  for (const fs::path& file : files_to_copy()) {
    std::vector<Copy> copies;
    for (const HostRanks& on : hosts)
      if (!is_this_host(on.host.name)) copies.emplace_back(request, on.host.login(), file, inherited);
    for (const Copy& copy : copies) copy.wait(ends);
  }
}

}  // namespace trivet::cli
