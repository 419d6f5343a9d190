// The engine on GPUs (the tests' fake ones): the same promises as on the CPU, and the CPU's losses within rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "engine/backend/cuda_module.h"
#include "engine/engine.h"
#include "tests/cuda/shim/shim.h"
#include "tests/equivalence/tiny_run.h"

extern "C" const trivet::CudaModule* trivet_cuda_module();

namespace trivet::test {
namespace {

struct Grid {
  int data = 1, tensor = 1, pipeline = 1, stage = 0;
  bool overlap = false, recompute = false;
};

class CudaEngine : public testing::TestWithParam<ModelType> {
 protected:
  CudaEngine() {
    use_cuda_module(*trivet_cuda_module());
    cuda_shim::configure({.devices = 4});
  }

  // One head of 64 is what tensor cores take.
  static TinyRun on(DeviceChoice device, const Grid& grid, Config config) {
    config.device = device;
    config.parallel.tensor = grid.tensor;
    config.parallel.pipeline = grid.pipeline;
    config.zero.stage = grid.stage;
    config.zero.overlap_comm = grid.overlap;
    config.recompute = grid.recompute ? Recompute::Full : Recompute::None;
    return {.ranks = grid.data * grid.tensor * grid.pipeline, .steps = 2, .config = config};
  }
};

TEST_P(CudaEngine, TrainsAsTheCpuDoesWithinRounding) {
  const Config config = tiny_config(GetParam());
  const Trace cpu = run(on(DeviceChoice::Cpu, {}, config)), cuda = run(on(DeviceChoice::Cuda, {}, config));
  EXPECT_EQ(difference_beyond_rounding(cpu, cuda), "");
  EXPECT_EQ(difference(cuda, run(on(DeviceChoice::Cuda, {}, config))), "");
}

TEST_P(CudaEngine, LayoutModeGivesTheSameBitsOnEveryLayout) {
  Config config = tiny_config(GetParam());
  config.reproducible = Reproducible::Layout;
  const Trace one = run(on(DeviceChoice::Cuda, {}, config));
  for (const Grid& grid : {Grid{.data = 2, .stage = 1, .overlap = true}, Grid{.data = 2, .stage = 3, .overlap = true},
                           Grid{.data = 3, .stage = 2, .recompute = true}, Grid{.data = 2, .pipeline = 2, .stage = 2}})
    EXPECT_EQ(difference(one, run(on(DeviceChoice::Cuda, grid, config))), "")
        << grid.data << " x " << grid.tensor << " x " << grid.pipeline << ", stage " << grid.stage;
}

TEST_P(CudaEngine, RunModeGivesTheSameBitsWhereverWorkOnlyMoves) {
  const Config config = tiny_config(GetParam());
  for (int stage : {0, 2, 3}) {
    const Trace plain = run(on(DeviceChoice::Cuda, {.data = 2, .stage = stage}, config));
    EXPECT_EQ(difference(plain, run(on(DeviceChoice::Cuda, {.data = 2, .stage = stage, .overlap = true}, config))), "");
    EXPECT_EQ(
        difference(plain, run(on(DeviceChoice::Cuda, {.data = 2, .pipeline = 2, .stage = stage, .overlap = true}, config))),
        "");
  }
}

TEST_P(CudaEngine, GoesOnFromACheckpointOfTheOtherDevice) {
  const Config config = tiny_config(GetParam());
  const auto folder = std::filesystem::temp_directory_path() / ("trivet-cuda-" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  for (const auto& [first, second] :
       {std::pair{DeviceChoice::Cuda, DeviceChoice::Cpu}, {DeviceChoice::Cpu, DeviceChoice::Cuda}}) {
    const std::string directory = (folder / (first == DeviceChoice::Cpu ? "cpu" : "cuda")).string();
    TinyRun before = on(first, {.data = 2, .stage = 2}, config), after = on(second, {}, config), whole = on(second, {}, config);
    before.steps = 1, before.save_to = directory;
    after.load_from = directory;
    const Trace start = run(before), end = run(after), straight = run(whole);
    EXPECT_NEAR(end.grad_norms.back(), straight.grad_norms.back(), 1e-3 * straight.grad_norms.back());
    EXPECT_EQ(start.weights.size(), end.weights.size());
  }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaEngine, testing::Values(ModelType::Gpt, ModelType::Llama),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace trivet::test
