// Ranks that share a dim must compute what one rank computes, to the last bit where the cuts are the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/results.h"

namespace trivet::kernels::cuts_test {
namespace {

const auto kKernels = make_cpu_kernels(2);

HostTensor columns_of(const HostTensor& whole, DType dtype, int64_t rows, int64_t cols, int64_t begin, int64_t end) {
  HostTensor part(dtype, {rows, end - begin});
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = begin; col < end; ++col) part.set(row * (end - begin) + col - begin, whole.at(row * cols + col));
  return part;
}

class Cuts : public testing::TestWithParam<DType> {};

TEST_P(Cuts, PiecesOfOutHaveTheSameBitsWhenComputedAlone) {
  const int64_t m = 40, n = 192, k = 768;
  const HostTensor a = HostTensor::random(GetParam(), {m, k}, 1), b = HostTensor::random(GetParam(), {k, n}, 2);
  HostTensor whole = HostTensor::poisoned(GetParam(), {m, n}), part = HostTensor::poisoned(GetParam(), {m, n / 2});
  const ProductCuts cuts{.col_ends = {96, 192}}, half{.col_ends = {96}};
  kKernels->matmul({.a = a.view(), .b = b.view(), .out = whole.view(), .cuts = &cuts});
  const HostTensor right = columns_of(b, GetParam(), k, n, 96, 192);
  kKernels->matmul({.a = a.view(), .b = right.view(), .out = part.view(), .cuts = &half});
  EXPECT_EQ(part, columns_of(whole, GetParam(), m, n, 96, 192));
}

TEST_P(Cuts, LeavesAddUpOverTwoPartsToTheSameBits) {
  const int64_t m = 33, n = 50, k = 4096;
  const HostTensor a = HostTensor::random(GetParam(), {m, k}, 1), b = HostTensor::random(GetParam(), {n, k}, 2);
  HostTensor whole = HostTensor::poisoned(DType::Float32, {m, n});
  const ProductCuts cuts{.leaves = {{{0, 2000}, {2000, 2048}}, {}, {{2048, 3000}}, {{3000, 4096}}}};
  const ProductCuts halves[] = {{.leaves = {{{0, 2000}, {2000, 2048}}, {}}}, {.leaves = {{{0, 952}}, {{952, 2048}}}}};
  kKernels->matmul({.a = a.view(), .b = b.view(), .out = whole.view(), .transpose_b = true, .cuts = &cuts});
  HostTensor parts[2];
  for (int rank = 0; rank < 2; ++rank) {
    parts[rank] = HostTensor::poisoned(DType::Float32, {m, n});
    const HostTensor left = columns_of(a, GetParam(), m, k, rank * 2048, (rank + 1) * 2048);
    const HostTensor right = columns_of(b, GetParam(), n, k, rank * 2048, (rank + 1) * 2048);
    kKernels->matmul(
        {.a = left.view(), .b = right.view(), .out = parts[rank].view(), .transpose_b = true, .cuts = &halves[rank]});
  }
  kKernels->add(parts[1].view(), parts[0].view());
  EXPECT_EQ(parts[0], whole);
}

// A part of a matrix has different strides from the whole matrix, and oneDNN would choose a different kernel because of them.
// With these sizes (on a processor with AVX-512) the bits would then differ: for bfloat16 in each of the three ways to cut, for
// float32 in the third. The sums stay in float32, because rounding to bfloat16 hides most of the difference.
class CutsAndStrides : public Cuts {
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

INSTANTIATE_TEST_SUITE_P(Types, Cuts, testing::Values(DType::Float32, DType::BFloat16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST(AddBias, AddsToEachRowAndRoundsOnce) {
  const HostTensor x = HostTensor::random(DType::Float32, {3, 5}, 1), bias = HostTensor::random(DType::BFloat16, {5}, 2);
  HostTensor out = HostTensor::poisoned(DType::BFloat16, {3, 5});
  kKernels->add_bias({.x = x.view(), .bias = bias.view(), .out = out.view()});
  for (int64_t e = 0; e < 15; ++e) {
    const float sum = static_cast<float>(x.at(e)) + static_cast<float>(bias.at(e % 5));
    EXPECT_EQ(out.at(e), static_cast<double>(static_cast<float>(bfloat16(sum))));
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

TEST(CrossEntropyOfParts, IsThatOfTheWholeRow) {
  const int64_t rows = 7, vocabulary = 61;
  const HostTensor logits = HostTensor::random(DType::Float32, {rows, vocabulary}, 1);
  const std::vector<int32_t> ids{0, 29, 30, 31, 60, -1, 12};
  const ConstTensorView targets{ids.data(), DType::Int32, {rows}};
  const int64_t ends[] = {30, 61}, left_end[] = {30}, right_end[] = {31};
  HostTensor gradient = HostTensor::poisoned(DType::Float32, {rows, vocabulary});
  const Loss whole = loss_of(
      CrossEntropy{
          .logits = logits.view(), .targets = targets, .dlogits = gradient.view(), .gradient_scale = 2, .chunk_ends = ends},
      [](const CrossEntropy& args) { kKernels->cross_entropy(args); });
  const HostTensor parts[] = {columns_of(logits, DType::Float32, rows, vocabulary, 0, 30),
                              columns_of(logits, DType::Float32, rows, vocabulary, 30, 61)};
  HostTensor maxima[2], sums[2];
  for (int p = 0; p < 2; ++p) {
    maxima[p] = HostTensor::poisoned(DType::Float32, {rows});
    kKernels->row_maxima({.logits = parts[p].view(), .maximum = maxima[p].view()});
  }
  for (int64_t row = 0; row < rows; ++row) maxima[0].set(row, std::max(maxima[0].at(row), maxima[1].at(row)));
  for (int p = 0; p < 2; ++p) {
    sums[p] = HostTensor::poisoned(DType::Float32, {2, rows});
    kKernels->row_sums({.logits = parts[p].view(),
                        .targets = targets,
                        .maximum = maxima[0].view(),
                        .sums = sums[p].view(),
                        .columns = {p * 30, vocabulary},
                        .chunk_ends = p == 0 ? left_end : right_end});
  }
  kKernels->add(sums[1].view(), sums[0].view());
  for (int p = 0; p < 2; ++p) {
    HostTensor dlogits = HostTensor::poisoned(DType::Float32, {rows, p == 0 ? 30 : 31});
    const Loss result = loss_of(CrossEntropyOfPart{.logits = parts[p].view(),
                                                   .targets = targets,
                                                   .maximum = maxima[0].view(),
                                                   .sums = sums[0].view(),
                                                   .dlogits = dlogits.view(),
                                                   .columns = {p * 30, vocabulary},
                                                   .gradient_scale = 2},
                                [](const CrossEntropyOfPart& args) { kKernels->cross_entropy_of_part(args); });
    EXPECT_EQ(result.loss_sum, whole.loss_sum);
    EXPECT_EQ(result.tokens, 6);
    EXPECT_EQ(dlogits, columns_of(gradient, DType::Float32, rows, vocabulary, p == 0 ? 0 : 30, p == 0 ? 30 : 61));
  }
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
