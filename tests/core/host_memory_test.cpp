#include "core/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

class HostMemory : public ::testing::Test {
 protected:
  HostMemory() {
    for (const char* directory : {"proc", "sys/fs/cgroup"}) std::filesystem::create_directories(folder_.at(directory));
  }
  int64_t available() const { return available_host_memory(folder_.path()); }
  test::TemporaryFolder folder_;
};

TEST_F(HostMemory, IsWhatTheSystemSays) {
  EXPECT_EQ(available(), std::numeric_limits<int64_t>::max()) << "it says nothing";
  folder_.write("proc/meminfo", "MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable:    4000 kB\n");
  EXPECT_EQ(available(), 4000 * 1024);
  folder_.write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(available(), 4000 * 1024);
}

TEST_F(HostMemory, IsWhatTheLimitOfAContainerLeaves) {
  folder_.write("proc/meminfo", "MemAvailable:    4000 kB\n");
  folder_.write("sys/fs/cgroup/memory.max", "1000000\n");
  EXPECT_EQ(available(), 1000000);
  folder_.write("sys/fs/cgroup/memory.current", "900000\n");
  EXPECT_EQ(available(), 100000);
  folder_.write("sys/fs/cgroup/memory.stat", "anon 5\nshmem 7\ninactive_file 300000\nactive_file 20000\n");
  EXPECT_EQ(available(), 420000) << "files can be dropped, those in shared memory cannot";
  folder_.write("sys/fs/cgroup/memory.current", "2000000\n");
  EXPECT_EQ(available(), 0);
}

TEST_F(HostMemory, IsWhatTheLimitsOfAllGroupsAboveLeave) {
  folder_.write("proc/meminfo", "MemAvailable:    4000 kB\n");
  std::filesystem::create_directories(folder_.at("proc/self"));
  std::filesystem::create_directories(folder_.at("sys/fs/cgroup/job/step"));
  folder_.write("proc/self/cgroup", "0::/job/step\n");
  EXPECT_EQ(available(), 4000 * 1024);
  folder_.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  folder_.write("sys/fs/cgroup/job/memory.max", "2000000\n");
  EXPECT_EQ(available(), 2000000);
  folder_.write("sys/fs/cgroup/job/step/memory.max", "1500000\n");
  folder_.write("sys/fs/cgroup/job/step/memory.current", "100000\n");
  EXPECT_EQ(available(), 1400000);
  folder_.write("sys/fs/cgroup/job/memory.current", "900000\n");
  EXPECT_EQ(available(), 1100000);
}

TEST_F(HostMemory, IsWhatVersion1OfControlGroupsLeaves) {
  folder_.write("proc/meminfo", "MemAvailable:    4000 kB\n");
  std::filesystem::create_directories(folder_.at("proc/self"));
  std::filesystem::create_directories(folder_.at("sys/fs/cgroup/memory/slurm/job_7"));
  std::filesystem::create_directories(folder_.at("sys/fs/cgroup/unified/slurm"));
  folder_.write("proc/self/cgroup", "12:cpu,cpuacct:/\n4:memory:/slurm/job_7\n0::/slurm\nno line of this kind\n1:2\n");
  folder_.write("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(available(), 4000 * 1024);
  folder_.write("sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "3000000\n");
  folder_.write("sys/fs/cgroup/memory/slurm/memory.usage_in_bytes", "1000000\n");
  folder_.write("sys/fs/cgroup/memory/slurm/memory.stat",
                "inactive_file 1\ntotal_inactive_file 30000\ntotal_active_file 2000\n");
  EXPECT_EQ(available(), 2032000);
  folder_.write("sys/fs/cgroup/unified/slurm/memory.max", "700000\n");
  EXPECT_EQ(available(), 700000);
}

TEST_F(HostMemory, OfThisHostIsKnown) {
  EXPECT_GT(available_host_memory(), 0);
  EXPECT_LT(available_host_memory(), std::numeric_limits<int64_t>::max());
}

TEST_F(HostMemory, PeakIsThatOfThisProgram) {
  std::filesystem::create_directories(folder_.at("proc/self"));
  folder_.write("proc/self/status", "Name:\ttrivet\nVmPeak:\t  900 kB\nVmHWM:\t     300 kB\nVmRSS:\t     200 kB\n");
  EXPECT_EQ(peak_resident_memory(folder_.path()), 300 * 1024);
  EXPECT_EQ(peak_resident_memory(folder_.at("none")), -1);
  EXPECT_GT(peak_resident_memory(), 0);
}

}  // namespace
}  // namespace trivet
