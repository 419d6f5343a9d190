// Offload from a device with memory of its own (the tests' fake one): to host memory and to files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/backend/cuda_module.h"
#include "tests/cuda/shim/shim.h"
#include "tests/equivalence/tiny_run.h"

extern "C" const trivet::CudaModule* trivet_cuda_module();

namespace trivet::test {
namespace {

// Kernels of the host and of the device give the same bits, so offload changes none.
TEST(CudaOffload, OfOptimizerStatesChangesNoBit) {
  use_cuda_module(*trivet_cuda_module());
  cuda_shim::Configuration four = cuda_shim::configuration();
  four.devices = 4;
  cuda_shim::configure(four);
  const auto folder = std::filesystem::temp_directory_path() / ("trivet-cuda-offload-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  for (const auto& [ranks, stage, bf16] : {std::tuple{1, 1, true}, {2, 2, true}, {2, 3, false}})
    for (const OffloadDevice where : {OffloadDevice::Cpu, OffloadDevice::Nvme}) {
      Config config = tiny_config(ModelType::Gpt);
      config.device = DeviceChoice::Cuda;
      config.zero.stage = stage;
      config.bf16.enabled = bf16;
      const Trace plain = run({.ranks = ranks, .steps = 2, .config = config});
      Config offloaded = config;
      offloaded.zero.sub_group_size = 3000;
      offloaded.zero.offload_optimizer.device = where;
      offloaded.zero.offload_optimizer.nvme_path = folder.string();
      EXPECT_EQ(difference(plain, run({.ranks = ranks, .steps = 2, .config = offloaded})), "")
          << ranks << " ranks, stage " << stage;
      // A checkpoint continues without and with it.
      const std::string saved = (folder / ("saved-" + std::to_string(ranks) + std::string(name_of(where)))).string();
      run({.ranks = ranks, .steps = 1, .save_to = saved, .config = offloaded});
      const Trace rest = run({.ranks = ranks, .steps = 2, .load_from = saved, .config = config});
      EXPECT_EQ(plain.weights, rest.weights);
      const Trace again = run({.ranks = ranks, .steps = 2, .load_from = saved, .config = offloaded});
      EXPECT_EQ(plain.weights, again.weights);
    }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trivet::test
