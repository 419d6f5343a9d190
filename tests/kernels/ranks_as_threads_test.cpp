// Ranks as threads may run the same kernels of the CPU at the same time.
#include <thread>

#include "tests/kernels/every_way.h"
#include "tests/kernels/results.h"

namespace trivet::kernels::ranks_as_threads_test {
namespace {

// Calls right(kernels) in three threads, whose kernels have 1, 2 and 3 threads of their own.
void expect_right_at_the_same_time(const std::function<bool(Kernels&)>& right) {
  std::vector<int> wrong(3, 0);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.emplace_back([&, rank] { wrong[rank] = !right(*make_cpu_kernels(1 + rank)); });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

TEST(RanksAsThreads, MaySumAtTheSameTime) {
  const HostTensor x = HostTensor::random(DType::BFloat16, {70001}, 1);
  const double expected = sum_of_squares(*make_cpu_kernels(1), x.view(), 1, kSumBlock).value();
  expect_right_at_the_same_time([&](Kernels& kernels) {
    bool right = true;
    for (int round = 0; round < 50; ++round) right &= sum_of_squares(kernels, x.view(), 1, kSumBlock).value() == expected;
    return right;
  });
}

TEST(RanksAsThreads, MayMultiplyAtTheSameTime) {
  const auto products = [](Kernels& kernels) {
    std::vector<HostTensor> all;
    for (const DType dtype : kFloatTypes)
      for (int transposes = 0; transposes < 4; ++transposes) {
        const bool a_too = (transposes & 1) != 0, b_too = (transposes & 2) != 0;
        const HostTensor a = HostTensor::random(dtype, a_too ? Shape{70, 130} : Shape{130, 70}, 1);
        const HostTensor b = HostTensor::random(dtype, b_too ? Shape{190, 70} : Shape{70, 190}, 2);
        for (const bool accumulate : {false, true}) {
          HostTensor out = HostTensor::random(dtype, {130, 190}, 3);
          kernels.matmul({.a = a.view(),
                          .b = b.view(),
                          .out = out.view(),
                          .transpose_a = a_too,
                          .transpose_b = b_too,
                          .accumulate = accumulate});
          all.push_back(out);
        }
      }
    return all;
  };
  const std::vector<HostTensor> expected = products(*make_cpu_kernels(1));
  expect_right_at_the_same_time([&](Kernels& kernels) { return products(kernels) == expected; });
}

}  // namespace
}  // namespace trivet::kernels::ranks_as_threads_test
