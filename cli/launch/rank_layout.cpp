#include "cli/launch/rank_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/launch/cores.h"
#include "comm/member.h"
#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

constexpr const char* kUsualHostfile = "/job/hostfile";
constexpr int kMaxRanks = 4096;

std::vector<Host> hosts_of(const LaunchRequest& request) {
  if (!request.hostfile.empty()) return parse_hostfile(request.hostfile);
  if (std::filesystem::exists(kUsualHostfile)) return parse_hostfile(kUsualHostfile);
  Host host{"localhost", std::vector<int>(request.ranks > 0 ? request.ranks : memory_nodes())};
  std::iota(host.slots.begin(), host.slots.end(), 0);
  return {host};
}

bool are_the_first(const std::vector<int>& slots) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] != static_cast<int>(i)) return false;
  }
  return true;
}

}  // namespace

Host slots_on_this_host(const LaunchRequest& request) {
  if (request.ranks == 0 || request.ranks < -1 || request.ranks > kMaxRanks) {
    throw ConfigError(fmt::format("--num_gpus {}: must be from 1 to {}", request.ranks, kMaxRanks));
  }
  if (request.ranks > 0 && !(request.include + request.exclude).empty()) {
    throw ConfigError("--num_gpus cannot be used with --include or --exclude; these name the slots themselves");
  }
  const std::vector<Host> hosts = filter_hosts(hosts_of(request), request.include, request.exclude);
  for (const Host& host : hosts) {
    if (!is_this_host(host.name)) {
      throw ConfigError(
          fmt::format("host \"{}\": ranks on other hosts are not implemented in this version; name only this host (\"{}\" or "
                      "\"localhost\")",
                      host.name, comm::this_host()));
    }
  }
  if (hosts.size() > 1)
    throw ConfigError(fmt::format("\"{}\" and \"{}\" are both this host; name it once", hosts[0].name, hosts[1].name));
  Host host = hosts[0];
  if (request.ranks > static_cast<int>(host.slots.size())) {
    throw ConfigError(fmt::format(
        "--num_gpus {}: host \"{}\" has only {} slots; start at most {} ranks, or give it more slots in the hostfile",
        request.ranks, host.name, host.slots.size(), host.slots.size()));
  }
  if (request.ranks > 0) host.slots.resize(request.ranks);
  return host;
}

std::vector<RankLayout> lay_out(const LaunchRequest& request, const Host& host, const std::vector<int>& cores,
                                const comm::Environment& inherited) {
  const int ranks = static_cast<int>(host.slots.size());
  const auto wait_policy = inherited.find("OMP_WAIT_POLICY");
  std::vector<RankLayout> layout;
  for (int rank = 0; rank < ranks; ++rank) {
    RankLayout one{.rank = rank, .local_rank = rank, .host = host.name, .slot = host.slots[rank]};
    if (request.bind_cores) one.cores = cores_of_rank(cores, rank, ranks);
    const size_t threads = request.bind_cores ? one.cores.size() : std::max<size_t>(1, cores.size() / host.slots.size());
    one.environment = {{"RANK", std::to_string(rank)},
                       {"WORLD_SIZE", std::to_string(ranks)},
                       {"LOCAL_RANK", std::to_string(rank)},
                       {"LOCAL_SIZE", std::to_string(ranks)},
                       {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
                       {"NODE_RANK", "0"},
                       {"CROSS_RANK", "0"},
                       {"CROSS_SIZE", "1"},
                       {"MASTER_ADDR", request.master_address},
                       {"MASTER_PORT", std::to_string(request.master_port)}};
    if (!inherited.contains("OMP_NUM_THREADS")) one.environment["OMP_NUM_THREADS"] = std::to_string(threads);
    // Always listed: `trivet` sets it for itself, so an inherited value does not mean that the user chose it.
    one.environment["OMP_WAIT_POLICY"] = wait_policy == inherited.end() ? "passive" : wait_policy->second;
    if (!are_the_first(host.slots)) one.environment["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(host.slots, ","));
    layout.push_back(std::move(one));
  }
  return layout;
}

std::string layout_as_json(const std::vector<RankLayout>& ranks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RankLayout& rank : ranks) {
    nlohmann::ordered_json entry{
        {"rank", rank.rank}, {"local_rank", rank.local_rank}, {"node_rank", rank.node_rank},    {"host", rank.host},
        {"slot", rank.slot}, {"cores", rank.cores},           {"environment", rank.environment}};
    list.push_back(std::move(entry));
  }
  return nlohmann::ordered_json{{"ranks", std::move(list)}}.dump(2) + "\n";
}

std::string layout_as_text(const std::vector<RankLayout>& ranks, const LaunchRequest& request) {
  std::string out =
      fmt::format("{} ranks of: {}\n", ranks.size(), printable(fmt::format("{}", fmt::join(request.program, " ")), 4096));
  for (const RankLayout& rank : ranks) {
    out += fmt::format("rank {} on {} slot {}{}\n", rank.rank, rank.host, rank.slot,
                       rank.cores.empty() ? "" : fmt::format(" cores {}", core_list_text(rank.cores)));
    for (const auto& [name, value] : rank.environment) out += fmt::format("  {}={}\n", name, printable(value, 4096));
  }
  if (request.master_port == 0) out += "MASTER_PORT=0: a free port is chosen when the ranks start\n";
  return out;
}

}  // namespace trivet::cli
