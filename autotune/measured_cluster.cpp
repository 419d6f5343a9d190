#include "autotune/measured_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"

namespace trivet::autotune {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> find_figure(const HostExamined& host, const std::string& subject, const std::string& name) {
  for (const Finding& finding : host.findings)
    for (const auto& [key, value] : finding.figures)
      if (finding.subject == subject && key == name) return value;
  return std::nullopt;
}

double figure(const HostExamined& host, const std::string& subject, const std::string& name) {
  if (const auto value = find_figure(host, subject, name)) return *value;
  std::string why = "its measurement is missing";
  for (const Finding& finding : host.findings)
    if (finding.subject == subject && !finding.text.empty()) why = finding.text;
  throw ConfigError(fmt::format("doctor: --cluster: {} of host {} is not known: {}: {}", name, host.name, subject, why));
}

double least(const std::vector<HostExamined>& hosts, const std::string& subject, const std::string& name) {
  double value = figure(hosts[0], subject, name);
  for (const HostExamined& host : hosts) value = std::min(value, figure(host, subject, name));
  return value;
}

double most(const std::vector<HostExamined>& hosts, const std::string& subject, const std::string& name) {
  double value = 0;
  for (const HostExamined& host : hosts) value = std::max(value, figure(host, subject, name));
  return value;
}

double least_memory(const std::vector<HostExamined>& hosts) {
  double value = least(hosts, "memory", "total_bytes");
  for (const HostExamined& host : hosts) value = std::min(value, find_figure(host, "memory", "limit_bytes").value_or(value));
  return value;
}

// "AMD EPYC, 8 cores, AVX2" of the host whose products are slowest.
std::string device_name(const std::vector<HostExamined>& hosts, int slots) {
  const auto rate = [](const HostExamined& host) { return figure(host, "products", "float32_flops_per_second"); };
  const auto slowest =
      std::min_element(hosts.begin(), hosts.end(), [&](const auto& a, const auto& b) { return rate(a) < rate(b); });
  std::string name = slowest->name;
  for (const Finding& finding : slowest->findings)
    if (finding.subject == "processor") name = finding.text.substr(0, finding.text.find(';'));
  return slots == 1 ? name : fmt::format("1/{} of {}", slots, name);
}

// The all-reduce of `slots` ranks as a ring (collective_cost.h): 2 (n-1) alpha + 2 (n-1)/n S beta.
Json inside(const std::vector<HostExamined>& hosts, int slots) {
  const double hops = 2.0 * (slots - 1);
  return {{"bytes_per_second", std::floor(hops / slots * least(hosts, "ranks", "all_reduce_bytes_per_second"))},
          {"latency_seconds", most(hosts, "ranks", "short_all_reduce_seconds") / hops}};
}

// The slots of a host share its link.
Json outside(const NetworkMeasured& network, int slots) {
  double bandwidth = network.bandwidth(0, 1), latency = 0;
  for (int from = 0; from < network.hosts; ++from)
    for (int to = 0; to < network.hosts; ++to) {
      if (from == to) continue;
      bandwidth = std::min(bandwidth, network.bandwidth(from, to));
      latency = std::max(latency, network.latency(from, to));
    }
  return {{"bytes_per_second", std::floor(bandwidth / slots)}, {"latency_seconds", latency}};
}

}  // namespace

std::string cluster_of_hosts(const std::vector<HostExamined>& hosts, const NetworkMeasured& network, int slots,
                             const std::string& name) {
  const auto share = [&](double value) { return std::floor(value / slots); };
  Json cluster{{"name", name},
               {"nodes", hosts.size()},
               {"devices_per_node", slots},
               {"device",
                {{"name", device_name(hosts, slots)},
                 {"memory_bytes", static_cast<int64_t>(share(least_memory(hosts)))},
                 {"memory_bytes_per_second", share(least(hosts, "memory", "copy_bytes_per_second"))},
                 {"matrix_flops", share(least(hosts, "products", "bfloat16_flops_per_second"))},
                 {"float32_flops", share(least(hosts, "products", "float32_flops_per_second"))},
                 {"product_efficiency", 1},
                 {"launch_seconds", most(hosts, "products", "small_kernel_seconds")}}}};
  if (slots > 1) cluster["inside"] = inside(hosts, slots);
  if (hosts.size() > 1) cluster["outside"] = outside(network, slots);
  return cluster.dump(2) + "\n";
}

}  // namespace trivet::autotune
