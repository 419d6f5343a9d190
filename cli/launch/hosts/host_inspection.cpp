#include "cli/launch/hosts/host_inspection.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/launch/cores.h"
#include "cli/launch/program.h"
#include "comm/member.h"
#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

// "MemAvailable:   12345 kB"
int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (int64_t kibibytes = 0; file >> name;) {
    if (name == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

int64_t available_disk() {
  std::error_code error;
  const fs::space_info space = fs::space(".", error);
  return error ? 0 : static_cast<int64_t>(space.available);
}

void check_files(const HostTask& task, HostReport& report) {
  for (const std::string& file : task.files) {
    if (::access(file.c_str(), R_OK) != 0)
      report.problems.push_back(fmt::format("{}: {}", printable(file), std::strerror(errno)));
  }
}

// SSH_CONNECTION: "CLIENT PORT SERVER PORT"
void read_connection(const comm::Environment& environment, HostReport& report) {
  const auto connection = environment.find("SSH_CONNECTION");
  if (connection == environment.end()) return;
  std::istringstream words(connection->second);
  std::string port;
  words >> report.address_of_launcher >> port >> report.address;
}

}  // namespace

HostReport inspect_host(const HostTask& task, const comm::Environment& environment) {
  HostReport report{.host_name = comm::this_host(), .boot_id = comm::this_boot()};
  try {
    find_program(task.request.program[0], path_of(environment));
  } catch (const Error& error) {
    report.problems.emplace_back(error.what());
  }
  check_files(task, report);
  try {
    lay_out_here(task.request, task.on, environment);
  } catch (const Error& error) {
    report.problems.emplace_back(error.what());
  }
  read_connection(environment, report);
  report.cores = static_cast<int>(allowed_cores().size());
  report.memory_bytes = available_memory();
  report.disk_bytes = available_disk();
  report.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return report;
}

}  // namespace trivet::cli
