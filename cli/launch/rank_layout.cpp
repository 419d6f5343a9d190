#include "cli/launch/rank_layout.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>

#include "cli/launch/cores.h"
#include "cli/launch/slots.h"
#include "cli/launch/train_command.h"
#include "comm/member.h"
#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

constexpr int kMostRanksOfAHost = 4096;

std::vector<Host> named_hosts(const LaunchRequest& request) {
  if (!request.world.empty()) return parse_world(request.world);
  if (!request.hostfile.empty()) return parse_hostfile(request.hostfile);
  if (!request.takes_allocation)
    if (std::vector<Host> usual = parse_usual_hostfile(); !usual.empty()) return usual;
  Host host{
      "localhost", std::vector<int>(request.ranks > 0 ? request.ranks : usual_slots(request.include)), {}, request.ranks <= 0};
  std::iota(host.slots.begin(), host.slots.end(), 0);
  // Without a list, hosts that somebody else chooses have no names, but as many slots as this one.
  return std::vector<Host>(request.starts_one_host || request.takes_allocation ? std::max(1, request.nodes) : 1, host);
}

void check_counts(const LaunchRequest& request) {
  const bool filtered = !(request.include + request.exclude).empty();
  if (request.ranks == 0 || request.ranks < -1 || request.ranks > kMostRanksOfAHost)
    throw ConfigError(fmt::format("--num_gpus {}: must be from 1 to {}", request.ranks, kMostRanksOfAHost));
  if (request.nodes == 0 || request.nodes < -1)
    throw ConfigError(fmt::format("--num_nodes {}: must be at least 1", request.nodes));
  if (request.ranks > 0 && filtered)
    throw ConfigError("--num_gpus cannot be used with --include or --exclude; these name the slots themselves");
  if (request.nodes > 0 && filtered)
    throw ConfigError("--num_nodes cannot be used with --include or --exclude; these name the hosts themselves");
}

void keep_the_first_hosts(std::vector<Host>& hosts, int nodes) {
  if (nodes < 0) return;
  if (nodes > static_cast<int>(hosts.size()))
    throw ConfigError(
        fmt::format("--num_nodes {}: there {}; name as many in a hostfile", nodes,
                    hosts.size() == 1 ? "is one host, \"" + hosts[0].name + "\"" : fmt::format("are {} hosts", hosts.size())));
  hosts.resize(nodes);
}

void keep_the_first_slots(std::vector<Host>& hosts, int ranks) {
  if (ranks < 0) return;
  for (Host& host : hosts) {
    if (ranks > static_cast<int>(host.slots.size()))
      throw ConfigError(fmt::format(
          "--num_gpus {}: host \"{}\" has only {} slots; start at most {} ranks, or give it more slots in the hostfile", ranks,
          host.name, host.slots.size(), host.slots.size()));
    host.slots.resize(ranks);
  }
}

bool are_the_first(const std::vector<int>& slots) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] != static_cast<int>(i)) return false;
  }
  return true;
}

std::string slots_text(const std::vector<int>& slots) { return fmt::format("{}", fmt::join(slots, ",")); }

[[noreturn]] void refuse_slots(const Host& host, const std::string& why) {
  throw ConfigError(
      fmt::format("host \"{}\": {}; ranks that use no GPU can be started with CUDA_VISIBLE_DEVICES= (empty)", host.name, why));
}

void check_named_once(const Host& host, const std::vector<std::string>& visible, const std::string& list) {
  for (auto gpu = visible.begin(); gpu != visible.end(); ++gpu)
    if (std::find(visible.begin(), gpu, *gpu) != gpu)
      refuse_slots(host, fmt::format("CUDA_VISIBLE_DEVICES={} names GPU {} twice, and CUDA shows a process none then; name "
                                     "each GPU once",
                                     printable(list), printable(*gpu)));
}

// Ranks may share a GPU if they are told to (docs/environment.md), and need none if they train on the CPU.
bool needs_a_gpu_for_each_rank(const LaunchRequest& request, const comm::Environment& inherited) {
  const auto shares = inherited.find("TRIVET_SHARE_GPU");
  return (shares == inherited.end() || shares->second != "1") && !runs_on_cpu(request.program);
}

