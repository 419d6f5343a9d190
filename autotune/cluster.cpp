#include "autotune/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "core/bounded_file.h"
#include "core/error.h"
#include "core/printable.h"
#include "engine/config/json_reader.h"
#include "engine/config/suggest.h"

namespace trivet::autotune {
namespace {

using config::JsonKind;
using config::JsonNode;

// The bandwidth is the share of the link's rate that NCCL's rings reach (about 0.8 for NVLink, 0.9 for InfiniBand); the latency
// is that of one step of a ring.
LinkRates link_of(double bytes_per_second, double latency_seconds) {
  return {.alpha = latency_seconds, .beta = 1 / bytes_per_second};
}

std::vector<Cluster> known_clusters() {
  const auto node = [](Accelerator device, double nvlink, double network) {
    Cluster cluster;
    cluster.device = std::move(device);
    cluster.device.reserve_bytes = default_reserve(cluster.device.memory_bytes);
    cluster.devices_per_node = 8;
    cluster.inside = link_of(0.8 * nvlink, 2e-6);
    cluster.outside = link_of(0.9 * network, 6e-6);
    return cluster;
  };
  // Device memory is what a driver reports, less what a process's context takes.
  constexpr int64_t kGib = int64_t{1} << 30;
  // A device's share of the host of a DGX is an eighth of its memory, less a tenth for the system, and an eighth of the 0.8 of
  // its channels' bandwidth (16 of DDR4-3200 or DDR5-4800) that streams reach.
  const HostShare dgx_a100_40{.memory_bytes = 115 * kGib, .memory_bandwidth = 41e9, .link_bandwidth = 25e9};
  const HostShare dgx_a100{.memory_bytes = 230 * kGib, .memory_bandwidth = 41e9, .link_bandwidth = 25e9};
  const HostShare dgx_h100{.memory_bytes = 230 * kGib, .memory_bandwidth = 61e9, .link_bandwidth = 50e9};
  std::vector<Cluster> clusters;
  const auto add = [&](const char* name, Cluster cluster, const HostShare& host) {
    cluster.name = name;
    cluster.host = host;
    clusters.push_back(std::move(cluster));
  };
  Accelerator a100{.name = "NVIDIA A100 SXM 80 GB",
                   .memory_bytes = 78 * kGib,
                   .memory_bandwidth = 0.9 * 2039e9,
                   .matrix_flops = 312e12,
                   .float32_flops = 19.5e12,
                   .product_efficiency = 0.67,
                   .launch_seconds = 4e-6};
  add("a100", node(a100, 300e9, 25e9), dgx_a100);
  a100.name = "NVIDIA A100 SXM 40 GB", a100.memory_bytes = 38 * kGib, a100.memory_bandwidth = 0.9 * 1555e9;
  add("a100-40", node(a100, 300e9, 25e9), dgx_a100_40);
  Accelerator h100{.name = "NVIDIA H100 SXM 80 GB",
                   .memory_bytes = 78 * kGib,
                   .memory_bandwidth = 0.9 * 3350e9,
                   .matrix_flops = 989e12,
                   .float32_flops = 67e12,
                   .product_efficiency = 0.57,
                   .launch_seconds = 4e-6};
  add("h100", node(h100, 450e9, 50e9), dgx_h100);
  h100.name = "NVIDIA H200 SXM 141 GB", h100.memory_bytes = 138 * kGib, h100.memory_bandwidth = 0.9 * 4800e9;
  add("h200", node(h100, 450e9, 50e9), dgx_h100);
  // The shares of the matrix rate below are assumed: no published 16-bit runs were compared.
  Accelerator blackwell{.name = "NVIDIA B200 SXM 180 GB",
                        .memory_bytes = 176 * kGib,
                        .memory_bandwidth = 0.9 * 8000e9,
                        .matrix_flops = 2250e12,
                        .float32_flops = 75e12,
                        .product_efficiency = h100.product_efficiency,
                        .launch_seconds = 4e-6};
  const HostShare dgx_b200{.memory_bytes = 230 * kGib, .memory_bandwidth = 72e9, .link_bandwidth = 50e9};
  add("b200", node(blackwell, 900e9, 50e9), dgx_b200);
  blackwell.name = "NVIDIA GB200 NVL72 186 GB", blackwell.memory_bytes = 182 * kGib;
  blackwell.matrix_flops = 2500e12, blackwell.float32_flops = 80e12;
  Cluster rack = node(blackwell, 900e9, 50e9);
  rack.devices_per_node = 72;
  // Half of a Grace: 480 GB of LPDDR5X at 512 GB/s, and a quarter of the 900 GB/s of its link to two devices each way.
  add("gb200", rack, {.memory_bytes = 200 * kGib, .memory_bandwidth = 205e9, .link_bandwidth = 225e9});
  const Accelerator mi300x{.name = "AMD Instinct MI300X 192 GB",
                           .memory_bytes = 190 * kGib,
                           .memory_bandwidth = 0.9 * 5300e9,
                           .matrix_flops = 1307e12,
                           .float32_flops = 163e12,
                           .product_efficiency = 0.45,
                           .launch_seconds = 4e-6};
  add("mi300x", node(mi300x, 448e9, 50e9), dgx_h100);  // seven Infinity Fabric links of 64 GB/s
  return clusters;
}

std::string shown(const JsonNode& node) { return printable(config::to_json(node)); }

// Reads the known keys of one object, each once, and refuses the rest.
class ObjectReader {
 public:
  ObjectReader(const JsonNode& node, std::string path, const std::string& source)
      : node_(node), path_(std::move(path)), source_(source) {
    if (node.kind != JsonKind::Object) refuse(node.at, "", shown(node) + " is not accepted; give an object {...}");
  }

