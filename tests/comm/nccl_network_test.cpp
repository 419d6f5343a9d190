// What NCCL is expected to use between hosts, by its variables and by the devices that Linux shows.
#include "comm/nccl_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_folder.h"

namespace trivet::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class NcclNetwork : public testing::Test {
 protected:
  // Makes a device as Linux shows it, with one port.
  void add_device(const std::string& name, const std::string& state, const std::string& link_layer) {
    const std::string port = name + "/ports/1";
    std::filesystem::create_directories(folder_.at(port));
    folder_.write(port + "/state", state + "\n");
    folder_.write(port + "/link_layer", link_layer + "\n");
  }
  std::string expected(const Environment& environment, bool verbs_library = true) const {
    return expected_nccl_network(environment, {.devices = folder_.path(), .verbs_library = verbs_library});
  }

 private:
  const test::TemporaryFolder folder_;
};

TEST_F(NcclNetwork, IsSocketsWithoutAWarningWhereThereIsNoDevice) {
  EXPECT_EQ(expected({}), "TCP sockets, expected because this host has no device for RDMA");
  EXPECT_THAT(expected({{"NCCL_IB_DISABLE", "1"}}), Not(HasSubstr("warning")));
}

TEST_F(NcclNetwork, IsTheActiveDevicesOfEachKind) {
  add_device("mlx5_0", "4: ACTIVE", "InfiniBand");
  EXPECT_EQ(expected({}), "InfiniBand (mlx5_0), expected from NCCL's documentation");
  add_device("mlx5_1", "1: DOWN", "InfiniBand");
  add_device("mlx5_2", "4: ACTIVE", "Ethernet");
  EXPECT_EQ(expected({{"NCCL_IB_DISABLE", "0"}, {"NCCL_NET", "ib"}}),
            "InfiniBand (mlx5_0), RoCE (mlx5_2), expected from NCCL's documentation");
}

TEST_F(NcclNetwork, WarnsOfSocketsAndSaysWhy) {
  add_device("mlx5_0", "4: ACTIVE", "InfiniBand");
  const auto warns = [](const char* why) {
    return AllOf(HasSubstr("TCP sockets"), HasSubstr("warning: mlx5_0 is not used, because "), HasSubstr(why));
  };
  EXPECT_THAT(expected({{"NCCL_IB_DISABLE", "1"}}), warns("NCCL_IB_DISABLE is \"1\"; remove it"));
  EXPECT_THAT(expected({{"NCCL_NET", "socket"}}), warns("NCCL_NET is \"Socket\"; remove it"));
  EXPECT_THAT(expected({{"NCCL_IB_HCA", "ib7"}}), warns("NCCL_IB_HCA \"ib7\" chooses none"));
  EXPECT_THAT(expected({}, false), warns("libibverbs.so.1 cannot be loaded; install it"));
}

TEST_F(NcclNetwork, WarnsIfNoPortIsActive) {
  add_device("mlx5_0", "1: DOWN", "InfiniBand");
  add_device("mlx5_1", "2: INIT", "InfiniBand");
  EXPECT_THAT(expected({}), HasSubstr("warning: mlx5_0, mlx5_1 are not used, because no port is active"));
}

TEST_F(NcclNetwork, IsOnlyOfTheDevicesThatAreChosen) {
  add_device("mlx5_1", "4: ACTIVE", "InfiniBand");
  add_device("mlx5_10", "4: ACTIVE", "InfiniBand");
  const auto used = [&](const char* filter) {
    const std::string text = expected({{"NCCL_IB_HCA", filter}});
    return std::pair(text.find("(mlx5_1)") != std::string::npos, text.find("(mlx5_10)") != std::string::npos);
  };
  EXPECT_EQ(used("mlx5_1"), std::pair(true, true)) << "beginnings of names";
  EXPECT_EQ(used("=mlx5_1:1"), std::pair(true, false)) << "whole names";
  EXPECT_EQ(used("^=mlx5_1"), std::pair(false, true)) << "those that are left out";
  EXPECT_EQ(used("=mlx4_0,mlx5_10:1"), std::pair(false, true)) << "several";
}

TEST_F(NcclNetwork, IsWhatTheUserHasNamed) {
  add_device("mlx5_0", "4: ACTIVE", "InfiniBand");
  EXPECT_EQ(expected({{"NCCL_NET", "AWS Libfabric"}}), "\"AWS Libfabric\", as NCCL_NET requires");
  EXPECT_EQ(expected({{"NCCL_NET_PLUGIN", "efa"}}), "the plugin \"efa\" of NCCL_NET_PLUGIN, if it can be loaded");
  EXPECT_THAT(expected({{"NCCL_NET_PLUGIN", "none"}}), HasSubstr("InfiniBand (mlx5_0)"));
}

}  // namespace
}  // namespace trivet::comm
