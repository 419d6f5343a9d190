// Products of experts: each equals the product of its expert alone, whatever rows the others have. A row's bits depend neither
// on the number of rows of its expert nor on their contents.
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::grouped_products_test {
namespace {

using Ints = Values<int32_t>;
using Counts = std::vector<int64_t>;  // rows of each expert, or of each range of each expert

// The types of products whose bits may not depend on cuts.
constexpr DType kCutTypes[] = {DType::Float32, DType::BFloat16, DType::Float16};
constexpr std::pair<DType, DType> kTypes[] = {{DType::Float32, DType::Float32},  {DType::BFloat16, DType::BFloat16},
                                              {DType::BFloat16, DType::Float32}, {DType::Float16, DType::Float16},
                                              {DType::Float16, DType::Float32},  {DType::Float64, DType::Float64}};

Ints ends_of(const Counts& counts) {
  Ints ends;
  for (const int64_t count : counts) ends.push_back(static_cast<int32_t>(count) + (ends.empty() ? 0 : ends.back()));
  return ends;
}
int64_t sum_of(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

HostTensor rows_of(const HostTensor& whole, int64_t begin, int64_t end) {
  const int64_t width = whole.view().shape.cols();
  HostTensor part(whole.view().dtype, {end - begin, width});
  for (int64_t e = 0; e < part.elements(); ++e) part.set(e, whole.at(begin * width + e));
  return part;
}
// Columns of the last dim.
HostTensor columns_of(const HostTensor& whole, int64_t begin, int64_t end) {
  const Shape shape = whole.view().shape;
  const int64_t width = shape.cols(), rows = shape.elements() / width;
  HostTensor part(whole.view().dtype, shape.dims() == 2 ? Shape{rows, end - begin} : Shape{shape[0], shape[1], end - begin});
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = begin; col < end; ++col) part.set(row * (end - begin) + col - begin, whole.at(row * width + col));
  return part;
}
// Rows of each matrix of [E, rows, cols].
HostTensor lines_of(const HostTensor& whole, int64_t begin, int64_t end) {
  const Shape shape = whole.view().shape;
  HostTensor part(whole.view().dtype, {shape[0], end - begin, shape[2]});
  const int64_t of_part = (end - begin) * shape[2], of_whole = shape[1] * shape[2];
  for (int64_t e = 0; e < part.elements(); ++e) part.set(e, whole.at(e / of_part * of_whole + begin * shape[2] + e % of_part));
  return part;
}

// See expect_near_double_reference in matmul_problem.h.
double tolerance(DType dtype, DType out, int64_t terms, double magnitude, double expected) {
  const double u = dtype == DType::Float64 ? 0x1p-53 : 0x1p-24;
  const double subnormal = out == DType::Float16 ? 0x1p-25 : 0;
  return static_cast<double>(terms + 2) * u * magnitude + half_unit(out) * (std::abs(expected) + 1e-30) + subnormal;
}

// Threads that meet after every small product would take most of the time of a test.
std::unique_ptr<Kernels> with_one_thread(const KernelsOnEveryDevice& test) {
  return test.on_cpu() ? make_cpu_kernels(1) : test.GetParam()->make_kernels();
}

struct Product {
  const HostTensor &a, &b;  // b: [E, N, K] or [E, K, N]
  DType out;
  bool transpose_b = false;
  const HostTensor* start = nullptr;  // what is added to

  HostTensor run(Kernels& kernels, const Counts& counts, const ProductCuts* cuts = nullptr) const {
    const Shape b_shape = b.view().shape;
    HostTensor result = start ? *start : HostTensor::poisoned(out, {a.view().shape[0], b_shape[transpose_b ? 1 : 2]});
    Ints ends = ends_of(counts);
    const auto ranges = static_cast<int64_t>(ends.size()) / b_shape[0];
    kernels.grouped_matmul({.a = a.view(),
                            .b = b.view(),
                            .ends = view_of(ends, {b_shape[0], ranges}),
                            .out = result.view(),
                            .transpose_b = transpose_b,
                            .accumulate = start != nullptr,
                            .cuts = cuts});
    return result;
  }
};

HostTensor weights_of(DType dtype, int64_t experts, int64_t n, int64_t k, bool transpose_b) {
  return HostTensor::random(dtype, transpose_b ? Shape{experts, n, k} : Shape{experts, k, n}, 2);
}

TEST_P(KernelsOnEveryDevice, GroupedMatmulIsTheProductOfEachExpert) {
  const std::tuple<Counts, int64_t, int64_t, int64_t> cases[] = {
      // rows, ranges of each expert, N, K
      {{1}, 1, 1, 1},           {{0, 0, 0}, 1, 5, 4}, {{3, 0, 1, 5}, 1, 17, 19}, {{0, 2, 0, 0, 1, 1, 66, 1}, 2, 9, 24},
      {{3, 1, 0}, 1, 65, 70},   {{2, 3}, 1, 0, 4},    {{2, 3}, 1, 4, 0},         {{0, 260, 17, 0, 1, 64, 0}, 1, 20, 24},
      {{15, 16, 33}, 1, 5, 600}};
  const auto kernels = with_one_thread(*this);
  for (const auto& [counts, ranges, n, k] : cases)
    for (const auto& [dtype, out] : kTypes)
      for (const bool transpose_b : {false, true}) {
        const int64_t rows = sum_of(counts), experts = static_cast<int64_t>(counts.size()) / ranges;
        if (takes_too_long(rows * n * k)) continue;
        const HostTensor a = HostTensor::random(dtype, {rows, k}, 1), b = weights_of(dtype, experts, n, k, transpose_b);
        const HostTensor got = Product{a, b, out, transpose_b}.run(*kernels, counts);
        const HostTensor start = HostTensor::random(out, {rows, n}, 4);
        const HostTensor added = Product{a, b, out, transpose_b, &start}.run(*kernels, counts);
        const Ints ends = ends_of(counts);
        for (int64_t row = 0, expert = 0; row < rows; ++row) {
          while (row >= ends[(expert + 1) * ranges - 1]) ++expert;
          for (int64_t col = 0; col < n; ++col) {
            double sum = 0, magnitude = 0;
            for (int64_t p = 0; p < k; ++p) {
              const double term = a.at(row * k + p) * b.at(expert * n * k + (transpose_b ? col * k + p : p * n + col));
              sum += term, magnitude += std::abs(term);
            }
            ASSERT_NEAR(got.at(row * n + col), sum, tolerance(dtype, out, k, magnitude, sum)) << row << ", " << col;
            const double before = start.at(row * n + col);
            ASSERT_NEAR(added.at(row * n + col), before + sum,
                        tolerance(dtype, out, k + 1, magnitude + std::abs(before), before + sum))
                << row << ", " << col;
          }
        }
      }
}

// The expert's neighbours have rows of NaN.
TEST_P(KernelsOnEveryDevice, GroupedMatmulOfARowDoesNotDependOnOtherRows) {
  std::vector<int64_t> sizes{63, 64, 65, 255, 257, 300};
  for (int64_t m = 1; m <= 40; ++m) sizes.push_back(m);
  int64_t most = 512, n = 520, k = 700;
  if (takes_too_long(most * n * k)) sizes = {1, 2, 15, 17, 63, 64, 65, 100}, most = 130, n = 9, k = 17;
  const auto kernels = with_one_thread(*this);
  for (const DType dtype : kCutTypes)
    for (const bool transpose_b : {false, true}) {
      if (dtype == DType::Float16 && transpose_b && on_cpu()) continue;  // converted to float32
      const HostTensor x = HostTensor::random(dtype, {most, k}, 1), b = weights_of(dtype, 3, n, k, transpose_b);
      const HostTensor whole = Product{x, b, DType::Float32, transpose_b}.run(*kernels, {0, most, 0});
      for (const int64_t m : sizes) {
        const int64_t first = (most - m) / 3;
        HostTensor a = HostTensor::poisoned(dtype, {m + 5, k});
        for (int64_t e = 0; e < m * k; ++e) a.set(3 * k + e, x.at(first * k + e));
        const HostTensor got = Product{a, b, DType::Float32, transpose_b}.run(*kernels, {3, m, 2});
        ASSERT_TRUE(rows_of(got, 3, 3 + m) == rows_of(whole, first, first + m))
            << m << " rows of " << name_of(dtype) << (transpose_b ? " transposed" : "");
      }
    }
}

struct Cut {
  Counts counts;
  int64_t n, k, at;
};
// With odd sizes, the second piece begins at an address that is not aligned.
std::vector<Cut> cuts_of(const KernelsOnEveryDevice& test) {
  std::vector<Cut> all{{{5, 0, 2}, 29, 37, 13}, {{0, 9, 1}, 40, 24, 16}, {{140, 3, 20}, 192, 768, 96}};
  std::erase_if(all, [&](const Cut& c) { return test.takes_too_long(sum_of(c.counts) * c.n * c.k); });
  return all;
}

TEST_P(KernelsOnEveryDevice, GroupedMatmulOfAPieceOfColumnsHasTheBitsOfTheWhole) {
  for (const DType dtype : kCutTypes)
    for (const auto& [counts, n, k, at] : cuts_of(*this))
      for (const bool transpose_b : {false, true}) {
        const HostTensor a = HostTensor::random(dtype, {sum_of(counts), k}, 1), b = weights_of(dtype, 3, n, k, transpose_b);
        const ProductCuts both{.col_ends = {at, n}};
        const HostTensor whole = Product{a, b, dtype, transpose_b}.run(kernels(), counts, &both);
        for (const auto& [begin, end] : {std::pair(int64_t{0}, at), std::pair(at, n)}) {
          const HostTensor part = transpose_b ? lines_of(b, begin, end) : columns_of(b, begin, end);
          const ProductCuts alone{.col_ends = {end - begin}};
          EXPECT_EQ(Product({a, part, dtype, transpose_b}).run(kernels(), counts, &alone), columns_of(whole, begin, end))
              << name_of(dtype) << (transpose_b ? " transposed" : "") << " from " << begin;
        }
      }
}

TEST_P(KernelsOnEveryDevice, GroupedMatmulInLeavesAddsUpOverTwoPartsToTheSameBits) {
  for (const DType dtype : kCutTypes)
    for (const int64_t unit : {int64_t{1}, int64_t{40}})
      for (const bool transpose_b : {false, true}) {
        const Counts counts{4, 0, 1, unit == 1 ? 3 : 150};
        const int64_t n = 9, k = 96 * unit, cut = 47 * unit;
        if (takes_too_long(sum_of(counts) * n * k)) continue;
        const HostTensor a = HostTensor::random(dtype, {sum_of(counts), k}, 1), b = weights_of(dtype, 4, n, k, transpose_b);
        const ProductCuts whole{.leaves = {{{0, 40 * unit}, {40 * unit, cut}}, {}, {{cut, 70 * unit}}, {{70 * unit, k}}}};
        const ProductCuts halves[] = {{.leaves = {{{0, 40 * unit}, {40 * unit, cut}}, {}}},
                                      {.leaves = {{{0, 23 * unit}}, {{23 * unit, 49 * unit}}}}};
        const auto half = [&](int64_t begin, int64_t end, const ProductCuts& of) {
          const HostTensor left = columns_of(a, begin, end);
          const HostTensor right = transpose_b ? columns_of(b, begin, end) : lines_of(b, begin, end);
          return Product{left, right, DType::Float32, transpose_b}.run(kernels(), counts, &of);
        };
        const HostTensor first = half(0, cut, halves[0]);
        HostTensor sum = half(cut, k, halves[1]);
        kernels().add(first.view(), sum.view());
        EXPECT_EQ(sum, (Product{a, b, DType::Float32, transpose_b}.run(kernels(), counts, &whole))) << name_of(dtype);
      }
}

// Gradients of experts: a[rows, M], b[rows, N].
struct Gradient {
  const HostTensor &a, &b;
  int64_t experts;
  Counts counts;  // [E, R]
  int64_t leaves = 1;
  const ProductCuts* cuts = nullptr;

  HostTensor add_to(Kernels& kernels, HostTensor out, bool accumulate = true) const {
    Ints ends = ends_of(counts);
    kernels.grouped_gradient({.a = a.view(),
                              .b = b.view(),
                              .ends = view_of(ends, {experts, static_cast<int64_t>(ends.size()) / experts}),
                              .leaves = leaves,
                              .out = out.view(),
                              .accumulate = accumulate,
                              .cuts = cuts});
    return out;
  }
  HostTensor run(Kernels& kernels, DType out = DType::Float32) const {
    const HostTensor poison = HostTensor::poisoned(out, {experts, a.view().shape[1], b.view().shape[1]});
    return add_to(kernels, poison, false);
  }
};

TEST_P(KernelsOnEveryDevice, GroupedGradientIsTheSumOverTheRowsOfEachExpert) {
  const ProductCuts cuts{.row_ends = {1, 3}, .col_ends = {2, 9}};
  const std::tuple<Counts, int64_t, int64_t, int64_t, int64_t, const ProductCuts*> cases[] = {
      // rows, E, leaves, M, N, cuts
      {{1}, 1, 1, 1, 1, nullptr},
      {{0, 0, 0}, 3, 1, 3, 5, nullptr},
      {{0, 3, 0, 30}, 4, 1, 17, 19, nullptr},
      {{3, 0, 40, 0}, 4, 1, 3, 9, &cuts},
      {{0, 0, 0, 0, 7, 0, 1, 2, 0, 0, 5, 4}, 3, 2, 20, 33, nullptr},
      {{0, 260, 17, 0, 1, 64, 0}, 7, 1, 24, 20, nullptr},
      {{0, 3, 1}, 3, 1, 66, 70, nullptr},
      {{2, 3}, 2, 1, 0, 4, nullptr}};
  for (const auto& [counts, experts, leaves, m, n, cut] : cases)
    for (const auto& [dtype, out] : kTypes)
      for (const bool accumulate : {false, true}) {
        const int64_t rows = sum_of(counts), ranges = static_cast<int64_t>(counts.size()) / experts;
        if (takes_too_long(rows * m * n)) continue;
        const HostTensor a = HostTensor::random(dtype, {rows, m}, 1), b = HostTensor::random(dtype, {rows, n}, 2);
        const Gradient gradient{a, b, experts, counts, leaves, cut};
        const HostTensor before =
            accumulate ? HostTensor::random(out, {experts, m, n}, 3) : HostTensor::poisoned(out, {experts, m, n});
        const HostTensor got = gradient.add_to(kernels(), before, accumulate);
        const Ints ends = ends_of(counts);
        for (int64_t expert = 0, begin = 0; expert < experts; ++expert) {
          const int64_t end = ends[(expert + 1) * ranges - 1];
          for (int64_t e = expert * m * n; e < (expert + 1) * m * n; ++e) {
            if (begin == end) {
              ASSERT_EQ(got.at(e), accumulate ? before.at(e) : 0) << "expert " << expert << " has no rows";
              continue;
            }
            double sum = accumulate ? before.at(e) : 0, magnitude = std::abs(sum);
            for (int64_t row = begin; row < end; ++row) {
              const double term = a.at(row * m + e / n % m) * b.at(row * n + e % n);
              sum += term, magnitude += std::abs(term);
            }
            ASSERT_NEAR(got.at(e), sum, tolerance(dtype, out, end - begin, magnitude, sum)) << expert << ", " << e;
          }
          begin = end;
        }
      }
}

TEST_P(KernelsOnEveryDevice, GroupedGradientDoesNotReadRowsOfOtherExperts) {
  for (const DType dtype : kCutTypes) {
    HostTensor a = HostTensor::random(dtype, {23, 6}, 1), b = HostTensor::random(dtype, {23, 7}, 2);
    for (int64_t e = 0; e < 3 * 6; ++e) a.set(e, NAN), a.set(23 * 6 - 1 - e, NAN);
    const HostTensor got = Gradient{a, b, 3, {3, 17, 3}}.run(kernels());
    for (int64_t e = 0; e < got.elements(); ++e) EXPECT_EQ(std::isnan(got.at(e)), e / 42 != 1) << e;
  }
}

TEST_P(KernelsOnEveryDevice, GroupedGradientOfAPieceHasTheBitsOfTheWhole) {
  const auto same_as_alone = [&](DType dtype, const Counts& counts, int64_t m, int64_t n, int64_t at) {
    const HostTensor a = HostTensor::random(dtype, {sum_of(counts), m}, 1),
                     b = HostTensor::random(dtype, {sum_of(counts), n}, 2);
    const ProductCuts rows{.row_ends = {at, m}}, cols{.col_ends = {at, n}};
    const HostTensor in_rows = Gradient{a, b, 3, counts, 1, &rows}.run(kernels());
    const HostTensor in_cols = Gradient{a, b, 3, counts, 1, &cols}.run(kernels());
    for (const bool first : {true, false}) {
      const int64_t row = first ? 0 : at, row_end = first ? at : m, col = first ? 0 : at, col_end = first ? at : n;
      const HostTensor left = columns_of(a, row, row_end), right = columns_of(b, col, col_end);
      const ProductCuts of_rows{.row_ends = {row_end - row}}, of_cols{.col_ends = {col_end - col}};
      EXPECT_EQ((Gradient{left, b, 3, counts, 1, &of_rows}.run(kernels())), lines_of(in_rows, row, row_end)) << name_of(dtype);
      EXPECT_EQ((Gradient{a, right, 3, counts, 1, &of_cols}.run(kernels())), columns_of(in_cols, col, col_end))
          << name_of(dtype);
    }
  };
  for (const DType dtype : kCutTypes) {
    same_as_alone(dtype, {5, 0, 19}, 29, 26, 13);
    if (!takes_too_long(900 * 192 * 192)) same_as_alone(dtype, {700, 0, 200}, 192, 192, 96);
  }
}

// The rows of all experts in ranges [first, end) of `ranges`.
HostTensor rows_in_ranges(const HostTensor& whole, const Counts& counts, size_t ranges, size_t first, size_t end) {
  const int64_t width = whole.view().shape.cols();
  std::vector<int64_t> chosen;
  int64_t row = 0;
  for (size_t i = 0; i < counts.size(); ++i)
    for (int64_t r = 0; r < counts[i]; ++r, ++row)
      if (i % ranges >= first && i % ranges < end) chosen.push_back(row);
  HostTensor part(whole.view().dtype, {static_cast<int64_t>(chosen.size()), width});
  for (int64_t e = 0; e < part.elements(); ++e) part.set(e, whole.at(chosen[e / width] * width + e % width));
  return part;
}
Counts counts_in_ranges(const Counts& counts, size_t ranges, size_t first, size_t end) {
  Counts part;
  for (size_t i = 0; i < counts.size(); ++i)
    if (i % ranges >= first && i % ranges < end) part.push_back(counts[i]);
  return part;
}

// Ranks that share the tokens of each sequence have their own leaves, down to one with one range.
TEST_P(KernelsOnEveryDevice, GroupedGradientInLeavesAddsUpOverRanksToTheSameBits) {
  const ProductCuts none;
  for (const DType dtype : kCutTypes)
    for (const size_t of_leaf : {1, 2})
      for (const int64_t unit : {int64_t{1}, int64_t{60}}) {
        const size_t leaves = 4, ranges = leaves * of_leaf;
        Counts counts;
        for (size_t i = 0; i < 3 * ranges; ++i) counts.push_back(i / ranges == 1 ? 0 : static_cast<int64_t>(i * 7 % 5) * unit);
        const int64_t rows = sum_of(counts), m = unit == 1 ? 7 : 150, n = unit == 1 ? 9 : 300;
        if (takes_too_long(rows * m * n)) continue;
        const HostTensor a = HostTensor::random(dtype, {rows, m}, 1), b = HostTensor::random(dtype, {rows, n}, 2);
        const HostTensor whole = Gradient{a, b, 3, counts, static_cast<int64_t>(leaves), &none}.run(kernels());
        for (const size_t ranks : {2, 4}) {
          std::vector<HostTensor> sums;
          for (size_t rank = 0; rank < ranks; ++rank) {
            const size_t first = rank * ranges / ranks, end = (rank + 1) * ranges / ranks;
            const HostTensor left = rows_in_ranges(a, counts, ranges, first, end);
            const HostTensor right = rows_in_ranges(b, counts, ranges, first, end);
            const Gradient of_rank{
                left, right, 3, counts_in_ranges(counts, ranges, first, end), static_cast<int64_t>(leaves / ranks), &none};
            sums.push_back(of_rank.run(kernels()));
          }
          for (size_t step = 1; step < ranks; step *= 2)
            for (size_t i = 0; i + step < ranks; i += 2 * step) kernels().add(sums[i + step].view(), sums[i].view());
          EXPECT_EQ(sums[0], whole) << ranks << " ranks, " << name_of(dtype) << ", " << of_leaf << " ranges in each leaf";
        }
      }
}

// Leaves are added as ((0 + 1) + (2 + 3)), and the ranges of a leaf in their order. Then what is there already is added.
TEST_P(KernelsOnEveryDevice, GroupedGradientAddsLeavesInATreeAndRoundsOnce) {
  constexpr double kTerms[] = {1, 0x1p-24, 0x1p-24, 0x1p-24};
  for (const DType dtype : kCutTypes) {
    const HostTensor a = HostTensor::filled(dtype, {4, 1}, 1);
    HostTensor b(dtype, {4, 1});
    for (int64_t p = 0; p < 4; ++p) b.set(p, kTerms[p]);
    const auto sum_of_leaves = [&](int64_t leaves, std::optional<double> before) {
      const Gradient gradient{a, b, 1, {1, 1, 1, 1}, leaves};
      return gradient.add_to(kernels(), HostTensor::filled(DType::Float32, {1, 1, 1}, before.value_or(NAN)), before.has_value())
          .at(0);
    };
    EXPECT_EQ(sum_of_leaves(4, {}), 1 + 0x1p-23);
    EXPECT_EQ(sum_of_leaves(1, {}), 1);
    EXPECT_EQ(sum_of_leaves(4, 3), 4);
  }
}

TEST_P(KernelsOnEveryDevice, GroupedProductsHaveTheSameBitsEveryWay) {
  const Counts counts{0, takes_too_long(400 * 40 * 30) ? 5 : 390, 3, 0, 1};
  const int64_t rows = sum_of(counts), n = takes_too_long(rows * 40 * 30) ? 17 : 40;
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    const HostTensor a = HostTensor::random(dtype, {rows, 30}, 1), b = weights_of(dtype, 5, n, 30, false);
    const HostTensor dy = HostTensor::random(dtype, {rows, n}, 3);
    same_bits_every_way([&](Kernels& kernels) {
      return std::vector{Product{a, b, dtype}.run(kernels, counts), Gradient{a, dy, 5, counts}.run(kernels)};
    });
  }
}

TEST_P(KernelsOnEveryDevice, GroupedProductsRefuseWhatDoesNotFit) {
  HostTensor a(DType::Float32, {6, 4}), b(DType::Float32, {2, 4, 5}), out(DType::Float32, {6, 5}),
      wide(DType::Float32, {2, 4, 4});
  Ints ends{2, 6, 6};
  const ProductCuts rows{.row_ends = {6}}, leaves{.leaves = {{{0, 6}}}};
  const TensorView two = view_of(ends, {2, 1}), three = view_of(ends, {3, 1});
  EXPECT_THROW(kernels().grouped_matmul({a.view(), b.view(), three, out.view()}), std::logic_error);
  EXPECT_THROW(kernels().grouped_matmul({a.view(), b.view(), two, out.view(), true}), std::logic_error);
  EXPECT_THROW(kernels().grouped_matmul({a.view(), b.view(), two, out.view(), false, false, &rows}), std::logic_error);
  EXPECT_THROW(kernels().grouped_gradient({a.view(), a.view(), two, 2, wide.view()}), std::logic_error);
  EXPECT_THROW(kernels().grouped_gradient({a.view(), a.view(), two, 1, b.view()}), std::logic_error);
  EXPECT_THROW(kernels().grouped_gradient({a.view(), a.view(), two, 1, wide.view(), false, &leaves}), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::grouped_products_test
