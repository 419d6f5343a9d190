#include "cli/launch/slots.h"

#include <gmock/gmock.h>

#include <fstream>

#include "cli/launch/cores.h"
#include "tests/support/temporary_folder.h"

namespace trivet::cli {
namespace {

TEST(Slots, AreTheGpusThatAProcessSees) {
  const test::TemporaryFolder folder;
  for (const char* name : {"nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-uvm", "null"})
    std::ofstream(folder.path() + "/" + name);
  EXPECT_EQ(count_gpus(folder.path(), std::nullopt), 3);
  EXPECT_EQ(count_gpus(folder.path(), "0,1"), 2);
  EXPECT_EQ(count_gpus(folder.path(), ""), 0);
  EXPECT_EQ(count_gpus(folder.path(), "0,1,2,3"), 3);
  EXPECT_EQ(count_gpus(folder.path(), "-1"), 0);
  EXPECT_EQ(count_gpus(folder.path(), "GPU-1f, GPU-2e"), 2);
  EXPECT_EQ(count_gpus(folder.path(), "MIG-1,MIG-2,MIG-3,MIG-4"), 4);  // parts of GPUs
  EXPECT_EQ(count_gpus(folder.path() + "/none", std::nullopt), 0);
}

TEST(Slots, AreWhatTheVariableOfCudaNames) {
  using testing::ElementsAre;
  EXPECT_THAT(visible_gpus("4,5"), ElementsAre("4", "5"));
  EXPECT_THAT(visible_gpus(" 4 , GPU-aaaa,MIG-7/1/0"), ElementsAre("4", "GPU-aaaa", "MIG-7/1/0"));
  EXPECT_THAT(visible_gpus("2,-1,3"), ElementsAre("2"));
  for (const char* none : {"", "-1", "NoDevFiles", "none", ",0"}) EXPECT_THAT(visible_gpus(none), testing::IsEmpty()) << none;
}

TEST(Slots, OfAHostWithoutGpusAreWhatIncludeNames) {
  if (count_gpus("/dev", std::nullopt) > 0) GTEST_SKIP() << "this host has GPUs";
  EXPECT_EQ(usual_slots(""), memory_nodes());
  EXPECT_EQ(usual_slots("localhost:1,6@other:3"), 7);
  EXPECT_EQ(usual_slots("localhost"), memory_nodes());
  EXPECT_EQ(usual_slots("localhost:99999999999,x"), memory_nodes());
}

}  // namespace
}  // namespace trivet::cli
