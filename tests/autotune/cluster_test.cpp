#include "autotune/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace trivet::autotune {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// The numbers of the data sheets: bytes/s of HBM (the cluster takes 0.9 of it), dense bfloat16 and float32 FLOP/s, bytes/s of
// NVLink or Infinity Fabric one way (0.8 of it) and of InfiniBand per device (0.9 of it). The host's share is an eighth of a
// DGX.
TEST(Cluster, NamedOnesHaveTheNumbersOfTheirDataSheets) {
  constexpr int64_t kGib = int64_t{1} << 30;
  struct Sheet {
    const char* name;
    int64_t memory_gib;
    double memory, matrix, float32, efficiency, nvlink, network;
    int64_t host_gib;
    double host_memory, link;
  };
  const Sheet sheets[] = {{"a100", 78, 2039e9, 312e12, 19.5e12, 0.67, 300e9, 25e9, 230, 41e9, 25e9},
                          {"a100-40", 38, 1555e9, 312e12, 19.5e12, 0.67, 300e9, 25e9, 115, 41e9, 25e9},
                          {"h100", 78, 3350e9, 989e12, 67e12, 0.57, 450e9, 50e9, 230, 61e9, 50e9},
                          {"h200", 138, 4800e9, 989e12, 67e12, 0.57, 450e9, 50e9, 230, 61e9, 50e9},
                          {"b200", 176, 8000e9, 2250e12, 75e12, 0.57, 900e9, 50e9, 230, 72e9, 50e9},
                          {"gb200", 182, 8000e9, 2500e12, 80e12, 0.57, 900e9, 50e9, 200, 205e9, 225e9},
                          {"mi300x", 190, 5300e9, 1307e12, 163e12, 0.45, 448e9, 50e9, 230, 61e9, 50e9}};
  std::vector<std::string> names;
  for (const Sheet& sheet : sheets) {
    names.emplace_back(sheet.name);
    const Cluster cluster = find_cluster(sheet.name);
    SCOPED_TRACE(sheet.name);
    EXPECT_EQ(cluster.name, sheet.name);
    EXPECT_EQ(cluster.most_devices(), 0) << "any number";
    EXPECT_TRUE(cluster.can_offload());
    EXPECT_EQ(cluster.devices_per_node, cluster.name == "gb200" ? 72 : 8);
    EXPECT_EQ(cluster.device.memory_bytes, sheet.memory_gib * kGib);
    EXPECT_EQ(cluster.device.reserve_bytes, sheet.memory_gib * kGib / 20);
    EXPECT_DOUBLE_EQ(cluster.device.memory_bandwidth, 0.9 * sheet.memory);
    EXPECT_EQ(cluster.device.matrix_flops, sheet.matrix);
    EXPECT_EQ(cluster.device.float32_flops, sheet.float32);
    EXPECT_EQ(cluster.device.product_efficiency, sheet.efficiency);
    EXPECT_EQ(cluster.device.launch_seconds, 4e-6);
    EXPECT_DOUBLE_EQ(1 / cluster.inside.beta, 0.8 * sheet.nvlink);
    EXPECT_DOUBLE_EQ(1 / cluster.outside.beta, 0.9 * sheet.network);
    EXPECT_EQ(cluster.inside.alpha, 2e-6);
    EXPECT_EQ(cluster.outside.alpha, 6e-6);
    EXPECT_EQ(cluster.host.memory_bytes, sheet.host_gib * kGib);
    EXPECT_EQ(cluster.host.memory_bandwidth, sheet.host_memory);
    EXPECT_EQ(cluster.host.link_bandwidth, sheet.link);
  }
  EXPECT_EQ(cluster_names(), names);
}

TEST(Cluster, AFileChangesWhatItSays) {
  const Cluster cluster = parse_cluster(R"({
    "like": "h100", "name": "ours", "nodes": 2048, "devices_per_node": 4,   // half a node
    "device": {"memory_bytes": 94000000000},
    "outside": {"bytes_per_second": 25e9, "latency_seconds": 0}, "host": {"link_bytes_per_second": 12e9},
    "price_per_device_hour": 2.5, "expert_imbalance": 1.5
  })",
                                        "ours.json");
  EXPECT_EQ(cluster.name, "ours");
  EXPECT_EQ(cluster.most_devices(), 8192);
  EXPECT_EQ(cluster.device.memory_bytes, 94'000'000'000);
  EXPECT_EQ(cluster.device.matrix_flops, cluster_named("h100").device.matrix_flops);
  EXPECT_DOUBLE_EQ(cluster.outside.beta, 1 / 25e9);
  EXPECT_EQ(cluster.outside.alpha, 0);
  EXPECT_EQ(cluster.inside.alpha, cluster_named("h100").inside.alpha);
  EXPECT_EQ(cluster.price_per_device_hour, 2.5);
  EXPECT_EQ(cluster.expert_imbalance, 1.5);
  EXPECT_EQ(cluster.host.link_bandwidth, 12e9);
  EXPECT_EQ(cluster.host.memory_bytes, cluster_named("h100").host.memory_bytes);
}

