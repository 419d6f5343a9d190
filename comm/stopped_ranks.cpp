#include "comm/stopped_ranks.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "comm/process_state.h"
#include "core/error.h"

namespace trivet::comm {
namespace {

namespace fs = std::filesystem;

// Checked because anybody may give a process the variables of this job.
bool is_of_this_user(const fs::path& process) {
  struct stat status {};
  return ::stat(process.c_str(), &status) == 0 && status.st_uid == ::geteuid();
}

bool runs_this_program(const fs::path& process) {
  struct stat ours {
  }, theirs{};
  return ::stat("/proc/self/exe", &ours) == 0 && ::stat((process / "exe").c_str(), &theirs) == 0 &&
         ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

Environment environment_of(const fs::path& process) {
  Environment variables;
  std::ifstream file(process / "environ");
  for (std::string entry; std::getline(file, entry, '\0');) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return variables;
}

std::optional<Place> place_of(const fs::path& process) {
  try {
    return place_from_environment(environment_of(process));
  } catch (const ConfigError&) {
    return std::nullopt;  // not a rank
  }
}

bool same_job(const Place& a, const Place& b) {
  return a.source == b.source && a.world_size == b.world_size && a.master_address == b.master_address &&
         a.master_port == b.master_port && a.job_id == b.job_id;
}

}  // namespace

std::vector<StoppedRank> find_stopped_ranks(const Place& job) {
  std::vector<StoppedRank> found;
  std::error_code ignored;
  for (auto entry = fs::directory_iterator("/proc", ignored); entry != fs::directory_iterator(); entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    int64_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    const auto state = state_of_process(pid);
    if (!state || state->state != 'T') continue;
    if (!is_of_this_user(entry->path()) || !runs_this_program(entry->path())) continue;
    const auto place = place_of(entry->path());
    if (place && same_job(*place, job)) found.push_back({place->rank, pid});
  }
  return found;
}

}  // namespace trivet::comm
