// Fuzz targets for what a user writes: configs, descriptions of clusters, schedules, hostfiles.
#include <fmt/format.h>

#include "autotune/cluster.h"
#include "cli/launch/hostfile.h"
#include "engine/config/json_reader.h"
#include "engine/config/load.h"
#include "pipeline/schedules/schedules.h"
#include "tests/fuzz/targets.h"

namespace trivet::fuzz {
namespace {

constexpr std::initializer_list<ExitCode> kConfigRefused{ExitCode::Usage};

void check_json(std::string_view input) {
  config::JsonNode node;
  if (!accepts(kConfigRefused, [&] { node = config::read_json(input, "input"); })) return;
  const std::string written = config::to_json(node);
  const config::JsonNode again = config::read_json(written, "written");
  require(config::same_value(node, again), "what was read, written and read again is the same");
  require(config::to_json(again) == written, "writing is stable");
}

}  // namespace

void config(std::string_view input) {
  check_json(input);
  Config config;
  if (accepts(kConfigRefused, [&] { config = parse_config(input, "input"); })) check(config);
}

// The input has a line for each --set.
void overrides(std::string_view input) {
  std::vector<std::string> given;
  for (size_t start = 0; start <= input.size();) {
    const size_t end = std::min(input.find('\n', start), input.size());
    given.emplace_back(input.substr(start, end - start));
    start = end + 1;
  }
  Config config;
  if (accepts(kConfigRefused, [&] { config = parse_config("{\"train_batch_size\": 8}", "input", given); })) check(config);
}

void cluster(std::string_view input) {
  autotune::Cluster cluster;
  if (!accepts(kConfigRefused, [&] { cluster = autotune::parse_cluster(input, "input"); })) return;
  require(cluster.devices_per_node >= 1 && cluster.device.memory_bytes >= 1, "a cluster has devices with memory");
  require(cluster.device.reserve_bytes >= 0 && cluster.device.usable_bytes() >= 1, "a reserve leaves memory to use");
  require(cluster.most_devices() >= 0, "the number of devices does not overflow");
}

void schedule(std::string_view input) {
  pipeline::Schedule schedule;
  if (!accepts(kConfigRefused, [&] { schedule = pipeline::parse_schedule(input, "input"); })) return;
  std::string written;
  for (const pipeline::Program& program : schedule) written += pipeline::to_string(program) + "\n";
  require(pipeline::parse_schedule(written, "written") == schedule, "what was read, written and read again is the same");
}

void hostfile(std::string_view input) {
  std::vector<cli::Host> hosts;
  if (!accepts(kConfigRefused, [&] { hosts = cli::parse_hosts(std::string(input), "input"); })) return;
  require(!hosts.empty(), "a hostfile names a host");
  std::string written;
  for (const cli::Host& host : hosts) written += fmt::format("{} slots={}\n", host.login(), host.slots.size());
  const auto again = cli::parse_hosts(written, "written");
  require(again.size() == hosts.size(), "as many hosts are read again");
  for (size_t i = 0; i < hosts.size(); ++i)
    require(again[i].login() == hosts[i].login() && again[i].slots == hosts[i].slots, "each host is read again as it was");
  const auto filtered = [&](const std::string& include, const std::string& exclude) {
    return accepts(kConfigRefused, [&] { cli::filter_hosts(hosts, include, exclude); });
  };
  require(filtered(hosts[0].name, ""), "a host of the file can be included");
  filtered("", cli::world_of({{hosts[0].name, {0}}}));
  filtered(std::string(input.substr(0, 64)), "");
}

}  // namespace trivet::fuzz