// Returns the value of CUDA_VISIBLE_DEVICES for the ranks of a host. Slots count the GPUs that the host's own
// environment shows. Empty: the variable stays as it is, because nobody has chosen among these GPUs and the ranks use
// the first of them, or because none is shown.
std::optional<std::string> gpus_of_ranks(const LaunchRequest& request, const Host& host, const comm::Environment& inherited) {
  const bool chosen = host.slots_are_chosen || !are_the_first(host.slots);
  const auto list = inherited.find("CUDA_VISIBLE_DEVICES");
  if (list == inherited.end()) return chosen ? std::optional(slots_text(host.slots)) : std::nullopt;
  if (!needs_a_gpu_for_each_rank(request, inherited)) return std::nullopt;
  if (const std::string entry = entry_that_is_no_gpu(list->second); !entry.empty())
    refuse_slots(host, fmt::format("CUDA_VISIBLE_DEVICES={}: \"{}\" names no GPU, and CUDA shows a process none from there on; "
                                   "write numbers or names (GPU-..., MIG-...) with commas between them",
                                   printable(list->second), printable(entry)));
  const std::vector<std::string> visible = visible_gpus(list->second);
  if (visible.empty()) return std::nullopt;
  check_named_once(host, visible, list->second);
  const int shown = static_cast<int>(visible.size());
  std::vector<std::string> gpus;
  for (const int slot : host.slots) {
    if (slot >= shown && host.slots_are_usual) return std::nullopt;  // there are no such GPUs, and nobody asked for them
    if (slot >= shown)
      refuse_slots(host, fmt::format("there is no GPU for slot {}, because CUDA_VISIBLE_DEVICES={} shows {}: slots count the "
                                     "GPUs that it names, from 0 to {}; choose among these, start fewer ranks, or change "
                                     "the variable",
                                     slot, printable(list->second), shown, shown - 1));
    gpus.push_back(visible[static_cast<size_t>(slot)]);
  }
  return chosen && gpus != visible ? std::optional(fmt::format("{}", fmt::join(gpus, ","))) : std::nullopt;
}

std::string name_of_this_user() {
  const passwd* user = ::getpwuid(::geteuid());
  return user ? user->pw_name : "";
}

// Ranks of this host start without ssh.
void refuse_another_user_here(const Host& host) {
  if (host.user.empty() || host.user == name_of_this_user()) return;
  throw ConfigError(fmt::format("\"{}\": is this host, where the ranks run as the user who starts the job; leave out \"{}@\"",
                                host.login(), host.user));
}

}  // namespace

std::vector<Host> candidate_hosts(const LaunchRequest& request) {
  check_counts(request);
  return filter_hosts(named_hosts(request), request.include, request.exclude);
}

std::vector<HostRanks> hosts_of_job(const LaunchRequest& request) {
  return choose_hosts(candidate_hosts(request), request.nodes, request);
}

std::vector<HostRanks> choose_hosts(std::vector<Host> hosts, int nodes, const LaunchRequest& request) {
  keep_the_first_hosts(hosts, nodes);
  keep_the_first_slots(hosts, request.ranks);
  std::string here;
  int world_size = 0;
  for (const Host& host : hosts) {
    world_size += static_cast<int>(host.slots.size());
    if (request.starts_one_host || request.takes_allocation || !is_this_host(host.name)) continue;
    if (!here.empty()) throw ConfigError(fmt::format("\"{}\" and \"{}\" are both this host; name it once", here, host.name));
    here = host.name;
    refuse_another_user_here(host);
  }
  if (world_size == 0) throw ConfigError("the hosts have no slot, so no rank would start; give them slots");
  if (world_size > comm::kMaxRanks)
    throw ConfigError(fmt::format("the hosts have {} slots; a job has at most {} ranks", world_size, comm::kMaxRanks));
  return deal_ranks(std::move(hosts));
}

std::vector<HostRanks> deal_ranks(std::vector<Host> hosts) {
  int world_size = 0;
  for (const Host& host : hosts) world_size += static_cast<int>(host.slots.size());
  std::vector<HostRanks> dealt;
  for (int first = 0; Host & host : hosts) {
    const int slots = static_cast<int>(host.slots.size());
    dealt.push_back({std::move(host), static_cast<int>(dealt.size()), static_cast<int>(hosts.size()), first, world_size});
    first += slots;
  }
  return dealt;
}

