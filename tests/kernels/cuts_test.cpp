// Ranks that share a dim must compute what one rank computes, to the last bit where the cuts are the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cpu/math.h"
#include "tests/kernels/every_way.h"
#include "tests/kernels/matmul_problem.h"

namespace trivet::kernels::cuts_test {
namespace {

const auto kKernels = make_cpu_kernels(2);

HostTensor columns_of(const HostTensor& whole, DType dtype, int64_t rows, int64_t cols, int64_t begin, int64_t end) {
  HostTensor part(dtype, {rows, end - begin});
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = begin; col < end; ++col) part.set(row * (end - begin) + col - begin, whole.at(row * cols + col));
  return part;
}

// A part of a matrix has different strides from the whole matrix, and oneDNN would choose a different kernel because of them.
// With these sizes (on a processor with AVX-512) the bits would then differ: for bfloat16 in each of the three ways to cut, for
// float32 in the third. The sums stay in float32, because rounding to bfloat16 hides most of the difference.
class CutsAndStrides : public testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t kM = 32, kN = 128, kK = 2048, kRest = 16;

  static HostTensor random(int64_t rows, int64_t cols, uint64_t seed) {
    return HostTensor::random(GetParam(), {rows, cols}, seed);
  }
  static HostTensor left(const HostTensor& whole, int64_t rows, int64_t cols) {
    return columns_of(whole, GetParam(), rows, cols + kRest, 0, cols);
  }
  static HostTensor product(const HostTensor& a, const HostTensor& b, const ProductCuts& cuts, Shape out, bool transpose_a,
                            bool transpose_b) {
    HostTensor result = HostTensor::poisoned(DType::Float32, out);
    kKernels->matmul({.a = a.view(),
                      .b = b.view(),
                      .out = result.view(),
                      .transpose_a = transpose_a,
                      .transpose_b = transpose_b,
                      .cuts = &cuts});
    return result;
  }
};

TEST_P(CutsAndStrides, ColumnsOfBGiveTheSameBitsAlone) {
  const HostTensor a = random(kM, kK, 1), b = random(kK, kN + kRest, 2);
  const HostTensor whole = product(a, b, {.col_ends = {kN, kN + kRest}}, {kM, kN + kRest}, false, false);
  const HostTensor alone = product(a, left(b, kK, kN), {.col_ends = {kN}}, {kM, kN}, false, false);
  EXPECT_EQ(alone, columns_of(whole, DType::Float32, kM, kN + kRest, 0, kN));
}

TEST_P(CutsAndStrides, ColumnsOfTransposedAGiveTheSameBitsAlone) {
  const HostTensor a = random(kK, kM + kRest, 1), b = random(kK, kN, 2);
  const HostTensor whole = product(a, b, {.row_ends = {kM, kM + kRest}}, {kM + kRest, kN}, true, false);
  const HostTensor alone = product(left(a, kK, kM), b, {.row_ends = {kM}}, {kM, kN}, true, false);
  for (int64_t e = 0; e < kM * kN; ++e) ASSERT_EQ(alone.at(e), whole.at(e)) << e;
}

TEST_P(CutsAndStrides, ALeafOfKGivesTheSameBitsAlone) {
  const HostTensor a = random(kM, kK + kRest, 1), b = random(kN, kK + kRest, 2);
  const ProductCuts first{.leaves = {{{0, kK}}}};
  EXPECT_EQ(product(left(a, kM, kK), left(b, kN, kK), first, {kM, kN}, false, true),
            product(a, b, first, {kM, kN}, false, true));
}

