// Adasum against its formula, in float64 and without slices.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/random.h"
#include "tests/hvd/hvd_ranks.h"

namespace trivet::hvd {
namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

Vector adasum_of_two(const Vector& a, const Vector& b) {
  const double of_a = dot(a, a) > 0 ? 1 - dot(a, b) / (2 * dot(a, a)) : 1;
  const double of_b = dot(b, b) > 0 ? 1 - dot(a, b) / (2 * dot(b, b)) : 1;
  Vector sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = of_a * a[i] + of_b * b[i];
  return sum;
}

Vector adasum_of_all(std::vector<Vector> vectors) {
  while (vectors.size() > 1) {
    std::vector<Vector> next;
    for (size_t i = 0; i + 1 < vectors.size(); i += 2) next.push_back(adasum_of_two(vectors[i], vectors[i + 1]));
    if (vectors.size() % 2 == 1) next.push_back(vectors.back());
    vectors = next;
  }
  return vectors[0];
}

// A rank's gradient: a direction that all share, and one of its own.
Vector gradient(int rank, int64_t elements, uint64_t tensor) {
  Vector values(elements);
  for (int64_t i = 0; i < elements; ++i)
    values[i] = unit_float(philox(tensor, 99, i)[0]) - 0.5 + (rank + 1) * (unit_float(philox(tensor, rank, i)[0]) - 0.5);
  return values;
}

template <typename T>
void expect_formula(int ranks, double tolerance) {
  const std::vector<int64_t> sizes{1, 7, 1000};
  run_ranks(ranks, [&](Communicator& hvd) {
    std::vector<std::vector<T>> tensors;
    for (size_t t = 0; t < sizes.size(); ++t) {
      const Vector own = gradient(hvd.rank(), sizes[t], t);
      tensors.emplace_back(own.begin(), own.end());
    }
    std::vector<TensorView> views;
    for (auto& tensor : tensors) views.push_back(view(tensor));
    hvd.grouped_allreduce_(views, {.name = "g", .op = Adasum});
    for (size_t t = 0; t < sizes.size(); ++t) {
      std::vector<Vector> all;
      for (int rank = 0; rank < ranks; ++rank) {
        const Vector exact = gradient(rank, sizes[t], t);
        const std::vector<T> stored(exact.begin(), exact.end());
        all.emplace_back(stored.begin(), stored.end());
      }
      const Vector expected = adasum_of_all(all);
      for (int64_t i = 0; i < sizes[t]; ++i)
        ASSERT_NEAR(double(tensors[t][i]), expected[i], tolerance)
            << "rank " << hvd.rank() << " tensor " << t << " element " << i;
    }
  });
}

// The values are below 8, where half of the last bit is 2^-22; each of at most 3 levels rounds once, and the next may double
// that.
TEST(HvdAdasum, MatchesTheFormulaForAnyNumberOfRanks) {
  for (int ranks : {1, 2, 3, 4, 5}) {
    expect_formula<double>(ranks, 1e-13);
    expect_formula<float>(ranks, 6 * std::ldexp(1.0, -22));
  }
}

TEST(HvdAdasum, EqualVectorsGiveTheirMeanAndOrthogonalOnesTheirSum) {
  run_ranks(2, [](Communicator& hvd) {
    std::vector<float> equal{3, -4};
    hvd.allreduce_(view(equal), {.name = "equal", .op = Adasum});
    EXPECT_EQ(equal, (std::vector<float>{3, -4}));
    std::vector<float> orthogonal{hvd.rank() == 0 ? 2.f : 0.f, hvd.rank() == 0 ? 0.f : 5.f};
    hvd.allreduce_(view(orthogonal), {.name = "orthogonal", .op = Adasum});
    EXPECT_EQ(orthogonal, (std::vector<float>{2, 5}));
    std::vector<float> one_is_zero{hvd.rank() == 1 ? 6.f : 0.f, 0};
    hvd.allreduce_(view(one_is_zero), {.name = "zero", .op = Adasum});
    EXPECT_EQ(one_is_zero, (std::vector<float>{6, 0}));
  });
}

TEST(HvdAdasum, HasTheSameBitsFusedAndAlone) {
  const auto bits = [](int64_t threshold) {
    std::vector<float> result;
    Options options;
    options.fusion_threshold_bytes = threshold;
    run_ranks(
        3,
        [&](Communicator& hvd) {
          std::vector<std::vector<float>> tensors;
          std::vector<TensorView> views;
          for (uint64_t t = 0; t < 3; ++t) {
            const Vector own = gradient(hvd.rank(), 101, t);
            tensors.emplace_back(own.begin(), own.end());
          }
          for (auto& tensor : tensors) views.push_back(view(tensor));
          hvd.grouped_allreduce_(views, {.name = "g", .op = Adasum});
          if (hvd.rank() != 1) return;
          for (const auto& tensor : tensors) result.insert(result.end(), tensor.begin(), tensor.end());
        },
        options);
    return result;
  };
  EXPECT_EQ(bits(0), bits(1 << 20));
}

}  // namespace
}  // namespace trivet::hvd
