#include "autotune/host_facts.h"

#include <algorithm>
#include <fstream>

namespace trivet::autotune {

std::string line_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (key.empty()) return line;
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    return colon == std::string::npos ? "" : line.substr(std::min(line.size(), colon + 2));
  }
  return "";
}

std::string processor_name(const std::string& root) {
  const std::string name = line_of(root + "/proc/cpuinfo", "model name");
  return name.empty() ? "unknown processor" : name;
}

}  // namespace trivet::autotune
