// Runs a kernel with 1, 2 and 3 threads on every instruction set that this processor has: all must give the same bits.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/kernels.h"
#include "tests/kernels/host_tensor.h"

namespace trivet::kernels {

inline std::vector<cpu::Isa> isa_levels() {
  std::vector<cpu::Isa> levels;
  for (const cpu::Isa isa : {cpu::Isa::Baseline, cpu::Isa::V3, cpu::Isa::V4})
    if (isa <= cpu::best_isa()) levels.push_back(isa);
  return levels;
}

inline void for_each_way_of_the_cpu(const std::function<void(Kernels&)>& use) {
  for (const cpu::Isa isa : isa_levels())
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << "level " << static_cast<int>(isa) << ", " << threads << " threads");
      const cpu::ForcedIsa forced(isa);
      use(*make_cpu_kernels(threads));
    }
}

// `run` takes a Kernels&, creates its tensors, calls the kernel and returns what was written as std::vector<HostTensor>.
template <typename Run>
std::vector<HostTensor> same_bits_every_way(const Run& run) {
  std::vector<HostTensor> first;
  for_each_way_of_the_cpu([&](Kernels& kernels) {
    std::vector<HostTensor> result = run(kernels);
    if (first.empty()) first = result;
    EXPECT_TRUE(result == first);
  });
  return first;
}

inline constexpr DType kFloatTypes[] = {DType::Float32, DType::BFloat16, DType::Float16, DType::Float64};

// The rounding unit of sums and of intermediate results.
inline double sum_unit(DType dtype) { return dtype == DType::Float64 ? 0x1p-53 : 0x1p-24; }
inline DType statistics_of(DType dtype) { return dtype == DType::Float64 ? DType::Float64 : DType::Float32; }

}  // namespace trivet::kernels
