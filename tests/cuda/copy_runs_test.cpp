// Runs of elements go where the CPU puts them.
#include "tests/cuda/twins.h"

namespace trivet::kernels::copy_runs_test {
namespace {

TEST(CudaCopyRuns, MovesRunsAsTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t run : {1, 33, 64}) {
      Twin rows = Twin::random(dtype, {3, 7, 4, run}, 1), parts = Twin::random(dtype, {4, 3, 7, run}, 2);
      run_twins<CopyRuns>([&](const auto& view) {
        return CopyRuns{.from = view(rows),
                        .out = view(parts),
                        .counts = {4, 3, 7},
                        .run = run,
                        .from_steps = {run, 7 * 4 * run, 4 * run},
                        .out_steps = {3 * 7 * run, 7 * run, run}};
      });
      parts.expect_same_bits(std::to_string(run) + " " + text(dtype));
    }
}

}  // namespace
}  // namespace trivet::kernels::copy_runs_test