std::vector<RankLayout> lay_out(const LaunchRequest& request, const HostRanks& on, const std::vector<int>& cores,
                                const comm::Environment& inherited) {
  const int ranks = static_cast<int>(on.host.slots.size());
  const auto wait_policy = inherited.find("OMP_WAIT_POLICY");
  const std::optional<std::string> gpus = gpus_of_ranks(request, on.host, inherited);
  if (request.bind_cores && !cores.empty() && static_cast<int>(cores.size()) < ranks)
    throw ConfigError(fmt::format(
        "{}: {} has {} ranks and {} core{} for them; each needs one of its own: start fewer ranks there, or leave the "
        "flag out",
        request.core_list.empty() ? "--bind_cores_to_rank" : "--bind_core_list " + printable(request.core_list),
        printable(on.host.name), ranks, cores.size(), cores.size() == 1 ? "" : "s"));
  std::vector<RankLayout> layout;
  for (int local = 0; local < ranks; ++local) {
    RankLayout one{.rank = on.first_rank + local,
                   .local_rank = local,
                   .node_rank = on.node_rank,
                   .host = on.host.name,
                   .slot = on.host.slots[local]};
    if (request.bind_cores && !cores.empty()) one.cores = cores_of_rank(cores, local, ranks);
    const size_t threads = request.bind_cores ? one.cores.size() : std::max<size_t>(1, cores.size() / on.host.slots.size());
    one.environment = {{"RANK", std::to_string(one.rank)},           {"WORLD_SIZE", std::to_string(on.world_size)},
                       {"LOCAL_RANK", std::to_string(local)},        {"LOCAL_SIZE", std::to_string(ranks)},
                       {"LOCAL_WORLD_SIZE", std::to_string(ranks)},  {"NODE_RANK", std::to_string(on.node_rank)},
                       {"CROSS_RANK", std::to_string(on.node_rank)}, {"CROSS_SIZE", std::to_string(on.nodes)},
                       {"MASTER_ADDR", request.master_address},      {"MASTER_PORT", std::to_string(request.master_port)}};
    if (!inherited.contains("OMP_NUM_THREADS") && !cores.empty()) one.environment["OMP_NUM_THREADS"] = std::to_string(threads);
    // Always listed: `trivet` sets it for itself, so an inherited value does not mean that the user chose it.
    one.environment["OMP_WAIT_POLICY"] = wait_policy == inherited.end() ? "passive" : wait_policy->second;
    if (gpus) one.environment["CUDA_VISIBLE_DEVICES"] = *gpus;
    layout.push_back(std::move(one));
  }
  return layout;
}

std::vector<RankLayout> lay_out_here(const LaunchRequest& request, const HostRanks& on, const comm::Environment& inherited) {
  const auto allowed = allowed_cores();
  return lay_out(request, on, request.core_list.empty() ? allowed : parse_core_list(request.core_list, allowed), inherited);
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

namespace {

// The variables that all of these ranks have with one value.
comm::Environment common_of(std::span<const RankLayout> ranks) {
  comm::Environment common = ranks[0].environment;
  for (const RankLayout& rank : ranks)
    std::erase_if(common, [&](const auto& variable) {
      const auto here = rank.environment.find(variable.first);
      return here == rank.environment.end() || here->second != variable.second;
    });
  return common;
}

// " cores 0-1 2-3": those of each rank. Empty: the ranks are not bound.
std::string cores_of(std::span<const RankLayout> ranks) {
  std::string text;
  for (const RankLayout& rank : ranks)
    if (!rank.cores.empty()) text += " " + core_list_text(rank.cores);
  return text.empty() ? "" : " cores" + text;
}

std::string row_of_host(std::span<const RankLayout> ranks, const comm::Environment& of_all) {
  std::vector<int> slots;
  for (const RankLayout& rank : ranks) slots.push_back(rank.slot);
  std::ranges::sort(slots);
  std::string row = ranks.size() == 1 ? fmt::format("{}: rank {} on slot {}", ranks[0].host, ranks[0].rank, slots[0])
                                      : fmt::format("{}: ranks {}-{} on slots {}", ranks[0].host, ranks.front().rank,
                                                    ranks.back().rank, core_list_text(slots));
  row += cores_of(ranks);
  for (const auto& [name, value] : common_of(ranks))
    if (!of_all.contains(name)) row += fmt::format(" {}={}", name, printable(value, 4096));
  return row + "\n";
}

// A row for each host. Variables that all ranks share appear once, and so do the others, with their values on rank 0.
std::string rows_of_hosts(const std::vector<RankLayout>& ranks) {
  const comm::Environment of_all = common_of(ranks);
  std::string out, alike, own;
  for (std::span<const RankLayout> rest(ranks); !rest.empty();) {
    const auto is_other = [&](const RankLayout& rank) { return rank.node_rank != rest[0].node_rank; };
    const auto of_host = rest.first(static_cast<size_t>(std::ranges::find_if(rest, is_other) - rest.begin()));
    out += row_of_host(of_host, of_all);
    rest = rest.subspan(of_host.size());
  }
  for (const auto& [name, value] : ranks[0].environment)
    (of_all.contains(name) ? alike : own) += fmt::format(" {}={}", name, printable(value, 4096));
  out += "all ranks:" + alike + "\n";
  return own.empty() ? out : out + "different on each host or rank, here on rank 0 (--json shows all):" + own + "\n";
}

}  // namespace

std::string layout_as_text(const std::vector<RankLayout>& ranks, const LaunchRequest& request) {
  std::string out =
      fmt::format("{} ranks of: {}\n", ranks.size(), printable(fmt::format("{}", fmt::join(request.program, " ")), 4096));
  out += rows_of_hosts(ranks);
  if (request.master_port == 0) out += "MASTER_PORT=0: a free port is chosen when the ranks start\n";
  return out;
}

}  // namespace trivet::cli
