// Matrices of a batch, transposed: every element is moved, none is rounded.
#include <array>
#include <vector>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::transpose_test {
namespace {

TEST_P(KernelsOnEveryDevice, TransposeMovesEveryElementOfEveryMatrix) {
  for (const DType dtype : kFloatTypes)
    for (const auto& sizes : std::vector<std::array<int64_t, 3>>{
             {0, 3, 4}, {1, 1, 1}, {2, 3, 5}, {3, 16, 33}, {3, 40, 33}, {1, 100, 1}, {2, 70, 130}}) {
      const int64_t matrices = sizes[0], rows = sizes[1], cols = sizes[2];
      const HostTensor from = HostTensor::random(dtype, {matrices, rows, cols}, 1);
      const auto out = same_bits_every_way([&](Kernels& kernels) {
        HostTensor transposed = HostTensor::poisoned(dtype, {matrices, cols, rows});
        kernels.transpose(from.view(), transposed.view());
        return std::vector{transposed};
      });
      for (int64_t m = 0; m < matrices; ++m)
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < cols; ++c)
            ASSERT_EQ(out[0].at((m * cols + c) * rows + r), from.at((m * rows + r) * cols + c));
    }
}

TEST_P(KernelsOnEveryDevice, TransposeRefusesAnOutputOfTheSameShape) {
  HostTensor from(DType::Float32, {2, 3, 4}), out(DType::Float32, {2, 3, 4});
  EXPECT_THROW(kernels().transpose(from.view(), out.view()), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::transpose_test
