#include "comm/port_holder.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/log.h"

namespace trivet::comm {
namespace {

namespace fs = std::filesystem;

struct Listeners {
  std::set<std::string> sockets;  // "socket:[4711]", as in /proc/PID/fd
  std::string user;               // number of the user who has one of them
};

// /proc/net/tcp: "sl local_address rem_address st ... uid timeout inode"; state 0A is listening.
void add_listeners(const char* table, int port, Listeners& found) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
    if (state != "0A") continue;
    const size_t colon = local.rfind(':');
    if (colon == std::string::npos || std::stoi(local.substr(colon + 1), nullptr, 16) != port) continue;
    found.sockets.insert("socket:[" + inode + "]");
    found.user = uid;
  }
}

bool holds(const fs::path& process, const std::set<std::string>& sockets) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(process / "fd", ignored)) {
    if (sockets.contains(fs::read_symlink(entry.path(), ignored).string())) return true;
  }
  return false;
}

std::string program_of(const fs::path& process) {
  std::ifstream file(process / "comm");
  std::string name;
  std::getline(file, name);
  return escape_control(name);
}

}  // namespace

std::string port_holder(int port) {
  Listeners listeners;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) add_listeners(table, port, listeners);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (holds(entry.path(), listeners.sockets)) return fmt::format("pid {} ({})", pid, program_of(entry.path()));
  }
  return listeners.user.empty()
             ? "a process that cannot be seen from here"
             : fmt::format("a process of user {} that cannot be seen from here", escape_control(listeners.user));
}

}  // namespace trivet::comm
