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

int64_t left_in_container(const std::string& cgroup) {
  const int64_t limit = number_in(cgroup + "/memory.max", kNoLimit);
  if (limit == kNoLimit) return kNoLimit;
  const std::string statistics = cgroup + "/memory.stat";
  const int64_t cached = number_of(statistics, "inactive_file", 0) + number_of(statistics, "active_file", 0);
  return std::max<int64_t>(0, limit - number_in(cgroup + "/memory.current", 0) + cached);
}

}  // namespace

int64_t available_host_memory(const std::string& root) {
  const int64_t kibibytes = number_of(root + "/proc/meminfo", "MemAvailable:", -1);
  return std::min(kibibytes < 0 ? kNoLimit : kibibytes * 1024, left_in_container(root + "/sys/fs/cgroup"));
}

}  // namespace trivet