  void number(const std::string& key, double& value, bool zero_allowed = false) {
    if (const JsonNode* given = take(key)) {
      const bool fits = given->kind == JsonKind::Number && std::isfinite(given->number) &&
                        (given->number > 0 || (zero_allowed && given->number == 0));
      if (!fits)
        refuse(given->at, key,
               fmt::format("{} is not accepted; give a number {} 0", shown(*given), zero_allowed ? "of at least" : "above"));
      value = given->number;
    }
  }
  void integer(const std::string& key, int64_t& value, int64_t least = 1) {
    if (const JsonNode* given = take(key)) {
      const bool fits = given->kind == JsonKind::Number && given->number >= static_cast<double>(least) &&
                        given->number <= 1e15 && std::floor(given->number) == given->number;
      if (!fits) refuse(given->at, key, fmt::format("{} is not accepted; give a whole number from {}", shown(*given), least));
      value = static_cast<int64_t>(given->number);
    }
  }
  void text(const std::string& key, std::string& value) {
    if (const JsonNode* given = take(key)) {
      if (given->kind != JsonKind::String) refuse(given->at, key, shown(*given) + " is not accepted; give a string");
      value = given->text;
    }
  }
  void object(const std::string& key, const std::function<void(ObjectReader&)>& read) {
    if (const JsonNode* given = take(key)) {
      ObjectReader reader(*given, path_ + key + ".", source_);
      read(reader);
      reader.end();
    }
  }
  // Must be called after the last known key.
  void end() const {
    for (const config::JsonMember& member : node_.members) {
      if (std::ranges::find(known_, member.key) != known_.end()) continue;
      const auto near = config::nearest_names(member.key, known_);
      refuse(member.at, member.key,
             near.empty() ? "unknown key; use " + config::one_of(known_)
                          : "unknown key; did you mean " + config::one_of(near) + "?");
    }
  }
  [[noreturn]] void refuse(const config::Position& at, const std::string& key, const std::string& what) const {
    std::string name = path_ + key;
    if (name.ends_with('.')) name.pop_back();
    throw ConfigError(
        fmt::format("{}:{}:{}: {}{}", source_, at.line, at.column, name.empty() ? "" : printable(name) + ": ", what));
  }
  bool has(const std::string& key) const { return node_.find(key) != nullptr; }
  const config::Position& at() const { return node_.at; }

 private:
  const JsonNode* take(const std::string& key) {
    known_.push_back(key);
    return node_.find(key);
  }

