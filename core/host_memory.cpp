#include "core/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace trivet {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// A file with one number; `otherwise` if it has none, such as "max".
int64_t number_in(const std::string& path, int64_t otherwise) {
  int64_t number = 0;
  return std::ifstream(path) >> number ? number : otherwise;
}

// A file of lines "name number ..."; `otherwise` if none has this name.
int64_t number_of(const std::string& path, const std::string& name, int64_t otherwise) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string found;
    int64_t number = 0;
    if (words >> found >> number && found == name) return number;
  }
  return otherwise;
}

// The names that the two versions of control groups give to the same things.
struct Version {
  const char *limit, *used, *inactive_files, *active_files;
};
constexpr Version kVersion2{"/memory.max", "/memory.current", "inactive_file", "active_file"};
// Names of version 1 without "total_" would leave out the groups below.
constexpr Version kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file", "total_active_file"};

int64_t left_in_group(const std::string& group, const Version& version) {
  const int64_t limit = number_in(group + version.limit, kNoLimit);
  if (limit == kNoLimit) return kNoLimit;
  const std::string statistics = group + "/memory.stat";
  const int64_t cached = number_of(statistics, version.inactive_files, 0) + number_of(statistics, version.active_files, 0);
  return std::max<int64_t>(0, limit - number_in(group + version.used, 0) + cached);
}

// Returns, for the group "/job/step" of a hierarchy, the least that it, "/job" and "/" leave. In a container that sees
// only its own part of the hierarchy, the first ones are not there and set no limit.
int64_t left_in_hierarchy(const std::string& hierarchy, std::string group, const Version& version) {
  int64_t least = left_in_group(hierarchy, version);
  for (; group.size() > 1; group.resize(group.rfind('/'))) least = std::min(least, left_in_group(hierarchy + group, version));
  return least;
}

// Lines of /proc/self/cgroup: "0::/job/step" in version 2, "4:memory:/job/step" in version 1.
int64_t left_in_groups(const std::string& root) {
  const std::string hierarchies = root + "/sys/fs/cgroup";
  int64_t least = left_in_group(hierarchies, kVersion2);  // also without /proc
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || !line.substr(second + 1).starts_with('/')) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",", group = line.substr(second + 1);
    if (controllers == ",,") {
      least = std::min(least, left_in_hierarchy(hierarchies, group, kVersion2));
      least = std::min(least, left_in_hierarchy(hierarchies + "/unified", group, kVersion2));  // beside version 1
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, left_in_hierarchy(hierarchies + "/memory", group, kVersion1));
    }
  }
  return least;
}

}  // namespace

int64_t available_host_memory(const std::string& root) {
  const int64_t kibibytes = number_of(root + "/proc/meminfo", "MemAvailable:", -1);
  return std::min(kibibytes < 0 ? kNoLimit : kibibytes * 1024, left_in_groups(root));
}

int64_t peak_resident_memory(const std::string& root) {
  const int64_t kibibytes = number_of(root + "/proc/self/status", "VmHWM:", -1);
  return kibibytes < 0 ? -1 : kibibytes * 1024;
}

}  // namespace trivet
