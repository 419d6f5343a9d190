// Describes the machines that a plan is for, by numbers from data sheets or benchmarks; the machines need not be available.
//
//   cluster_named("h100")                      // a node of 8 with its network, as many nodes as the plan needs
//   find_cluster("cluster.json")               // {"like": "h100", "nodes": 128, "outside": {"bytes_per_second": 25e9}}
//
// docs/planning.md lists all keys. Bandwidths are for one direction and for each device alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/collective_cost.h"

namespace trivet::autotune {

// [Note: memory in reserve]
// A device needs more memory than a plan or a prediction counts: NCCL takes buffers for each communicator (hundreds of
// MiB, and a rank has one for each of its axes), libraries and the driver allocate in large pieces, and predictions may
// be a few percent too low. Megatron-LM's estimate of memory adds 5 %; that share of the device is the default reserve
// here, 3.9 GiB of 78. Ranks on CPUs keep it, too: the program, its threads' stacks, page tables and the files that are
// being read also take memory, and where memory runs out, the system kills a rank instead of refusing an allocation.
constexpr int64_t default_reserve(int64_t memory_bytes) { return memory_bytes / 20; }

// [Note: imbalance of experts]
// Routers do not divide tokens evenly, and ranks that share experts wait for the fullest. The default is the median of the
// fullest expert over the mean in steps 301 to 600 of a small mixture of 8 experts that was trained with balance_loss 0.01,
// that is of 8 ranks with one expert each. Benchmarks with a forced balance have 1.
inline constexpr double kExpertImbalance = 1.2;

struct Accelerator {
  std::string name;
  int64_t memory_bytes = 0;       // the most that a process can allocate
  int64_t reserve_bytes = 0;      // the part that a layout must leave free (Note: memory in reserve)
  double memory_bandwidth = 0;    // bytes/s of copies and element-wise kernels
  double matrix_flops = 0;        // per second, for dense products of bfloat16 and float16
  double float32_flops = 0;       // per second, for products of float32
  double product_efficiency = 0;  // share of these that large products reach in a run
  double launch_seconds = 0;      // to launch a kernel, if the device has nothing else to do meanwhile

  int64_t usable_bytes() const { return memory_bytes - reserve_bytes; }
};

// One device's share of the host of its node. 0: unknown, and nothing is offloaded.
struct HostShare {
  int64_t memory_bytes = 0;     // available to a run
  double memory_bandwidth = 0;  // bytes/s
  double link_bandwidth = 0;    // bytes/s between the device and its host's memory, each way
};

struct Cluster {
  std::string name;
  Accelerator device;
  int64_t devices_per_node = 1;
  int64_t nodes = 0;          // 0: as many as requested
  LinkRates inside, outside;  // between devices of one node; of different nodes
  HostShare host;
  double price_per_device_hour = 0;  // 0: not given
  // Rows of the fullest of the ranks that share experts over their mean (Note: imbalance of experts).
  double expert_imbalance = kExpertImbalance;

  int64_t most_devices() const { return nodes * devices_per_node; }  // 0: any number
  // True if everything that is needed to plan offload is known.
  bool can_offload() const { return host.memory_bytes > 0 && host.memory_bandwidth > 0 && host.link_bandwidth > 0; }
};

// What is wrong with a value of expert_imbalance; empty: nothing.
std::string expert_imbalance_problem(double imbalance);

// Throws ConfigError for more devices than the cluster has.
void check_devices(const Cluster& cluster, int64_t devices);

// The clusters that come with Trivet. Their numbers are from public data sheets, not measured.
std::vector<std::string> cluster_names();
// Throws ConfigError that lists the known names.
Cluster cluster_named(std::string_view name);
// Takes one of these names or a file. Throws ConfigError "cluster.json:3:14: devices_per_node: ...".
Cluster find_cluster(const std::string& name_or_path);
Cluster parse_cluster(std::string_view json, const std::string& source);

}  // namespace trivet::autotune
