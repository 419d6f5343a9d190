// Which network interface a rank uses for messages between hosts. Every machine has the interface lo.
#include "comm/network_interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace trivet::comm {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& chosen, const std::string& master_address) {
  try {
    choose_network_interface(chosen, master_address);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(NetworkInterface, IsTheOneThatReachesRankZeroUnlessChosen) {
  const NetworkInterface found = choose_network_interface("", "127.0.0.1");
  EXPECT_EQ(found.name, "lo");
  EXPECT_EQ(found.address, "127.0.0.1");
  EXPECT_FALSE(found.ipv6);
  EXPECT_EQ(choose_network_interface("", "localhost").name, "lo");
}

TEST(NetworkInterface, IsChosenByNameOrByNetwork) {
  EXPECT_EQ(choose_network_interface("lo", "198.51.100.1").address, "127.0.0.1");
  for (const char* network : {"127.0.0.0/8", "127.0.0.1/32", "126.0.0.0/7"})
    EXPECT_EQ(choose_network_interface(network, "198.51.100.1").name, "lo") << network;
}

TEST(NetworkInterface, ThatIsNotThereIsRefusedWithThoseThatAre) {
  const std::string by_name = refusal("ib7", "127.0.0.1");
  EXPECT_THAT(by_name, HasSubstr("communication.interface: \"ib7\" is not an interface of this host"));
  EXPECT_THAT(by_name, HasSubstr("lo (127.0.0.1)"));
  for (const char* network : {"203.0.113.0/24", "127.0.0.2/32"})
    EXPECT_THAT(refusal(network, "127.0.0.1"), HasSubstr("is a network without an address of this host")) << network;
  for (const char* no_network : {"127.0.0.0/33", "127.0.0.0/-1", "127.0.0.0/8x", "127.0.0/8", "/8"})
    EXPECT_THAT(refusal(no_network, "127.0.0.1"), HasSubstr("is not an interface of this host")) << no_network;
  EXPECT_THAT(refusal("", "no-such-host.invalid"), HasSubstr("reaches MASTER_ADDR \"no-such-host.invalid\""));
}

TEST(NetworkInterface, DevicesOfRdmaAreThoseOfTheSystem) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(rdma_devices(folder.at("none")), std::vector<std::string>{});
  folder.write("mlx5_1", "");
  folder.write("mlx5_0", "");
  EXPECT_EQ(rdma_devices(folder.path()), (std::vector<std::string>{"mlx5_0", "mlx5_1"}));
}

}  // namespace
}  // namespace trivet::comm
