#include "autotune/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace trivet::autotune {
namespace {

using testing::HasSubstr;

// A folder with the system files that the doctor reads.
class Doctor : public testing::Test {
 protected:
  Doctor() {
    options.system_root = folder.path();
    options.measures = false;
    options.directory = options.system_root;
    write("/proc/cpuinfo", "model name\t: Some Processor\nflags\t\t: fpu avx2 avx512f avx512_bf16 rdpid\n");
    write("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n");
    std::filesystem::create_directories(options.system_root + "/dev/shm");
    setenv("TRIVET_CUDA_MODULE", "/nowhere/libtrivet_cuda.so", 1);
  }
  ~Doctor() override { unsetenv("TRIVET_CUDA_MODULE"); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = options.system_root + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  Finding of(const std::string& subject) const {
    for (Finding& finding : examine(options))
      if (finding.subject == subject) return finding;
    ADD_FAILURE() << "the doctor says nothing about " << subject;
    return {};
  }
  const test::TemporaryFolder folder;
  DoctorOptions options;
};

TEST_F(Doctor, ReadsWhatTheSystemSays) {
  EXPECT_THAT(of("processor").text, HasSubstr("Some Processor, "));
  EXPECT_THAT(of("processor").text, HasSubstr("AVX-512, bfloat16 by AVX-512"));
  EXPECT_EQ(of("processor").health, Health::Fine);
  EXPECT_EQ(of("memory").text, "16.0 GiB, 8.0 free");
  EXPECT_EQ(of("disk").health, Health::Fine);
}

TEST_F(Doctor, SaysWhatAContainerMayUse) {
  write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  write("/sys/fs/cgroup/memory.max", "4294967296\n");
  EXPECT_EQ(of("processor").health, Health::Note);
  EXPECT_THAT(of("processor").text, HasSubstr("a limit of 0.5 cores"));
  EXPECT_THAT(of("processor").advice, HasSubstr("threads x ranks are at most 1"));
  EXPECT_EQ(of("memory").health, Health::Note);
  EXPECT_THAT(of("memory").text, HasSubstr("a limit of 4.0 GiB"));
  write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(of("processor").health, Health::Fine);
  EXPECT_EQ(of("memory").health, Health::Fine);
}

TEST_F(Doctor, AMissingGpuIsMissingOnlyWhereOneIsNeeded) {
  EXPECT_EQ(of("GPUs").health, Health::Note);
  EXPECT_EQ(of("GPUs").text, "none: the module libtrivet_cuda.so was not found (docs/cuda.md)");
  EXPECT_EQ(of("GPUs").advice, "") << "one line";
  options.needs_gpu = true;
  EXPECT_EQ(of("GPUs").health, Health::Missing);
  EXPECT_THAT(of("GPUs").text, HasSubstr("/nowhere/libtrivet_cuda.so")) << "where it was looked for";
}

TEST_F(Doctor, SaysWhichModulesForSeveralHostsAreMissing) {
  setenv("TRIVET_UCX_MODULE", "/nowhere/libtrivet_ucx.so", 1);
  setenv("TRIVET_GLOO_MODULE", "/nowhere/libtrivet_gloo.so", 1);
  const Finding none = of("hosts");
  unsetenv("TRIVET_UCX_MODULE"), unsetenv("TRIVET_GLOO_MODULE");
  EXPECT_EQ(none.health, Health::Note);
  EXPECT_EQ(none.text, "no jobs on several hosts, for lack of libtrivet_ucx.so, libtrivet_gloo.so");
  EXPECT_THAT(none.advice, HasSubstr("install the package trivet-ucx"));
}

TEST_F(Doctor, NamesAFolderThatIsNotThere) {
  options.directory = "/nowhere";
  EXPECT_EQ(of("disk").health, Health::Missing);
  EXPECT_THAT(of("disk").text, HasSubstr("/nowhere"));
  std::filesystem::remove_all(options.system_root + "/dev/shm");
  EXPECT_EQ(of("ranks").health, Health::Missing);
  EXPECT_THAT(of("ranks").text, HasSubstr("/dev/shm does not exist"));
}

}  // namespace
}  // namespace trivet::autotune