  const JsonNode& node_;
  std::string path_;
  const std::string& source_;
  std::vector<std::string> known_;
};

void read_link(ObjectReader& reader, LinkRates& link) {
  double bytes_per_second = link.beta > 0 ? 1 / link.beta : 0;
  reader.number("bytes_per_second", bytes_per_second);
  reader.number("latency_seconds", link.alpha, true);
  link.beta = bytes_per_second > 0 ? 1 / bytes_per_second : 0;
}

void read_device(ObjectReader& reader, Accelerator& device) {
  reader.text("name", device.name);
  reader.integer("memory_bytes", device.memory_bytes);
  device.reserve_bytes = default_reserve(device.memory_bytes);
  reader.integer("reserve_bytes", device.reserve_bytes, 0);
  reader.number("memory_bytes_per_second", device.memory_bandwidth);
  reader.number("matrix_flops", device.matrix_flops);
  reader.number("float32_flops", device.float32_flops);
  reader.number("product_efficiency", device.product_efficiency);
  reader.number("launch_seconds", device.launch_seconds, true);
}

void read_host(ObjectReader& reader, HostShare& host) {
  reader.integer("memory_bytes", host.memory_bytes);
  reader.number("memory_bytes_per_second", host.memory_bandwidth);
  reader.number("link_bytes_per_second", host.link_bandwidth);
}

// Refuses a cluster that lacks what every plan needs.
void check(const Cluster& cluster, const ObjectReader& reader, bool has_launch_seconds) {
  const auto missing = [&](bool is_missing, const char* key) {
    if (is_missing)
      reader.refuse(reader.at(), key,
                    fmt::format("is missing; give it, or \"like\": one of {}", config::one_of(cluster_names())));
  };
  missing(cluster.device.memory_bytes == 0, "device.memory_bytes");
  missing(cluster.device.memory_bandwidth == 0, "device.memory_bytes_per_second");
  missing(cluster.device.matrix_flops == 0, "device.matrix_flops");
  missing(cluster.device.float32_flops == 0, "device.float32_flops");
  missing(cluster.device.product_efficiency == 0, "device.product_efficiency");
  missing(!has_launch_seconds, "device.launch_seconds");
  missing(cluster.devices_per_node > 1 && cluster.inside.beta == 0, "inside.bytes_per_second");
  missing(cluster.nodes != 1 && cluster.outside.beta == 0, "outside.bytes_per_second");
  const HostShare& host = cluster.host;
  if (host.memory_bytes > 0 || host.memory_bandwidth > 0 || host.link_bandwidth > 0) {
    missing(host.memory_bytes == 0, "host.memory_bytes");
    missing(host.memory_bandwidth == 0, "host.memory_bytes_per_second");
    missing(host.link_bandwidth == 0, "host.link_bytes_per_second");
  }
  if (cluster.device.usable_bytes() < 1)
    reader.refuse(reader.at(), "device.reserve_bytes",
                  fmt::format("{} is not accepted; give less than device.memory_bytes {}", cluster.device.reserve_bytes,
                              cluster.device.memory_bytes));
  if (cluster.device.product_efficiency > 1)
    reader.refuse(
        reader.at(), "device.product_efficiency",
        fmt::format("{} is not accepted; it is a share of the matrix rate, from 0 to 1", cluster.device.product_efficiency));
  if (const std::string problem = expert_imbalance_problem(cluster.expert_imbalance); !problem.empty())
    reader.refuse(reader.at(), "expert_imbalance", problem);
  if (cluster.nodes > std::numeric_limits<int>::max() / cluster.devices_per_node)
    reader.refuse(reader.at(), "nodes",
                  fmt::format("{} nodes of {} devices are more than 2^31 devices", cluster.nodes, cluster.devices_per_node));
}

}  // namespace

std::string expert_imbalance_problem(double imbalance) {
  if (imbalance >= 1 && imbalance <= 1e6) return "";
  return fmt::format("{} is not accepted; it is the rows of the fullest rank over their mean, from 1", imbalance);
}

void check_devices(const Cluster& cluster, int64_t devices) {
  if (cluster.most_devices() > 0 && devices > cluster.most_devices())
    throw ConfigError(fmt::format("cluster \"{}\": {} devices are more than it has ({} nodes of {}); use at most {}",
                                  cluster.name, devices, cluster.nodes, cluster.devices_per_node, cluster.most_devices()));
}

std::vector<std::string> cluster_names() {
  std::vector<std::string> names;
  for (const Cluster& cluster : known_clusters()) names.push_back(cluster.name);
  return names;
}

Cluster cluster_named(std::string_view name) {
  for (Cluster& cluster : known_clusters())
    if (cluster.name == name) return cluster;
  throw ConfigError(
      fmt::format("cluster: \"{}\" is not known; use {} or a file", printable(name), config::one_of(cluster_names())));
}

Cluster parse_cluster(std::string_view json, const std::string& source) {
  const JsonNode root = config::read_json(json, source);
  ObjectReader reader(root, "", source);
  Cluster cluster;
  std::string like;
  reader.text("like", like);
  if (!like.empty()) {
    const auto names = cluster_names();
    if (std::ranges::find(names, like) == names.end())
      reader.refuse(root.find("like")->at, "like",
                    fmt::format("\"{}\" is not accepted; use {}", printable(like), config::one_of(names)));
    cluster = cluster_named(like);
  }
  reader.text("name", cluster.name);
  reader.integer("devices_per_node", cluster.devices_per_node);
  reader.integer("nodes", cluster.nodes);
  bool has_launch_seconds = !like.empty();
  reader.object("device", [&](ObjectReader& r) {
    read_device(r, cluster.device);
    has_launch_seconds = has_launch_seconds || r.has("launch_seconds");
  });
  reader.object("inside", [&](ObjectReader& r) { read_link(r, cluster.inside); });
  reader.object("outside", [&](ObjectReader& r) { read_link(r, cluster.outside); });
  reader.object("host", [&](ObjectReader& r) { read_host(r, cluster.host); });
  reader.number("price_per_device_hour", cluster.price_per_device_hour);
  reader.number("expert_imbalance", cluster.expert_imbalance);
  reader.end();
  check(cluster, reader, has_launch_seconds);
  return cluster;
}

Cluster find_cluster(const std::string& name_or_path) {
  const auto names = cluster_names();
  if (std::ranges::find(names, name_or_path) != names.end()) return cluster_named(name_or_path);
  if (std::error_code unknown; !std::filesystem::exists(name_or_path, unknown))
    throw ConfigError(
        fmt::format("cluster: \"{}\" is neither a file nor one of {}", printable(name_or_path), config::one_of(names)));
  const BoundedText read = read_bounded(name_or_path, config::kMaxConfigBytes, "a description of a cluster");
  if (!read.problem.empty())
    throw ConfigError(fmt::format("{}: {}; name a file, or one of {}", name_or_path, read.problem, config::one_of(names)));
  return parse_cluster(read.text, name_or_path);
}

}  // namespace trivet::autotune
