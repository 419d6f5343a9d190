// What trivet doctor --hosts has measured, here made-up figures, as a cluster that the planner accepts.
#include "autotune/measured_cluster.h"

#include <gmock/gmock.h>

#include "autotune/cluster.h"
#include "autotune/search.h"
#include "core/error.h"

namespace trivet::autotune {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Figures {
  double bfloat16 = 8e11, float32 = 4e11, copy = 4e10, memory = 64e9, sums = 6e9, short_sum = 6e-6, kernel = 1e-6;
};

HostExamined measured_host(const std::string& name, const Figures& has) {
  return {name,
          {{"processor", Health::Fine, name + "'s processor, 8 cores, AVX2; caches 32 KiB", "", {{"cores", 8}}},
           {"products",
            Health::Fine,
            "",
            "",
            {{"float32_flops_per_second", has.float32},
             {"bfloat16_flops_per_second", has.bfloat16},
             {"small_kernel_seconds", has.kernel}}},
           {"memory", Health::Fine, "", "", {{"total_bytes", has.memory}, {"copy_bytes_per_second", has.copy}}},
           {"ranks",
            Health::Fine,
            "",
            "",
            {{"all_reduce_bytes_per_second", has.sums}, {"short_all_reduce_seconds", has.short_sum}}}}};
}

// All links carry 1e9 bytes/s and take 20 us, but that from host 1 to host 0.
NetworkMeasured network(int hosts) {
  NetworkMeasured network{.hosts = hosts};
  for (int from = 0; from < hosts; ++from)
    for (int to = 0; to < hosts; ++to) {
      network.bytes_per_second.push_back(from == to ? 0 : from == 1 && to == 0 ? 1.2e8 : 1e9);
      network.seconds.push_back(from == to ? 0 : from == 1 && to == 0 ? 9e-5 : 2e-5);
    }
  return network;
}

TEST(MeasuredCluster, HasASlotsShareOfTheSlowestHostAndLink) {
  const std::vector<HostExamined> hosts{measured_host("a", {}),
                                        measured_host("b", {.float32 = 2e11, .copy = 2e10, .memory = 32e9, .kernel = 3e-6}),
                                        measured_host("c", {.bfloat16 = 6e11, .sums = 3e9, .short_sum = 1.2e-5})};
  const Cluster cluster = parse_cluster(cluster_of_hosts(hosts, network(3), 4, "ours"), "measured");
  EXPECT_EQ(cluster.name, "ours");
  EXPECT_EQ(cluster.nodes, 3);
  EXPECT_EQ(cluster.devices_per_node, 4);
  EXPECT_EQ(cluster.device.name, "1/4 of b's processor, 8 cores, AVX2");
  EXPECT_EQ(cluster.device.memory_bytes, 8'000'000'000);
  EXPECT_EQ(cluster.device.reserve_bytes, 400'000'000);
  EXPECT_EQ(cluster.device.memory_bandwidth, 5e9);
  EXPECT_EQ(cluster.device.matrix_flops, 1.5e11);
  EXPECT_EQ(cluster.device.float32_flops, 5e10);
  EXPECT_EQ(cluster.device.product_efficiency, 1);
  EXPECT_EQ(cluster.device.launch_seconds, 3e-6);
  EXPECT_DOUBLE_EQ(1 / cluster.outside.beta, 3e7);
  EXPECT_EQ(cluster.outside.alpha, 9e-5);
  EXPECT_EQ(cluster.price_per_device_hour, 0) << "nobody knows it";
  EXPECT_FALSE(cluster.can_offload());
}

// The planner's ring then takes as long for this sum as it took when it was measured.
TEST(MeasuredCluster, SumsInsideAHostTakeAsLongAsMeasured) {
  const Cluster cluster = parse_cluster(cluster_of_hosts({measured_host("a", {})}, {.hosts = 1}, 4, "one"), "measured");
  const double bytes = 16 << 20;
  EXPECT_NEAR(ring_all_reduce(4, bytes, cluster.inside), bytes / 6e9 + 6e-6, 1e-9);
  EXPECT_EQ(cluster.nodes, 1);
  EXPECT_EQ(cluster.outside.beta, 0);
}

TEST(MeasuredCluster, OfASlotOnEachHostHasTheWholeHostAndNoLinkInside) {
  const Cluster cluster =
      parse_cluster(cluster_of_hosts({measured_host("a", {}), measured_host("b", {})}, network(2), 1, "two"), "measured");
  EXPECT_EQ(cluster.device.name, "a's processor, 8 cores, AVX2");
  EXPECT_EQ(cluster.device.memory_bytes, 64'000'000'000);
  EXPECT_EQ(cluster.inside.beta, 0);
  EXPECT_DOUBLE_EQ(1 / cluster.outside.beta, 1.2e8);
}

TEST(MeasuredCluster, CountsOnlyTheMemoryThatAContainerMayUse) {
  std::vector<HostExamined> hosts{measured_host("a", {}), measured_host("b", {})};
  hosts[1].findings[2].figures.emplace_back("limit_bytes", 10e9);
  EXPECT_EQ(parse_cluster(cluster_of_hosts(hosts, network(2), 2, "two"), "measured").device.memory_bytes, 5'000'000'000);
}

TEST(MeasuredCluster, IsSearchedForLayouts) {
  const Cluster cluster =
      parse_cluster(cluster_of_hosts({measured_host("a", {}), measured_host("b", {})}, network(2), 4, "two"), "measured");
  const model::Model model =
      model::build({.layers = 8, .hidden_size = 512, .heads = 8, .sequence_length = 256, .vocabulary_size = 5000});
  const SearchResult result = search(model, cluster, {.devices = 8, .train_batch_size = 64});
  ASSERT_FALSE(result.ranking.empty());
  EXPECT_GT(result.ranking[0].step.seconds.total(), 0);
}

TEST(MeasuredCluster, SaysWhatCouldNotBeMeasured) {
  std::vector<HostExamined> hosts{measured_host("a", {}), measured_host("b", {})};
  hosts[1].findings[1] = {"products", Health::Missing, "no bfloat16 here", "", {}};
  EXPECT_THAT(
      [&] { cluster_of_hosts(hosts, network(2), 2, "two"); },
      ThrowsMessage<ConfigError>(HasSubstr("doctor: --cluster: float32_flops_per_second of host b is not known: products: "
                                           "no bfloat16 here")));
}

}  // namespace
}  // namespace trivet::autotune
