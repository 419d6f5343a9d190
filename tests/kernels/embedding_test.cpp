#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "tests/kernels/every_way.h"

namespace trivet::kernels::embedding_test {
namespace {

struct Tokens {
  std::vector<int32_t> ids;
  Shape shape;

  Tokens(int64_t batch, int64_t sequence, int64_t vocabulary) : shape{batch, sequence} {
    for (int64_t t = 0; t < batch * sequence; ++t)
      ids.push_back(static_cast<int32_t>(philox(3, static_cast<uint64_t>(t), 0)[0] % static_cast<uint64_t>(vocabulary)));
  }
  ConstTensorView view() const { return {ids.data(), DType::Int32, shape}; }
};

struct Sizes {
  int64_t batch, sequence, vocabulary, hidden;
};
const Sizes kSizes[] = {{0, 4, 5, 3}, {1, 1, 1, 1}, {2, 5, 7, 9}, {3, 40, 11, 515}, {2, 64, 300, 256}};

TEST(Embedding, AddsTokenAndPositionRows) {
  for (const DType dtype : kFloatTypes)
    for (const Sizes& s : kSizes)
      for (const bool with_positions : {true, false}) {
        const Tokens tokens(s.batch, s.sequence, s.vocabulary);
        const HostTensor table = HostTensor::random(dtype, {s.vocabulary, s.hidden}, 1);
        const HostTensor positions = HostTensor::random(dtype, {s.sequence + 2, s.hidden}, 2);
        const Shape shape{s.batch, s.sequence, s.hidden};
        const auto out = same_bits_every_way([&](Kernels& kernels) {
          HostTensor y = HostTensor::poisoned(dtype, shape);
          kernels.embedding({tokens.view(), table.view(), with_positions ? positions.view() : ConstTensorView{}, y.view()});
          return std::vector{y};
        });
        HostTensor expected(dtype, shape);
        for (int64_t e = 0; e < shape.elements(); ++e) {
          const int64_t t = e / s.hidden, i = e % s.hidden;
          expected.set(
              e, table.at(tokens.ids[t] * s.hidden + i) + (with_positions ? positions.at(t % s.sequence * s.hidden + i) : 0.0));
        }
        EXPECT_TRUE(out[0] == expected);
      }
}

// The table and the positions have an `accumulate` flag each: here one is set and the other is not.
TEST(Embedding, BackwardSumsRowsOfEachTokenAndPositionRoundedOnce) {
  for (const DType dtype : kFloatTypes)
    for (const DType out_type : {dtype, dtype == DType::Float64 ? dtype : DType::Float32})
      for (const Sizes& s : kSizes)
        for (const bool accumulate_table : {true, false}) {
          const bool accumulate_positions = !accumulate_table;
          const Tokens tokens(s.batch, s.sequence, s.vocabulary);
          const HostTensor dy = HostTensor::random(dtype, {s.batch, s.sequence, s.hidden}, 1);
          const auto target = [&](int64_t rows, bool accumulate) {
            return accumulate ? HostTensor::random(out_type, {rows, s.hidden}, 7)
                              : HostTensor::poisoned(out_type, {rows, s.hidden});
          };
          const HostTensor table_before = target(s.vocabulary, accumulate_table);
          const HostTensor positions_before = target(s.sequence + 1, accumulate_positions);
          const auto out = same_bits_every_way([&](Kernels& kernels) {
            HostTensor dtable = table_before, dpositions = positions_before;
            kernels.embedding_backward(
                {tokens.view(), dy.view(), dtable.view(), dpositions.view(), accumulate_table, accumulate_positions});
            return std::vector{dtable, dpositions};
          });
          std::vector<double> table(s.vocabulary * s.hidden), positions;
          positions.resize((s.sequence + 1) * s.hidden);
          for (int64_t e = 0; e < dy.elements(); ++e) {
            const int64_t t = e / s.hidden, i = e % s.hidden;
            table[tokens.ids[t] * s.hidden + i] += dy.at(e);
            positions[t % s.sequence * s.hidden + i] += dy.at(e);
          }
          const auto expect = [&](const HostTensor& result, const std::vector<double>& sums, const HostTensor& before,
                                  bool accumulate) {
            for (int64_t e = 0; e < result.elements(); ++e) {
              const double value = sums[e] + (accumulate ? before.at(e) : 0.0);
              const double terms = static_cast<double>(s.batch * s.sequence);
              ASSERT_NEAR(result.at(e), value,
                          terms * terms * sum_unit(dtype) + half_unit(out_type) * (std::abs(value) + 1e-3));
            }
          };
          expect(out[0], table, table_before, accumulate_table);
          expect(out[1], positions, positions_before, accumulate_positions);
        }
}

TEST(Embedding, BackwardLeavesAbsentGradientsOut) {
  const Tokens tokens(2, 3, 5);
  const HostTensor dy = HostTensor::random(DType::BFloat16, {2, 3, 4}, 1);
  HostTensor table = HostTensor::poisoned(DType::BFloat16, {5, 4}), positions = HostTensor::poisoned(DType::BFloat16, {3, 4});
  HostTensor table_alone = table, positions_alone = positions;
  const auto kernels = make_cpu_kernels(1);
  kernels->embedding_backward({tokens.view(), dy.view(), table.view(), positions.view(), false, false});
  kernels->embedding_backward({tokens.view(), dy.view(), table_alone.view(), {}, false, false});
  kernels->embedding_backward({tokens.view(), dy.view(), {}, positions_alone.view(), false, false});
  EXPECT_TRUE(table == table_alone);
  EXPECT_TRUE(positions == positions_alone);
}

TEST(Embedding, TokenOutsideTheVocabularyIsNamedAndNothingIsWritten) {
  Tokens tokens(2, 3, 5);
  const HostTensor table = HostTensor::random(DType::Float32, {5, 4}, 1), dy = HostTensor::random(DType::Float32, {2, 3, 4}, 1);
  HostTensor out = HostTensor::filled(DType::Float32, {2, 3, 4}, 1), dtable = HostTensor::filled(DType::Float32, {5, 4}, 1);
  const HostTensor out_before = out, dtable_before = dtable;
  const auto kernels = make_cpu_kernels(1);
  for (const int32_t bad : {-1, 5}) {
    tokens.ids[4] = bad;
    const auto message = testing::ThrowsMessage<std::out_of_range>(
        testing::HasSubstr("token " + std::to_string(bad) + " at index 4 of [2, 3] is outside the vocabulary [0, 5)"));
    EXPECT_THAT([&] { kernels->embedding({tokens.view(), table.view(), {}, out.view()}); }, message);
    EXPECT_THAT([&] { kernels->embedding_backward({tokens.view(), dy.view(), dtable.view(), {}, false, false}); }, message);
  }
  EXPECT_TRUE(out == out_before);
  EXPECT_TRUE(dtable == dtable_before);
}

}  // namespace
}  // namespace trivet::kernels::embedding_test