TEST(Cluster, KeepsATwentiethOfTheMemoryOrWhatTheFileSaysInReserve) {
  const auto device = [](const std::string& keys) {
    return parse_cluster(R"({"like": "h100", "device": {)" + keys + "}}", "c.json").device;
  };
  EXPECT_EQ(device("").reserve_bytes, cluster_named("h100").device.reserve_bytes);
  EXPECT_EQ(device(R"("memory_bytes": 40000000000)").reserve_bytes, 2'000'000'000);
  EXPECT_EQ(device(R"("memory_bytes": 40000000000)").usable_bytes(), 38'000'000'000);
  EXPECT_EQ(device(R"("reserve_bytes": 0)").usable_bytes(), cluster_named("h100").device.memory_bytes);
  EXPECT_EQ(device(R"("reserve_bytes": 5000000000, "memory_bytes": 6000000000)").usable_bytes(), 1'000'000'000);
  EXPECT_EQ(device(R"("reserve_bytes": 5999999999, "memory_bytes": 6000000000)").usable_bytes(), 1);
}

TEST(Cluster, WithoutLikeHasAHostOnlyIfTheFileDescribesOne) {
  const std::string device = R"({"device": {"memory_bytes": 1e9, "memory_bytes_per_second": 1e12, "matrix_flops": 1e14,
    "float32_flops": 1e13, "product_efficiency": 0.5, "launch_seconds": 0}, "nodes": 1)";
  EXPECT_FALSE(parse_cluster(device + "}", "c.json").can_offload());
  EXPECT_TRUE(parse_cluster(device + R"(, "host": {"memory_bytes": 1e9, "memory_bytes_per_second": 1e10,
                                                     "link_bytes_per_second": 1e10}})",
                            "c.json")
                  .can_offload());
  EXPECT_THAT([&] { parse_cluster(device + R"(, "host": {"memory_bytes": 1e9}})", "c.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("host.memory_bytes_per_second: is missing; give it")));
}

// A link must be described if devices would use it: `inside` if a node has several devices, `outside` unless there is exactly
// one node.
TEST(Cluster, NeedsTheLinksThatItsDevicesUse) {
  const std::string device = R"({"device": {"memory_bytes": 1e9, "memory_bytes_per_second": 1e12, "matrix_flops": 1e14,
    "float32_flops": 1e13, "product_efficiency": 0.5, "launch_seconds": 0})";
  const auto outcome = [&](const std::string& rest) -> std::string {
    try {
      parse_cluster(device + rest + "}", "c.json");
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      return text.substr(0, text.find(';'));
    }
    return "accepted";
  };
  const std::string inside = R"(, "inside": {"bytes_per_second": 1e11})",
                    outside = R"(, "outside": {"bytes_per_second": 1e10})";
  EXPECT_EQ(outcome(R"(, "nodes": 1)"), "accepted");
  EXPECT_EQ(outcome(R"(, "nodes": 1, "devices_per_node": 2)"), "c.json:1:1: inside.bytes_per_second: is missing");
  EXPECT_EQ(outcome(R"(, "nodes": 1, "devices_per_node": 2)" + inside), "accepted");
  EXPECT_EQ(outcome(R"(, "nodes": 2)"), "c.json:1:1: outside.bytes_per_second: is missing");
  EXPECT_EQ(outcome(""), "c.json:1:1: outside.bytes_per_second: is missing");  // any number of nodes
  EXPECT_EQ(outcome(R"(, "nodes": 2)" + outside), "accepted");
  EXPECT_EQ(outcome(outside), "accepted");
}

