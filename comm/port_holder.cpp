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

// /proc/net/tcp: "sl local_address rem_address st ... inode"; state 0A is listening.
std::set<std::string> listening_inodes(const char* table, int port) {
  std::set<std::string> inodes;
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
    if (state != "0A") continue;
    const size_t colon = local.rfind(':');
    if (colon != std::string::npos && std::stoi(local.substr(colon + 1), nullptr, 16) == port) inodes.insert(inode);
  }
  return inodes;
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
  std::set<std::string> sockets;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    for (const std::string& inode : listening_inodes(table, port)) sockets.insert("socket:[" + inode + "]");
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (holds(entry.path(), sockets)) return fmt::format("pid {} ({})", pid, program_of(entry.path()));
  }
  return "a process that cannot be seen from here";
}

}  // namespace trivet::comm