INSTANTIATE_TEST_SUITE_P(Types, CutsAndStrides, testing::Values(DType::Float32, DType::BFloat16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST(CpuMatmul, BitsDoNotDependOnTheNumberOfThreads) {
  const int64_t shapes[][3] = {{1, 1, 1}, {8, 8, 4096}, {1, 600, 70}, {256, 64, 64}, {130, 300, 70}, {200, 130, 300}};
  for (const auto& [m, n, k] : shapes)
    for (const MatmulCase& c : all_kinds_of_matmul(m, n, k)) {
      if (c.dtype == DType::Float64 && m * n * k > 10'000'000) continue;
      MatmulProblem one(c);
      cpu::compute(one.args(), 1);
      for (int threads : {2, 4}) {
        MatmulProblem other(c);
        cpu::compute(other.args(), threads);
        ASSERT_TRUE(one.out == other.out) << describe(c) << " with " << threads << " threads";
      }
    }
}

// The results equal gelu and gelu_backward of the result of the product alone.
TEST(CpuMatmul, MakesGeluOfItsResultAndGoesBackThroughIt) {
  const ProductCuts cuts{.col_ends = {40, 70}};
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16, DType::Float64})
    for (const ProductCuts* cut : {static_cast<const ProductCuts*>(nullptr), &cuts})
      for (const bool bias : {false, true}) {
        MatmulProblem problem({65, 70, 33, dtype, dtype, false, true, false, bias});
        Matmul args = problem.args();
        args.cuts = cut;
        cpu::compute(args, 2);
        const HostTensor alone = problem.out, before = HostTensor::random(dtype, {65, 70}, 9);
        HostTensor activated = HostTensor::poisoned(dtype, {65, 70}), expected = activated;
        cpu::compute(Gelu{.x = alone.view(), .y = expected.view()}, 1);
        args.activated = activated.view();
        cpu::compute(args, 2);
        EXPECT_TRUE(problem.out == alone && activated == expected) << name_of(dtype);
        if (bias) continue;
        cpu::compute(GeluBackward{.dy = alone.view(), .x = before.view(), .dx = expected.view()}, 1);
        args.activated = {};
        args.before_gelu = before.view();
        cpu::compute(args, 2);
        EXPECT_TRUE(problem.out == expected) << name_of(dtype);
      }
}

TEST(Dropout, OfAPartOfEachSampleIsThatPartOfTheWhole) {
  const HostTensor x = HostTensor::random(DType::Float32, {2, 3000}, 1);
  HostTensor whole(DType::Float32, {2, 3000}), part(DType::Float32, {2, 1501});
  kKernels->dropout_add({.x = x.view(), .out = whole.view(), .dropout = {.rate = 0.3f, .key = 5}});
  const HostTensor tail = columns_of(x, DType::Float32, 2, 3000, 1499, 3000);
  kKernels->dropout_add({.x = tail.view(), .out = part.view(), .dropout = {.rate = 0.3f, .key = 5, .first_element = 1499}});
  EXPECT_EQ(part, columns_of(whole, DType::Float32, 2, 3000, 1499, 3000));
  HostTensor both(DType::Float32, {2, 1500}), of_both(DType::Float32, {2, 1500});  // elements [7, 1006) and [2499, 3000)
  const auto whole_place = [](int64_t e) { return e / 1500 * 3000 + (e % 1500 < 999 ? 7 + e % 1500 : 1500 + e % 1500); };
  for (int64_t e = 0; e < 3000; ++e) both.set(e, x.at(whole_place(e)));
  const DropoutSite site{.rate = 0.3f, .key = 5, .first_element = 7, .second = 999, .skipped = 1493};
  kKernels->dropout_add({.x = both.view(), .out = of_both.view(), .dropout = site});
  for (int64_t e = 0; e < 3000; ++e) ASSERT_EQ(of_both.at(e), whole.at(whole_place(e))) << e;
}

TEST(EmbeddingOfAPart, GivesZerosForTokensOfOtherParts) {
  const std::vector<int32_t> ids{0, 4, 5, 2};
  const ConstTensorView tokens{ids.data(), DType::Int32, {1, 4}};
  const HostTensor table = HostTensor::random(DType::Float32, {3, 8}, 1);  // rows 3, 4, 5 of 6
  HostTensor out = HostTensor::poisoned(DType::Float32, {1, 4, 8}), dtable = HostTensor::poisoned(DType::Float32, {3, 8});
  kKernels->embedding({.tokens = tokens, .table = table.view(), .out = out.view(), .rows = {3, 6}});
  kKernels->embedding_backward(
      {.tokens = tokens, .dy = out.view(), .dtable = dtable.view(), .accumulate_table = false, .rows = {3, 6}});
  for (int64_t e = 0; e < 8; ++e) {
    EXPECT_EQ(out.at(e), 0);
    EXPECT_EQ(out.at(8 + e), table.at(8 + e));
    EXPECT_EQ(out.at(24 + e), 0);
    EXPECT_EQ(dtable.at(e), 0);
    EXPECT_EQ(dtable.at(16 + e), table.at(16 + e));
  }
  EXPECT_THROW(kKernels->embedding({.tokens = tokens, .table = table.view(), .out = out.view(), .rows = {0, 5}}),
               std::out_of_range);
}

}  // namespace
}  // namespace trivet::kernels::cuts_test