TEST(Cluster, HasNoMoreDevicesThanItSays) {
  Cluster cluster = cluster_named("h100");
  cluster.nodes = 2;
  EXPECT_NO_THROW(check_devices(cluster, 16));
  EXPECT_THROW(check_devices(cluster, 17), ConfigError);
  const auto with_nodes = [](const std::string& nodes) {
    return parse_cluster(R"({"like": "h100", "nodes": )" + nodes + "}", "c");
  };
  EXPECT_EQ(with_nodes("268435455").most_devices(), 2147483640);  // the most is 2^31 - 1
  EXPECT_THROW(with_nodes("268435456"), ConfigError);
}

TEST(Cluster, RefusesWhatCannotBeWithThePlaceAndWhatIsAccepted) {
  const auto refused = [](const std::string& json, const std::string& message) {
    EXPECT_THAT([&] { parse_cluster(json, "c.json"); }, ThrowsMessage<ConfigError>(HasSubstr(message))) << json;
  };
  refused(R"({"like": "h300"})",
          "c.json:1:10: like: \"h300\" is not accepted; use \"a100\", \"a100-40\", \"h100\", \"h200\", \"b200\", \"gb200\" or "
          "\"mi300x\"");
  refused(R"({"like": "h100", "node": 3})", "c.json:1:18: node: unknown key; did you mean \"nodes\" or \"name\"?");
  refused(R"({"like": "h100", "inside": {"latency": 3}})",
          "inside.latency: unknown key; use \"bytes_per_second\" or \"latency_seconds\"");
  refused(R"({"like": "h100", "nodes": 0})", "c.json:1:27: nodes: 0 is not accepted; give a whole number from 1");
  refused(R"({"like": "h100", "nodes": 2.5})", "nodes: 2.5 is not accepted");
  refused(R"({"like": "h100", "nodes": 1000000000})", "are more than 2^31 devices");
  refused(R"({"like": "h100", "outside": {"bytes_per_second": 0}})",
          "outside.bytes_per_second: 0 is not accepted; give a number above 0");
  refused(R"({"like": "h100", "outside": {"latency_seconds": -1}})",
          "outside.latency_seconds: -1 is not accepted; give a number of at least 0");
  refused(R"({"like": "h100", "device": {"product_efficiency": 1.5}})", "it is a share of the matrix rate, from 0 to 1");
  refused(R"({"like": "h100", "expert_imbalance": 0.9})",
          "expert_imbalance: 0.9 is not accepted; it is the rows of the fullest rank over their mean, from 1");
  refused(R"({"like": "h100", "device": {"reserve_bytes": -1}})",
          "c.json:1:46: device.reserve_bytes: -1 is not accepted; give a whole number from 0");
  refused(R"({"like": "h100", "device": {"memory_bytes": 6000000000, "reserve_bytes": 6000000000}})",
          "device.reserve_bytes: 6000000000 is not accepted; give less than device.memory_bytes 6000000000");
  refused(R"({"like": "h100", "device": 3})", "c.json:1:28: device: 3 is not accepted; give an object {...}");
  refused(R"({"nodes": 2})", "device.memory_bytes: is missing; give it, or \"like\": one of \"a100\"");
  refused(R"({"device": {"memory_bytes": 1e9, "memory_bytes_per_second": 1e12, "matrix_flops": 1e14, "float32_flops": 1e13,
              "product_efficiency": 0.5}, "nodes": 1})",
          "device.launch_seconds: is missing; give it, or \"like\": one of \"a100\"");
  refused(R"({"like": "h100", "file_bytes_per_second": 1e9})", "file_bytes_per_second: unknown key");
  refused("[]", "c.json:1:1: [] is not accepted; give an object {...}");
  refused(R"({"like": "h100", "device": {"name": "\u001b", "memory_bytes": "\u001b[31m"}})",
          R"(device.memory_bytes: "\u001b[31m" is not accepted; give a whole number from 1)");
  EXPECT_THAT([] { find_cluster("/dev/zero"); },
              ThrowsMessage<ConfigError>(
                  "/dev/zero: is longer than 1048576 bytes, the most that a description of a cluster may "
                  "have; name a file, or one of \"a100\", \"a100-40\", \"h100\", \"h200\", \"b200\", \"gb200\" or "
                  "\"mi300x\""));
  EXPECT_THAT([] { find_cluster("/nowhere/c.json"); },
              ThrowsMessage<ConfigError>("cluster: \"/nowhere/c.json\" is neither a file nor one of \"a100\", \"a100-40\", "
                                         "\"h100\", \"h200\", \"b200\", \"gb200\" or \"mi300x\""));
}

}  // namespace
}  // namespace trivet::autotune
