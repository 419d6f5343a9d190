// The machines that a plan is for, described by numbers from data sheets or benchmarks; they need not be there.
//
//   cluster_named("h100")                      // a node of 8 with its network, as many nodes as the plan needs
//   find_cluster("cluster.json")               // {"like": "h100", "nodes": 128, "outside": {"bytes_per_second": 25e9}}
//
// docs/planning.md has all keys. Bandwidths are of one direction and for each device alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/collective_cost.h"

namespace trivet::autotune {

struct Accelerator {
  std::string name;
  int64_t memory_bytes = 0;       // that a run can have
  double memory_bandwidth = 0;    // bytes/s of copies and element-wise kernels
  double matrix_flops = 0;        // a second, of products of bfloat16 and float16, dense
  double float32_flops = 0;       // of products of float32
  double product_efficiency = 0;  // share of it that large products reach in a run
  double launch_seconds = 0;      // of a kernel, where the device has nothing else to do meanwhile
};

// What a node has beside its devices, one device's share of it. 0: unknown, and nothing is offloaded.
struct Host {
  int64_t memory_bytes = 0;     // that a run can have
  double memory_bandwidth = 0;  // bytes/s
  double link_bandwidth = 0;    // bytes/s between the device and its host's memory, each way
};

struct Cluster {
  std::string name;
  Accelerator device;
  int64_t devices_per_node = 1;
  int64_t nodes = 0;     // 0: as many as are asked for
  Link inside, outside;  // between devices of a node, of different nodes
  Host host;
  double price_per_device_hour = 0;  // 0: not given

  int64_t most_devices() const { return nodes * devices_per_node; }  // 0: any number
  // All that offload is planned by is known.
  bool can_offload() const { return host.memory_bytes > 0 && host.memory_bandwidth > 0 && host.link_bandwidth > 0; }
};

// Throws ConfigError for more devices than it has.
void check_devices(const Cluster& cluster, int64_t devices);

// Those that come with Trivet, from public data sheets: not measured by it.
std::vector<std::string> cluster_names();
// Throws ConfigError naming what there is.
Cluster cluster_named(std::string_view name);
// A name of the above, or a file. Throws ConfigError "cluster.json:3:14: devices_per_node: ...".
Cluster find_cluster(const std::string& name_or_path);
Cluster parse_cluster(std::string_view json, const std::string& source);

}  // namespace trivet::autotune
