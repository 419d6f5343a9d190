// The place of a rank that Slurm's srun has started (docs/environment.md).
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <vector>

#include "comm/environment_reader.h"
#include "core/error.h"

namespace trivet::comm {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& value, const std::string& why) {
  throw ConfigError(fmt::format("{}={}: {}", name, escape_control(value), why));
}

int count_in(std::string_view text, const std::string& name, const std::string& value) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1 || count > kMaxRanks)
    refuse(name, value, "is not accepted; it must be a list such as \"4\", \"4(x2)\" or \"2,4(x3)\"");
  return count;
}

// "2,4(x3)" -> {2, 4, 4, 4}
std::vector<int> tasks_of_nodes(const std::string& name, const std::string& value) {
  std::vector<int> tasks;
  for (size_t begin = 0; begin <= value.size();) {
    const size_t comma = std::min(value.find(',', begin), value.size());
    std::string_view part = std::string_view(value).substr(begin, comma - begin);
    int nodes = 1;
    if (const size_t times = part.find("(x"); times != std::string_view::npos && part.ends_with(")")) {
      nodes = count_in(part.substr(times + 2, part.size() - times - 3), name, value);
      part = part.substr(0, times);
    }
    if (tasks.size() + static_cast<size_t>(nodes) > static_cast<size_t>(kMaxRanks)) refuse(name, value, "names too many nodes");
    tasks.insert(tasks.end(), static_cast<size_t>(nodes), count_in(part, name, value));
    begin = comma + 1;
  }
  return tasks;
}

// Returns how many tasks run on this node.
int tasks_here(const EnvironmentReader& environment, int tasks, int nodes) {
  if (nodes == 1) return tasks;
  const char* name = environment.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const std::string value = environment.text(name);
  std::vector<int> each = tasks_of_nodes(name, value);
  if (each.size() == 1) each.resize(static_cast<size_t>(nodes), each[0]);  // "4": 4 tasks on every node
  const int64_t sum = std::accumulate(each.begin(), each.end(), int64_t{0});
  if (static_cast<int>(each.size()) != nodes || sum != tasks)
    refuse(name, value,
           fmt::format("says {} tasks on {} nodes; Slurm has started {} tasks on {} nodes", sum, each.size(), tasks, nodes));
  if (std::all_of(each.begin(), each.end(), [&](int count) { return count == each[0]; })) return each[0];
  return each[static_cast<size_t>(environment.number("SLURM_NODEID", 0, nodes - 1))];
}

// The first name of "n[1-3,007],m2" is "n1"; a name may have several brackets: "c[1-2]-x[0-1]".
std::string first_node(const std::string& name, const std::string& list) {
  std::string first;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      first += list[at];
      continue;
    }
    const size_t end = list.find(']', at);
    if (end == std::string::npos) refuse(name, list, "is not a list of nodes: a bracket is not closed");
    first += list.substr(at + 1, list.find_first_of("-,]", at) - at - 1);
    at = end;
  }
  if (first.empty()) refuse(name, list, "is not a list of nodes");
  return first;
}

}  // namespace

Place place_from_slurm(const EnvironmentReader& environment) {
  Place place;
  place.source = "SLURM_PROCID";
  const char* size = environment.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  const char* nodes = environment.has("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  place.world_size = static_cast<int>(environment.number(size, 1, kMaxRanks));
  place.rank = static_cast<int>(environment.number("SLURM_PROCID", 0, place.world_size - 1));
  const int node_count = static_cast<int>(environment.number_or(nodes, 1, 1, place.world_size));
  place.local_size = tasks_here(environment, place.world_size, node_count);
  place.local_rank =
      static_cast<int>(environment.number_or("SLURM_LOCALID", place.rank % place.local_size, 0, place.local_size - 1));
  place.host_known = environment.has("SLURM_LOCALID");
  if (environment.has("MASTER_ADDR")) {
    place.master_address = environment.text("MASTER_ADDR");
  } else if (node_count == 1) {
    place.master_address = "127.0.0.1";
  } else {
    const char* list = environment.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
    place.master_address = environment.has(list) ? first_node(list, environment.text(list)) : environment.text("MASTER_ADDR");
  }
  place.master_port = static_cast<int>(environment.number_or("MASTER_PORT", kUsualPort, 0, 65535));
  return place;
}

}  // namespace trivet::comm
