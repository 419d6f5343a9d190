#include "cli/launch/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "cli/launch/text_lines.h"
#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

bool parse_core(const std::string& text, int& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && !text.starts_with('-');
}

}  // namespace

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

std::vector<int> parse_core_list(const std::string& text, const std::vector<int>& allowed) {
  if (text.empty()) throw ConfigError("--bind_core_list: names no core; write cores and ranges, as in 0-3,8");
  std::vector<int> cores;
  for (const std::string& part : split(text, ',')) {
    const size_t dash = part.find('-');
    int first = 0, last = 0;
    const bool good = parse_core(part.substr(0, dash), first) &&
                      (dash == std::string::npos ? (last = first, true) : parse_core(part.substr(dash + 1), last)) &&
                      first <= last;
    if (!good) {
      throw ConfigError(fmt::format("--bind_core_list {}: \"{}\" is not accepted; write cores and ranges, as in 0-3,8",
                                    printable(text), printable(part)));
    }
    for (int core = first; core <= last; ++core) {
      if (std::find(allowed.begin(), allowed.end(), core) == allowed.end()) {
        throw ConfigError(fmt::format("--bind_core_list {}: core {} is not one that this process may use: {}", printable(text),
                                      core, core_list_text(allowed)));
      }
      if (std::find(cores.begin(), cores.end(), core) != cores.end())
        throw ConfigError(fmt::format("--bind_core_list {}: names core {} twice; name it once", printable(text), core));
      cores.push_back(core);
    }
  }
  return cores;
}

std::vector<int> cores_of_rank(const std::vector<int>& cores, int rank, int ranks) {
  const int count = static_cast<int>(cores.size());
  const int size = count / ranks, larger = count % ranks;
  const int begin = rank * size + std::min(rank, larger);
  const int end = begin + size + (rank < larger ? 1 : 0);
  return {cores.begin() + begin, cores.begin() + end};
}

std::string core_list_text(const std::vector<int>& cores) {
  std::string out;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ",", cores[i]);
    if (last > i) out += fmt::format("-{}", cores[last]);
    i = last + 1;
  }
  return out;
}

int memory_nodes() {
  int nodes = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node") && name.find_first_not_of("0123456789", 4) == std::string::npos && name.size() > 4) ++nodes;
  }
  return std::max(nodes, 1);
}

}  // namespace trivet::cli
