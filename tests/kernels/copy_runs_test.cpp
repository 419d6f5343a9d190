// Runs are where their steps say, and nothing else is touched.
#include "tests/kernels/every_device.h"

namespace trivet::kernels::copy_runs_test {
namespace {

// [4 ranks][3 samples][5 tokens][run] from rows of 4 x run, with the ranks' runs beside each other.
CopyRuns by_rank(ConstTensorView rows, TensorView parts, int64_t run) {
  return {.from = rows,
          .out = parts,
          .counts = {4, 3, 5},
          .run = run,
          .from_steps = {run, 5 * 4 * run, 4 * run},
          .out_steps = {3 * 5 * run, 5 * run, run}};
}

TEST_P(KernelsOnEveryDevice, CopyRunsMovesEachRunToItsPlace) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t run : {1, 3, 33, 64}) {
      const HostTensor rows = HostTensor::random(dtype, {3, 5, 4, run}, 1);
      const auto parts = same_bits_every_way([&](Kernels& kernels) {
        HostTensor out = HostTensor::poisoned(dtype, {4, 3, 5, run});
        kernels.copy_runs(by_rank(rows.view(), out.view(), run));
        return std::vector{out};
      });
      for (int64_t rank = 0; rank < 4; ++rank)
        for (int64_t row = 0; row < 15; ++row)
          for (int64_t e = 0; e < run; ++e)
            ASSERT_EQ(parts[0].at((rank * 15 + row) * run + e), rows.at((row * 4 + rank) * run + e));
    }
}

TEST_P(KernelsOnEveryDevice, CopyRunsKeepsWhatLiesBetween) {
  const HostTensor from = HostTensor::random(DType::Float32, {6}, 1);
  HostTensor out = HostTensor::random(DType::Float32, {12}, 2);
  const HostTensor before = out;
  kernels().copy_runs(
      {.from = from.view(), .out = out.view(), .counts = {1, 1, 3}, .run = 2, .from_steps = {0, 0, 2}, .out_steps = {0, 0, 5}});
  for (int64_t e = 0; e < 12; ++e) EXPECT_EQ(out.at(e), e % 5 < 2 ? from.at(e / 5 * 2 + e % 5) : before.at(e)) << e;
}

TEST_P(KernelsOnEveryDevice, CopyRunsRefusesRunsOutsideOfTheTensors) {
  HostTensor rows(DType::Float32, {3, 5, 4, 2}), parts(DType::Float32, {4, 3, 5, 2}), other(DType::BFloat16, {4, 3, 5, 2});
  EXPECT_THROW(kernels().copy_runs(by_rank(rows.view(), parts.view().slice(0, 119), 2)), std::logic_error);
  EXPECT_THROW(kernels().copy_runs(by_rank(rows.view().slice(0, 119), parts.view(), 2)), std::logic_error);
  EXPECT_THROW(kernels().copy_runs(by_rank(rows.view(), other.view(), 2)), std::logic_error);
  EXPECT_THROW(kernels().copy_runs({.from = rows.view(), .out = parts.view()}), std::logic_error) << "runs of no element";
}

}  // namespace
}  // namespace trivet::kernels::copy_runs_test
